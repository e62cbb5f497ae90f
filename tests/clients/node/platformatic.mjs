// Driver of @platformatic/kafka.

import { bootstrap, findIn, fromBytes, Inbox, load, Missing, serve, toBytes, versionOf } from './lines.mjs'

const { Admin, Consumer, Producer, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } = load('@platformatic/kafka')

const base = () => ({ clientId: 'matrix', bootstrapBrokers: [bootstrap], metadataMaxAge: 1000 })

class Client {
  constructor () {
    this.admin = new Admin(base())
    this.members = new Map()
  }

  hello () {
    return { version: versionOf('@platformatic/kafka') }
  }

  async produce ({ topic, partition, records, codec = 'none', idempotent = true }) {
    const producer = new Producer({ ...base(), idempotent, acks: -1, compression: codec })
    try {
      const messages = records.map(r => ({
        topic,
        partition,
        key: toBytes(r.key),
        value: toBytes(r.value),
        headers: new Map((r.headers ?? []).map(([name, value]) => [toBytes(name), toBytes(value)])),
        ...(r.timestamp ? { timestamp: BigInt(r.timestamp) } : {})
      }))
      const { offsets } = await producer.send({ messages, idempotent, acks: -1, compression: codec })
      return { first: Number(offsets[0].offset) }
    } finally {
      await producer.close()
    }
  }

  async join ({ member, group, topics, pattern, protocol = 'classic' }) {
    if (pattern) throw new Missing()
    const classic = { groupProtocol: 'classic', heartbeatInterval: 500, sessionTimeout: 10_000, rebalanceTimeout: 15_000 }
    const options = protocol === 'classic' ? classic : { groupProtocol: 'consumer' }
    const consumer = new Consumer({ ...base(), groupId: group, autocommit: false, maxWaitTime: 500, ...options })
    const opened = { consumer, inbox: new Inbox() }
    this.members.set(member, opened)
    await this.#read(opened, { topics, mode: 'committed', fallbackMode: 'earliest' })
  }

  async #read (opened, options) {
    const { inbox } = opened
    opened.stream = await opened.consumer.consume({ ...options, autocommit: false })
    opened.stream.on('error', error => inbox.fail(error))
    opened.stream.on('data', message => inbox.put({
      topic: message.topic,
      partition: message.partition,
      offset: Number(message.offset),
      key: fromBytes(message.key),
      value: fromBytes(message.value),
      headers: [...message.headers].map(([name, value]) => [fromBytes(name), fromBytes(value)]),
      timestamp: Number(message.timestamp)
    }))
  }

  take ({ member, count, seconds }) {
    return this.members.get(member).inbox.take(count, seconds)
  }

  // To seek is, in this client, to end the stream and to begin another.
  async seek ({ member, topic, partition, at }) {
    const opened = this.members.get(member)
    const offset = await this.#offset(opened, topic, partition, at)
    await opened.stream.close()
    opened.inbox.clear()
    await this.#read(opened, { topics: [topic], mode: 'manual', offsets: [{ topic, partition, offset }] })
  }

  async #offset ({ consumer }, topic, partition, at) {
    if (at.offset !== undefined) return BigInt(at.offset)
    const timestamp = at === 'begin' ? -2n : at === 'end' ? -1n : BigInt(at.timestamp)
    const listed = await consumer.listOffsets({ topics: [topic], partitions: { [topic]: [partition] }, timestamp })
    return listed.get(topic)[partition]
  }

  async commit ({ member, topic, partition, offset }) {
    const offsets = [{ topic, partition, offset: BigInt(offset), leaderEpoch: 0 }]
    await this.members.get(member).consumer.commit({ offsets })
  }

  async leave ({ member }) {
    await this.members.get(member).stream.close()
    await this.members.get(member).consumer.close(true)
  }

  async create ({ topic, partitions, config }) {
    const configs = Object.entries(config).map(([name, value]) => ({ name, value }))
    await this.admin.createTopics({ topics: [topic], partitions, replicas: -1, configs })
  }

  async topics () {
    return { topics: await this.admin.listTopics() }
  }

  async describe ({ topic }) {
    const metadata = await this.admin.metadata({ topics: [topic], forceUpdate: true })
    const partitions = metadata.topics.get(topic).partitions.map((p, partition) =>
      ({ partition, leader: p.leader, replicas: p.replicas.length }))
    return { partitions }
  }

  async create_partitions ({ topic, total }) {
    await this.admin.createPartitions({ topics: [{ name: topic, count: total }] })
  }

  async configs ({ topic }) {
    const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: null }]
    const [described] = await this.admin.describeConfigs({ resources })
    return { configs: Object.fromEntries(described.configs.map(config => [config.name, config.value])) }
  }

  async alter ({ topic, name, value }) {
    const configs = [{ name, configOperation: IncrementalAlterConfigOperationTypes.SET, value }]
    const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs }]
    await this.admin.incrementalAlterConfigs({ resources })
  }

  async delete_records ({ topic, partition, before }) {
    await this.admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition, offset: BigInt(before) }] }] })
  }

  async delete_topic ({ topic }) {
    await this.admin.deleteTopics({ topics: [topic] })
  }

  async groups () {
    return { groups: [...(await this.admin.listGroups()).keys()] }
  }

  async describe_group ({ group }) {
    const described = (await this.admin.describeGroups({ groups: [group] })).get(group)
    return { state: described.state, members: described.members.size }
  }

  async log_dirs ({ topic }) {
    const described = await this.admin.describeLogDirs({ topics: [{ name: topic, partitions: [0] }] })
    return { topics: described.flatMap(broker => broker.results.flatMap(result => result.topics.map(t => t.name))) }
  }

  async cluster () {
    const { id, brokers } = await this.admin.metadata({ topics: [], forceUpdate: true })
    return { cluster: id, brokers: [...brokers].map(([number, broker]) => [number, broker.host, broker.port]) }
  }
}

serve(new Client(), error => findIn(error, e => typeof e.apiCode === 'number' ? e.apiCode : undefined))
