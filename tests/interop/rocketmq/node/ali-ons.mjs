// ali-ons, a client of RocketMQ 4 in JavaScript.

import ons from 'ali-ons'
import { add, answerQuestions, Arrivals } from './questions.mjs'

const { Consumer, Message, Producer } = ons
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const common = {
  nameSrv: process.argv[2],
  // Wanted by the constructor, for name servers that are looked up.
  httpclient: { request: () => Promise.reject(new Error('no name server is looked up')) },
  logger: silent,
}
let instances = 0
const producer = new Producer({ ...common, producerGroup: 'interop', instanceName: 'producer' })
producer.on('error', () => {})
await producer.ready()

async function send(topic, messages) {
  const placed = []
  for (const [body, tags, keys, properties, delayLevel] of messages) {
    const message = new Message(topic, tags, body)
    if (keys) message.keys = [keys]
    Object.assign(message.properties, properties)
    if (delayLevel) message.delayTimeLevel = delayLevel
    const { messageQueue, queueOffset } = await producer.send(message)
    placed.push([messageQueue.queueId, Number(queueOffset)])
  }
  return placed
}

async function consumer(group, topic, options) {
  const arrivals = new Arrivals(options.refused)
  const made = new Consumer({
    ...common,
    consumerGroup: group,
    instanceName: `consumer-${++instances}`,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    isBroadcast: options.model === 'broadcasting',
    ...(options.attempts_max >= 0 && { maxReconsumeTimes: options.attempts_max }),
  })
  made.on('error', () => {})
  const { expression, language } = options
  const filter = language === 'SQL92' ? { expressionType: language, subString: expression } : expression
  made.subscribe(topic, filter, async (message) => {
    const { queueId, queueOffset, body, tags, keys, properties } = message
    const taken = arrivals.take([
      message.topic, queueId, Number(queueOffset), body.toString(), tags ?? '', keys ?? '', properties,
    ])
    // Its ACTION_RETRY is forgotten when a message comes for the second time; an error is not.
    if (!taken) throw new Error('not taken')
  })
  await made.ready()
  return add({ poll: () => arrivals.poll(), close: () => made.close() })
}

await answerQuestions({ send, consumer })
