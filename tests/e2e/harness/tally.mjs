// A reader of /sse for tests of scale: it checks the sequences as they come, keeps only its place, and leaves when it is told to.
import http from 'node:http'
import { LONG, within } from './wait.mjs'

/**
 * Follows `s` (a session) from a cursor; answers once the headers are here. `agent`: how connections are made (one of its own each).
 * A stream from many of them costs the test little: a frame is looked at as far as its id, and its bytes are dropped.
 */
export function openTally(s, from = 0, { onChunk, ms = LONG } = {}) {
  const request = http.get(`${s.own}/sse?fromSequence=${from}`, { agent: false })
  const opened = new Promise((resolve, reject) => {
    request.once('response', (response) => {
      if (response.statusCode === 200) return resolve(new Tally(request, response, from, onChunk))
      response.resume()
      reject(new Error(`${response.statusCode} for a reader of ${s.id}`))
    })
    request.once('error', reject)
  })
  return within(opened, ms, 'the headers of a reader')
}

export class Tally {
  /** Bytes of the body. */
  bytes = 0
  /** Frames of chunks. */
  chunks = 0
  /** Frames that are no chunks and no comments: `{event, data}`. */
  events = []
  /** The first thing that was wrong; null as long as every sequence follows the one before. */
  fault = null
  /** null while open; then 'clean', 'broken', or 'cut' (we left). */
  ended = null
  #request
  #response
  #onChunk
  #pending = Buffer.alloc(0)
  #scanned = 0
  #left = false
  #waiting = []

  constructor(request, response, from, onChunk) {
    this.cursor = from
    this.#request = request
    this.#response = response
    this.#onChunk = onChunk
    const end = (how) => this.#end(how)
    request.on('error', () => end('broken'))
    response.on('data', (bytes) => this.#take(bytes))
    response.on('end', () => end(response.complete ? 'clean' : 'broken'))
    response.on('error', () => end('broken'))
    response.on('close', () => end('broken'))
  }

  #take(bytes) {
    this.bytes += bytes.length
    const held = this.#pending.length ? Buffer.concat([this.#pending, bytes]) : bytes
    let start = 0
    for (let end; (end = held.indexOf('\n\n', Math.max(start, this.#scanned))) >= 0; start = end + 2) this.#frame(held, start, end)
    this.#pending = held.subarray(start)
    this.#scanned = Math.max(0, this.#pending.length - 1)
    this.#wake()
  }

  #frame(held, start, end) {
    this.#scanned = 0
    const head = held.toString('latin1', start, Math.min(end, start + 48))
    const chunk = /^event: chunk\nid: (\d+)\n/.exec(head)
    if (chunk) {
      this.chunks += 1
      if (Number(chunk[1]) !== this.cursor + 1) this.fault ??= `sequence ${chunk[1]} after ${this.cursor}`
      this.cursor = Number(chunk[1])
      this.#onChunk?.(this.cursor, performance.now())
      return
    }
    const text = held.toString('utf8', start, end)
    const event = /^event: ([\w-]+)\n/.exec(text)?.[1]
    if (event) this.events.push({ event, data: JSON.parse(/^data: (.*)$/m.exec(text)[1]) })
    else if (!text.startsWith(':')) this.fault ??= `a frame that is nothing: ${text.slice(0, 100)}`
  }

  #end(how) {
    if (this.ended) return
    this.ended = this.#left ? 'cut' : how
    this.#wake()
  }

  #wake() {
    this.#waiting = this.#waiting.filter(({ test, resolve }) => !(this.ended || test()) || resolve())
  }

  async #until(test, ms, what) {
    if (!this.ended && !test()) await within(new Promise((resolve) => this.#waiting.push({ test, resolve })), ms, what)
  }

  /** Reads on until a chunk of this sequence has come. */
  async until(sequence, ms = LONG) {
    await this.#until(() => this.cursor >= sequence, ms, `sequence ${sequence} (at ${this.cursor})`)
    if (this.cursor < sequence) throw new Error(`the body ended (${this.ended}) at ${this.cursor}, before ${sequence}`)
  }

  /** Reads on until history is behind. */
  joined(ms = LONG) {
    return this.#until(() => this.events.some(({ event }) => event === 'caught-up'), ms, 'the end of history')
  }

  /** Reads on until so many bytes have come, or the body has ended. */
  received(bytes, ms = LONG) {
    return this.#until(() => this.bytes >= bytes, ms, `byte ${bytes} (at ${this.bytes})`)
  }

  /** Waits for the end of the body. */
  async collect(ms = LONG) {
    await this.#until(() => false, ms, `the end of a body (at ${this.cursor})`)
    return this
  }

  /** Leaves with a FIN. */
  cut() {
    this.#left = true
    this.#request.destroy()
  }

  /** Leaves with a TCP reset. */
  reset() {
    this.#left = true
    this.#request.socket.resetAndDestroy()
  }

  /** Stops reading the socket. */
  stall() {
    this.#response.pause()
    this.#request.socket.pause()
  }

  unstall() {
    this.#request.socket.resume()
    this.#response.resume()
  }
}

/** Opens many, a few at a time. `open(index)` opens one. */
export async function openMany(count, open, width = 50) {
  const all = []
  while (all.length < count) {
    const some = Math.min(width, count - all.length)
    all.push(...(await Promise.all(Array.from({ length: some }, (_, i) => open(all.length + i)))))
  }
  return all
}
