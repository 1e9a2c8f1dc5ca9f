// A producer outside: opens runs of a session, appends to them and ends them, over HTTP.
import assert from 'node:assert/strict'
import http from 'node:http'
import { assertWireBody } from './assertions.mjs'
import { call, userMessage } from './session.mjs'
import { LONG, within } from './wait.mjs'

export const ui = {
  step: { type: 'start-step' },
  stepEnd: { type: 'finish-step' },
  start: (id = 't') => ({ type: 'text-start', id }),
  text: (delta, id = 't') => ({ type: 'text-delta', id, delta }),
  end: (id = 't') => ({ type: 'text-end', id }),
  finish: { type: 'finish', finishReason: 'stop' },
  call: (toolCallId, toolName = 'weather', input = { city: 'Bern' }) => ({ type: 'tool-input-available', toolCallId, toolName, input }),
}
/** The chunks of a reply that says these words in one step. */
export const says = (...words) => [ui.step, ui.start(), ...words.map((word) => ui.text(word)), ui.end(), ui.stepEnd, ui.finish]

/** The producer of `s`: `open(json)` answers a `PushedRun`; `ask(json)` the bare answer. */
export function producer(s) {
  const ask = (json) => call(`${s.own}/runs`, { json })
  const at = (claim) => new PushedRun(s, claim)
  return {
    ask,
    at,
    async open(json = {}) {
      const answer = await ask({ vocabulary: 'ui', ...json })
      if (answer.status >= 300) throw new Error(`POST /runs: ${answer.status} ${answer.text}`)
      return at(answer.body)
    },
  }
}

/** A claim of a run. `next` counts what was taken; `epoch` and `next` may be changed by a test. */
export class PushedRun {
  constructor(s, claim) {
    this.claim = claim
    this.id = claim.runId
    this.epoch = claim.epoch
    this.next = claim.expected ?? 0
    this.url = `${s.own}/runs/${encodeURIComponent(claim.runId)}`
  }

  headers(seq = this.next) {
    return { 'producer-epoch': String(this.epoch), ...(seq === null ? {} : { 'producer-seq': String(seq) }) }
  }

  /** Any deed with this body; counts on when it is taken. */
  async deed(name, json, { seq = this.next } = {}) {
    const answer = await call(`${this.url}/${name}`, { json, headers: this.headers(seq) })
    if (answer.status === 200 && answer.body.expected !== undefined) this.next = answer.body.expected
    return answer
  }

  append = (chunks, options) => this.deed('chunks', chunks, options)
  /** Chunks and a control in one request: `{end: {…}}` and the like. */
  last = (chunks, control, options) => this.deed('chunks', { chunks, ...control }, options)
  commit = (json = {}, options) => this.deed('commit', json, options)
  renew = (json = {}) => call(`${this.url}/renew`, { json, headers: this.headers(null) })
  end = (json = { status: 'completed' }, options) => this.deed('end', json, options)
  fail = (error = 'it broke', options) => this.deed('fail', { error }, options)
  pause = (json = { kind: 'client_tool' }, options) => this.deed('pause', json, options)
  control = (query = '') => call(`${this.url}/control${query}`)

  /** A body of lines that stays open: `write(chunk)`, `raw(text)`, `end()`, `break()`; `answer` is what comes. */
  lines({ seq = this.next } = {}) {
    const request = http.request(`${this.url}/chunks`, {
      method: 'POST',
      agent: false,
      headers: { 'content-type': 'application/x-ndjson', ...this.headers(seq) },
    })
    const answer = new Promise((resolve, reject) => {
      request.once('error', reject)
      request.once('response', async (response) => {
        let text = ''
        for await (const part of response.setEncoding('utf8')) text += part
        const body = JSON.parse(text)
        if (response.statusCode === 200) this.next = body.expected
        resolve({ status: response.statusCode, text, body })
      })
    })
    answer.catch(() => {})
    request.flushHeaders()
    return {
      raw: (text) => void request.write(text),
      write: (...chunks) => void request.write(chunks.map((chunk) => `${JSON.stringify(chunk)}\n`).join('')),
      end: () => {
        request.end()
        return within(answer, LONG, 'the answer to the lines')
      },
      answer: () => within(answer, LONG, 'the answer to the lines'),
      break: () => void request.destroy(),
    }
  }
}

/** A producer of this session, and a run that answers one message. */
export async function begin(s, json = {}) {
  const p = producer(s)
  const run = await p.open({ message: userMessage('hello'), ...json })
  return { s, p, run }
}

export const ok = (answer, what) => assert.equal(answer.status, 200, `${what ?? ''} ${answer.text}`)
export const wireEnd = async (s) => assertWireBody(await (await s.sse(0)).collect()).terminal
export const replyOf = async (s) => (await s.snapshot()).body.messages.at(-1)
