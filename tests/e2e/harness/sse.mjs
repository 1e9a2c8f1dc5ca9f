// Opens one streaming response over node:http and reads it frame by frame, under the test's full control of the socket.
import http from 'node:http'
import { LONG, within } from './wait.mjs'
import { sseParser, isData } from './sse-parser.mjs'

export { chunksOf, isData, isDone, parseSse } from './sse-parser.mjs'

/**
 * Sends a request on a socket of its own and answers a `SseStream` as soon as the headers are here.
 * `json` is sent as a JSON body (and makes the request a POST). `body`: text or bytes, or a list of them and of gates to wait for.
 */
export async function openSse(url, { method, headers = {}, body, json, ms = LONG } = {}) {
  const payload = json === undefined ? body : JSON.stringify(json)
  const request = http.request(url, {
    method: method ?? (payload === undefined ? 'GET' : 'POST'),
    agent: false,
    headers: {
      ...(json === undefined ? {} : { 'content-type': 'application/json' }),
      ...(payload === undefined || Array.isArray(payload) ? {} : { 'content-length': Buffer.byteLength(payload) }),
      ...headers,
    },
  })
  const opened = new Promise((resolve, reject) => {
    request.once('response', resolve)
    request.once('error', reject)
  })
  if (Array.isArray(payload)) writeAll(request, payload)
  else request.end(payload)
  try {
    return new SseStream(request, await within(opened, ms, `the headers of ${request.method} ${url}`))
  } catch (error) {
    request.destroy()
    throw error
  }
}

async function writeAll(request, pieces) {
  request.flushHeaders()
  for (const piece of pieces) {
    if (typeof piece?.then === 'function') await piece
    else request.write(piece)
  }
  request.end()
}

/** `openSse` to the end: `{status, headers, frames, ended, raw, …}`. */
export async function readSse(url, options) {
  const stream = await openSse(url, options)
  return { status: stream.status, headers: stream.headers, ...(await stream.collect(options?.ms)) }
}

export class SseStream {
  frames = []
  /** null while open; then 'clean' (the body's proper end), 'broken' (it broke), or 'cut' (we left). */
  ended = null
  error = null
  #request
  #response
  #parser = sseParser()
  #raw = []
  #read = 0
  #wake = null
  #left = false

  constructor(request, response) {
    this.#request = request
    this.#response = response
    this.status = response.statusCode
    this.headers = response.headers
    request.on('error', (error) => this.#end('broken', error))
    response.on('data', (bytes) => {
      this.#raw.push(bytes)
      this.frames.push(...this.#parser.push(bytes))
      this.#notify()
    })
    response.on('end', () => this.#end(response.complete ? 'clean' : 'broken'))
    response.on('error', (error) => this.#end('broken', error))
    response.on('close', () => this.#end('broken'))
  }

  #end(how, error = null) {
    if (this.ended) return
    this.ended = this.#left ? 'cut' : how
    this.error = this.ended === 'broken' ? (error ?? new Error('the body broke')) : null
    this.#notify()
  }

  #notify() {
    this.#wake?.resolve()
    this.#wake = null
  }

  #changed() {
    this.#wake ??= Promise.withResolvers()
    return this.#wake.promise
  }

  /** Every byte of the body so far. */
  get raw() {
    return Buffer.concat(this.#raw)
  }

  /** What follows the last complete frame; null when nothing does. */
  get rest() {
    return this.#parser.rest()
  }

  /** The next frame, comments included; undefined once the body has ended. */
  async next(ms = LONG) {
    while (this.#read >= this.frames.length && !this.ended) await within(this.#changed(), ms, 'the next frame')
    return this.frames[this.#read++]
  }

  async *[Symbol.asyncIterator]() {
    for (let frame; (frame = await this.next()); ) yield frame
  }

  /** Reads on until a frame satisfies `test`, and answers it; fails if the body ends first. */
  async until(test, ms = LONG) {
    for (let frame; (frame = await this.next(ms)); ) if (test(frame)) return frame
    throw new Error(`the body ended (${this.ended}) before the awaited frame; frames: ${JSON.stringify(this.frames)}`)
  }

  /** Reads on until `count` data frames are here in all; answers those read. */
  async take(count, ms = LONG) {
    while (this.frames.filter(isData).length < count && !this.ended) await within(this.#changed(), ms, `frame ${count}`)
    return this.frames.filter(isData).slice(0, count)
  }

  /** Waits for the end of the body. */
  async collect(ms = LONG) {
    while (!this.ended) await within(this.#changed(), ms, 'the end of the body')
    const { frames, ended, error, raw, rest } = this
    return { frames, ended, error, raw, rest, text: raw.toString() }
  }

  /** Leaves: closes the socket (FIN). */
  cut() {
    this.#left = true
    this.#request.destroy()
    return this
  }

  /** Leaves with a TCP reset, as a crashed client does (not possible after `halfClose`). */
  reset() {
    this.#left = true
    this.#request.socket.resetAndDestroy()
    return this
  }

  /** Sends FIN and goes on reading. */
  halfClose() {
    this.#request.socket.end()
    return this
  }

  /** Stops reading: the kernel's buffers fill, then the server meets back-pressure. */
  stall() {
    this.#response.pause()
    this.#request.socket.pause()
    return this
  }

  unstall() {
    this.#request.socket.resume()
    this.#response.resume()
    return this
  }
}
