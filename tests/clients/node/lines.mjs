// What the Node drivers share: commands as JSON lines on stdin, answers as JSON lines on stdout.
//
//   node DRIVER.mjs DIRECTORY_OF_NODE_MODULES BOOTSTRAP
//
// A command names an operation, which is a method of the client; what a client has no method for is answered as missing.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

/** Loads packages from where they were installed, which is not beside the drivers. */
export const load = createRequire(process.argv[2] + '/')
export const bootstrap = process.argv[3]

/** Read as a file, since not every package lets its package.json be loaded. */
export const versionOf = name => JSON.parse(readFileSync(`${process.argv[2]}/node_modules/${name}/package.json`)).version

export class Missing extends Error {}

export function serve (client, codeOf) {
  createInterface({ input: process.stdin }).on('line', async line => {
    const { id, op, ...options } = JSON.parse(line)
    let reply
    try {
      reply = client[op] ? { result: (await client[op](options)) ?? {} } : { missing: true }
    } catch (error) {
      if (error instanceof Missing) reply = { missing: true }
      else reply = { error: { code: codeOf(error), message: `${error.name}: ${describe(error)}` } }
    }
    console.log(JSON.stringify({ id, ...reply }, (_, value) => typeof value === 'bigint' ? Number(value) : value))
  }).on('close', () => process.exit(0))
}

function describe (error) {
  const inner = within(error)
  return [error.message, ...inner.map(describe)].join('; ')
}

/** The errors that an error was made of; kafkajs keeps those of partitions with them. */
function within (error) {
  return error.errors ?? error.partitions?.map(partition => partition.error) ?? (error.cause ? [error.cause] : [])
}

/** The first of an error and its causes of which `ask` knows something. */
export function findIn (error, ask) {
  const found = ask(error)
  if (found !== undefined) return found
  for (const inner of within(error)) {
    const deeper = findIn(inner, ask)
    if (deeper !== undefined) return deeper
  }
}

export function toBytes (text) {
  if (text === null || text === undefined) return text
  return Buffer.from(typeof text === 'object' ? 'x'.repeat(text.fill) : text)
}

export function fromBytes (data) {
  if (data === null || data === undefined) return null
  const text = data.toString()
  return text.length > 1000 && /^x+$/.test(text) ? { fill: text.length } : text
}

/** Keeps the records of a member until they are taken. */
export class Inbox {
  records = []
  failure = null
  #waiting = []

  put (record) {
    this.records.push(record)
    this.#wake()
  }

  fail (error) {
    this.failure = error
  }

  clear () {
    this.records = []
  }

  #wake () {
    for (const check of this.#waiting) check()
  }

  async take (count, seconds) {
    if (this.records.length < count) {
      await new Promise(resolve => {
        const timer = setTimeout(done, seconds * 1000)
        const waiting = this.#waiting
        const check = () => this.records.length >= count && done()
        function done () {
          clearTimeout(timer)
          waiting.splice(waiting.indexOf(check), 1)
          resolve()
        }
        waiting.push(check)
      })
    }
    const taken = this.records.splice(0, count)
    if (taken.length === 0 && this.failure) throw this.failure
    return { records: taken }
  }
}
