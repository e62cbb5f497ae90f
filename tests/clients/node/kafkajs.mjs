// Driver of kafkajs.

import zlib from 'node:zlib'
import { bootstrap, findIn, fromBytes, Inbox, load, Missing, serve, toBytes, versionOf } from './lines.mjs'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = load('kafkajs')
const snappy = load('kafkajs-snappy')
const lz4 = load('@platformatic/wasm-utils')

// This client compresses with gzip alone; for the rest its users bring a codec.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.lz4Compress(encoder.buffer)),
  decompress: async data => Buffer.from(lz4.lz4Decompress(data))
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
  decompress: async data => zlib.zstdDecompressSync(data)
})

const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD
}

class Client {
  constructor () {
    this.kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
    this.producers = new Map()
    this.members = new Map()
    this.admin = this.kafka.admin()
    this.connected = this.admin.connect()
  }

  hello () {
    return { version: versionOf('kafkajs') }
  }

  async produce ({ topic, partition, records, codec = 'none', idempotent = true }) {
    if (!this.producers.has(idempotent)) {
      const producer = this.kafka.producer({ idempotent, allowAutoTopicCreation: false })
      this.producers.set(idempotent, producer.connect().then(() => producer))
    }
    const producer = await this.producers.get(idempotent)
    const messages = records.map(r => ({
      key: toBytes(r.key),
      value: toBytes(r.value),
      partition,
      headers: Object.fromEntries((r.headers ?? []).map(([name, value]) => [name, toBytes(value)])),
      ...(r.timestamp ? { timestamp: String(r.timestamp) } : {})
    }))
    const [answer] = await producer.send({ topic, messages, acks: -1, compression: CODECS[codec] })
    return { first: Number(answer.baseOffset) }
  }

  async join ({ member, group, topics, pattern, protocol = 'classic' }) {
    if (protocol !== 'classic') throw new Missing()
    const consumer = this.kafka.consumer({ groupId: group, metadataMaxAge: 1000, heartbeatInterval: 500, maxWaitTimeInMs: 500 })
    const inbox = new Inbox()
    this.members.set(member, { consumer, inbox })
    await consumer.connect()
    await consumer.subscribe({ topics: topics ?? [new RegExp(`^${pattern}`)], fromBeginning: true })
    consumer.on(consumer.events.CRASH, ({ payload }) => inbox.fail(payload.error))
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => inbox.put({
        topic,
        partition,
        offset: Number(message.offset),
        key: fromBytes(message.key),
        value: fromBytes(message.value),
        headers: Object.entries(message.headers).map(([name, value]) => [name, fromBytes(value)]),
        timestamp: Number(message.timestamp)
      })
    })
  }

  take ({ member, count, seconds }) {
    return this.members.get(member).inbox.take(count, seconds)
  }

  async seek ({ member, topic, partition, at }) {
    const { consumer, inbox } = this.members.get(member)
    consumer.seek({ topic, partition, offset: String(await this.#offset(topic, partition, at)) })
    inbox.clear()
  }

  async #offset (topic, partition, at) {
    if (at.offset !== undefined) return at.offset
    await this.connected
    const found = at.timestamp
      ? await this.admin.fetchTopicOffsetsByTimestamp(topic, at.timestamp)
      : await this.admin.fetchTopicOffsets(topic)
    const one = found.find(each => each.partition === partition)
    return at === 'begin' ? one.low : one.offset
  }

  async commit ({ member, topic, partition, offset }) {
    await this.members.get(member).consumer.commitOffsets([{ topic, partition, offset: String(offset) }])
  }

  pause ({ member, topic, partition }) {
    this.members.get(member).consumer.pause([{ topic, partitions: [partition] }])
  }

  resume ({ member, topic, partition }) {
    this.members.get(member).consumer.resume([{ topic, partitions: [partition] }])
  }

  async leave ({ member }) {
    await this.members.get(member).consumer.disconnect()
  }

  async create ({ topic, partitions, config }) {
    await this.connected
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    // It would wait for the leaders by asking a broker once, which may not have heard of the topic yet.
    const topics = [{ topic, numPartitions: partitions, replicationFactor: -1, configEntries }]
    await this.admin.createTopics({ topics, waitForLeaders: false })
  }

  async topics () {
    await this.connected
    return { topics: await this.admin.listTopics() }
  }

  async describe ({ topic }) {
    await this.connected
    const { topics: [described] } = await this.admin.fetchTopicMetadata({ topics: [topic] })
    const partitions = described.partitions.map(p =>
      ({ partition: p.partitionId, leader: p.leader, replicas: p.replicas.length }))
    return { partitions }
  }

  async create_partitions ({ topic, total }) {
    await this.connected
    await this.admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
  }

  async configs ({ topic }) {
    await this.connected
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const answer = await this.admin.describeConfigs({ resources, includeSynonyms: false })
    const entries = answer.resources[0].configEntries
    return { configs: Object.fromEntries(entries.map(entry => [entry.configName, entry.configValue])) }
  }

  async alter ({ topic, name, value }) {
    await this.connected
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }]
    await this.admin.alterConfigs({ resources, validateOnly: false })
  }

  async delete_records ({ topic, partition, before }) {
    // This call wants what its admin client last heard to be of this topic, so it has one of its own.
    const admin = this.kafka.admin()
    await admin.connect()
    try {
      await admin.fetchTopicMetadata({ topics: [topic] })
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    } finally {
      await admin.disconnect()
    }
  }

  async delete_topic ({ topic }) {
    await this.connected
    await this.admin.deleteTopics({ topics: [topic] })
  }

  async groups () {
    await this.connected
    return { groups: (await this.admin.listGroups()).groups.map(group => group.groupId) }
  }

  async describe_group ({ group }) {
    await this.connected
    const { groups: [described] } = await this.admin.describeGroups([group])
    return { state: described.state, members: described.members.length }
  }

  async cluster () {
    await this.connected
    const { clusterId, brokers } = await this.admin.describeCluster()
    return { cluster: clusterId, brokers: brokers.map(b => [b.nodeId, b.host, b.port]) }
  }
}

serve(new Client(), error => findIn(error, e => typeof e.code === 'number' ? e.code : undefined))
