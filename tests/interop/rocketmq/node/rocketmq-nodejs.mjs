// rocketmq-nodejs, which is RocketMQ's client in C++ behind JavaScript.

import rocketmq from 'rocketmq-nodejs'
import { add, answerQuestions, Arrivals } from './questions.mjs'

const { Producer, PushConsumer } = rocketmq
const common = { nameServer: process.argv[2], logLevel: 'error' }
let instances = 0
const producer = new Producer('interop', 'producer', common)
await producer.start()

async function send(topic, messages) {
  const placed = []
  for (const [body, tags, keys] of messages) {
    const { status, offset } = await producer.send(topic, body, { tags, keys })
    if (status !== 0) throw new Error(`status ${status}`)
    placed.push([-1, offset])
  }
  return placed
}

async function consumer(group, topic, options) {
  const arrivals = new Arrivals(options.refused)
  const limit = options.attempts_max >= 0 ? { maxReconsumeTimes: options.attempts_max } : {}
  const made = new PushConsumer(group, `consumer-${++instances}`, { ...common, ...limit })
  made.subscribe(topic, options.expression)
  made.on('message', ({ topic, tags, keys, body }, ack) => {
    ack.done(arrivals.take([topic, -1, -1, body, tags, keys, {}]))
  })
  await made.start()
  return add({ poll: () => arrivals.poll(), close: () => made.shutdown() })
}

await answerQuestions({ send, consumer })
