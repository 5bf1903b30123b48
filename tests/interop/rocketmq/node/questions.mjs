// Answers questions, one JSON line each, by calling the function of that name. See remote_client.py.

import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

const POLL_MS = 200
const objects = []

/** What questions name by its number. */
export function add(made) {
  objects.push(made)
  return objects.length - 1
}

/** What has come to a consumer, and whether a body is taken. */
export class Arrivals {
  constructor(refused) {
    this.refused = refused
    this.came = []
    this.attempts = new Map()
  }

  take(delivery) {
    this.came.push(delivery)
    const body = delivery[3]
    const attempts = (this.attempts.get(body) ?? 0) + 1
    this.attempts.set(body, attempts)
    return !body.startsWith('refuse') || attempts > this.refused
  }

  async poll() {
    if (this.came.length === 0) await pause(POLL_MS)
    return this.came.splice(0)
  }
}

async function answer({ call, on, with: given }) {
  const asked = objects[on][call]
  if (asked === undefined) return { missing: call }
  try {
    return { result: (await asked(...given)) ?? null }
  } catch (error) {
    return { error: `${error.name}: ${error.message}` }
  }
}

export async function answerQuestions(library) {
  objects.unshift(library)
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(JSON.parse(line))))
  }
  process.exit(0)
}
