// Answers questions, one JSON line each, by calling the function of that name. See remote_client.py.

import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import * as zstd from '@bokuweb/zstd-wasm'
import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import lz4 from 'lz4js'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const PATIENCE_MS = 60_000

await zstd.init()
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

const kafka = new Kafka({ clientId: 'interop', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const admin = kafka.admin()
await admin.connect()

const text = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString('latin1'))
const bytes = (string) => (string === null ? null : Buffer.from(string, 'latin1'))

// ---- records

/** The library keeps one entry a name, with a list when there are several. */
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) (headers[name] ??= []).push(bytes(value))
  return headers
}

function row(topic, partition, message) {
  const pairs = Object.entries(message.headers ?? {})
    .flatMap(([name, values]) => [values].flat().map((value) => [name, text(value)]))
  const { offset, key, value, timestamp } = message
  return [topic, partition, Number(offset), text(key), text(value), pairs, Number(timestamp)]
}

const CODECS = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }

async function produce(topic, records, codec, acks, idempotent) {
  const producer = kafka.producer({ idempotent })
  await producer.connect()
  const messages = records.map(([value, key, headers, timestamp, partition]) => ({
    value: bytes(value),
    key: bytes(key),
    headers: headersOf(headers),
    timestamp: timestamp === null ? undefined : String(timestamp),
    partition: partition ?? undefined,
  }))
  const compression = CompressionTypes[CODECS[codec]]
  await producer.send({ topic, messages, compression, acks: acks === 'all' ? -1 : Number(acks) })
  await producer.disconnect()
}

let groups = 0

/** It has no consumer without a group: each reading is a group of its own. */
async function consume(topic, count, committedOnly) {
  const reader = await join(`reader-${groups++}-${topic}`, [topic], { readUncommitted: !committedOnly })
  const deadline = Date.now() + PATIENCE_MS
  const rows = []
  while (rows.length < count && Date.now() < deadline) rows.push(...(await reader.poll()))
  await reader.close()
  if (rows.length < count) throw new Error(`${rows.length} of ${count} records came`)
  return rows
}

async function offset_for_time(topic, partition, timestamp) {
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
  return Number(found.find((each) => each.partition === partition).offset)
}

// ---- members and transactions

async function join(groupId, topics, more) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 100, maxWaitTimeInMs: 100, ...more })
  let rows = []
  let assigned = []
  const positions = new Map()
  consumer.on(consumer.events.REBALANCING, () => { assigned = [] })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    assigned = Object.entries(payload.memberAssignment)
      .flatMap(([topic, partitions]) => partitions.map((partition) => [topic, partition]))
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      rows.push(row(topic, partition, message))
      positions.set(`${topic}/${partition}`, { topic, partition, offset: String(Number(message.offset) + 1) })
    },
  })
  const owned = () => assigned.map(([topic, partition]) => positions.get(`${topic}/${partition}`)).filter(Boolean)
  return {
    groupId,
    owned,
    poll: async () => {
      if (rows.length === 0) await pause(100)
      const taken = rows
      rows = []
      return taken
    },
    assignment: async () => assigned,
    commit: () => consumer.commitOffsets(owned()),
    close: () => consumer.disconnect(),
  }
}

async function transactor(transactionalId) {
  const producer = kafka.producer({ transactionalId, maxInFlightRequests: 1, idempotent: true, retry: { retries: 2 } })
  await producer.connect()
  // The coordinator hears of the producer with its first transaction.
  let next = await producer.transaction()
  let transaction
  return add({
    begin: async () => {
      transaction = next ?? (await producer.transaction())
      next = null
    },
    send: async (topic, values) => {
      await transaction.send({ topic, messages: values.map((value) => ({ value: bytes(value), partition: 0 })) })
    },
    send_offsets: async (number) => {
      const member = objects[number]
      const topics = member.owned().map(({ topic, partition, offset }) => ({ topic, partitions: [{ partition, offset }] }))
      await transaction.sendOffsets({ consumerGroupId: member.groupId, topics })
    },
    commit: () => transaction.commit(),
    abort: () => transaction.abort(),
    close: () => producer.disconnect(),
  })
}

// ---- administration

async function config(type, name) {
  const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type, name }] })
  return Object.fromEntries(resources[0].configEntries.map((each) => [each.configName, each.configValue]))
}

const library = {
  produce,
  consume,
  offset_for_time,
  transactor,
  member: async (group, topics) => add(await join(group, topics, {})),
  create_topic: (topic, numPartitions, config) => admin.createTopics({
    topics: [{ topic, numPartitions, configEntries: Object.entries(config).map(([name, value]) => ({ name, value })) }],
  }),
  delete_topic: (topic) => admin.deleteTopics({ topics: [topic] }),
  list_topics: () => admin.listTopics(),
  describe_topic: async (topic) => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length,
  create_partitions: (topic, count) => admin.createPartitions({ topicPartitions: [{ topic, count }] }),
  topic_config: (topic) => config(ConfigResourceTypes.TOPIC, topic),
  broker_config: () => config(ConfigResourceTypes.BROKER, '1'),
  alter_topic_config: (name, key, value) => admin.alterConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name, configEntries: [{ name: key, value }] }],
  }),
  describe_cluster: async () => (await admin.describeCluster()).brokers.map((each) => each.nodeId),
  delete_records: async (topic, partition, offset) => {
    // It looks for the leader among the topics that it happens to know.
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] })
  },
  list_offsets: async (topic, partition) => {
    const found = (await admin.fetchTopicOffsets(topic)).find((each) => each.partition === partition)
    return [Number(found.low), Number(found.high)]
  },
  list_reassignments: async () => (await admin.listPartitionReassignments({})).topics.length,
  list_groups: async () => (await admin.listGroups()).groups.map((each) => each.groupId),
  describe_group: async (group) => {
    const { state, members } = (await admin.describeGroups([group])).groups[0]
    return [state, members.length]
  },
  delete_group: (group) => admin.deleteGroups([group]),
  group_offsets: async (groupId) => (await admin.fetchOffsets({ groupId }))
    .flatMap(({ topic, partitions }) => partitions.map((each) => [topic, each.partition, Number(each.offset)])),
  alter_group_offset: (groupId, topic, partition, offset) =>
    admin.setOffsets({ groupId, topic, partitions: [{ partition, offset: String(offset) }] }),
}

// ---- questions and answers

const objects = [library]

function add(made) {
  objects.push(made)
  return objects.length - 1
}

async function answer({ call, on, with: given }) {
  const asked = objects[on][call]
  if (asked === undefined) return { missing: call }
  try {
    return { result: (await asked(...given)) ?? null }
  } catch (error) {
    const details = (error.groups ?? []).map((each) => each.error?.type ?? each.errorCode)
    return { error: [`${error.name}: ${error.message}`, error.type, ...details].join(' ') }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))))
}
process.exit(0)
