// A user's own chat route: a small Node server whose answers the real `ai` package writes, or a script of raw steps.
import { once } from 'node:events'
import { load } from './clients.mjs'
import { play } from './model-steps.mjs'
import { gate } from './wait.mjs'
import { upstream } from './upstream.mjs'

/**
 * Starts the server. The answer has
 *   `url`, `at(path)`                where it listens
 *   `script(text, answer, times?)`   answers requests whose last user text is `text`
 *   `requests`, `to(text)`           what arrived, in all and for that text
 * An answer is made by `reply` or `chunkScript`, or is a list of `step`s, or a function of `(response, request)`.
 * A request is `{path, headers, body, text, aborted}`; `aborted` resolves when the caller goes away before the answer's end.
 */
export async function startUiRoute() {
  const scripts = new Map()
  const requests = []
  const server = upstream(async (req, res) => {
    const request = await receive(req, res)
    requests.push(request)
    const script = scripts.get(request.text)
    if (!script || script.left-- <= 0) return void res.writeHead(500).end(`nothing is scripted for ${request.text}`)
    await script.answer(res, request)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const at = (path) => `http://127.0.0.1:${server.address().port}${path}`
  return {
    at,
    url: at('/api/chat'),
    requests,
    to: (text) => requests.filter((r) => r.text === text),
    script(text, answer, times = 1) {
      const run = Array.isArray(answer) ? (res, request) => play(answer, res, request) : (answer.answer ?? answer)
      scripts.set(text, { answer: run, left: times })
      return answer
    },
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** An answer that `execute(writer, request)` writes, sent by `createUIMessageStreamResponse` of that version; `keepAliveMs` is its option. */
export function reply(execute, { ai = '7-latest', keepAliveMs } = {}) {
  return {
    async answer(res, request) {
      const { createUIMessageStream, createUIMessageStreamResponse } = await load(ai)
      const stream = createUIMessageStream({ execute: ({ writer }) => execute(writer, request), onError: (error) => error.message })
      const response = createUIMessageStreamResponse({ stream, keepAliveMs })
      res.writeHead(response.status, Object.fromEntries(response.headers))
      res.flushHeaders()
      const reader = response.body.getReader()
      res.on('close', () => reader.cancel().catch(() => {}))
      for (let next; !(next = await reader.read()).done; ) res.write(next.value)
      res.end()
    },
  }
}

/** These chunks, each behind a gate of its own, and the end behind one more: `open(n)` lets the first n out, `open()` everything. */
export function chunkScript(chunks, options) {
  const gates = [...chunks, 'the end'].map(() => gate())
  const made = reply(async (writer) => {
    for (const [index, chunk] of chunks.entries()) {
      await gates[index]
      writer.write(chunk)
    }
    await gates.at(-1)
  }, options)
  return Object.assign(made, { open: (count = gates.length) => gates.slice(0, count).forEach((g) => g.open()) })
}

/** The chunks of a reply that says these words in one text. */
export const saying = (...words) => [
  { type: 'start' },
  { type: 'start-step' },
  { type: 'text-start', id: 't' },
  ...words.map((delta) => ({ type: 'text-delta', id: 't', delta })),
  { type: 'text-end', id: 't' },
  { type: 'finish-step' },
  { type: 'finish', finishReason: 'stop' },
]

/** A reply with everything that the oldest client knows: two steps, every kind of part, metadata in pieces, a tool that waits for an approval. */
export const EVERYTHING = [
  { type: 'start', messageMetadata: { model: 'm', timing: { began: 1 } } },
  { type: 'start-step' },
  { type: 'reasoning-start', id: 'r', providerMetadata: { p: { k: 1 } } },
  { type: 'reasoning-delta', id: 'r', delta: 'hm, ' },
  { type: 'reasoning-delta', id: 'r', delta: 'so' },
  { type: 'reasoning-end', id: 'r', providerMetadata: { p: { signature: 's' } } },
  { type: 'text-start', id: 't' },
  { type: 'text-delta', id: 't', delta: 'Grüße ' },
  { type: 'text-delta', id: 't', delta: '👋🏽' },
  { type: 'text-end', id: 't' },
  { type: 'source-url', sourceId: 's1', url: 'https://example.org/a', title: 'A' },
  { type: 'source-document', sourceId: 's2', mediaType: 'application/pdf', title: 'B', filename: 'b.pdf' },
  { type: 'file', mediaType: 'image/png', url: 'data:image/png;base64,AAAA' },
  { type: 'data-weather', id: 'w', data: { status: 'loading' } },
  { type: 'data-progress', data: { percent: 10 }, transient: true },
  { type: 'tool-input-start', toolCallId: 'c1', toolName: 'weather' },
  { type: 'tool-input-delta', toolCallId: 'c1', inputTextDelta: '{"city":' },
  { type: 'tool-input-delta', toolCallId: 'c1', inputTextDelta: '"Bern"}' },
  { type: 'tool-input-available', toolCallId: 'c1', toolName: 'weather', input: { city: 'Bern' } },
  { type: 'tool-output-available', toolCallId: 'c1', output: { t: 1 }, preliminary: true },
  { type: 'tool-output-available', toolCallId: 'c1', output: { t: 2 } },
  { type: 'tool-input-available', toolCallId: 'c2', toolName: 'search', input: {}, dynamic: true },
  { type: 'tool-output-error', toolCallId: 'c2', errorText: 'no net', dynamic: true },
  { type: 'finish-step' },
  { type: 'start-step' },
  { type: 'data-weather', id: 'w', data: { status: 'done' } },
  { type: 'message-metadata', messageMetadata: { timing: { tokens: 7 } } },
  { type: 'text-start', id: 't' },
  { type: 'text-delta', id: 't', delta: 'May I?' },
  { type: 'text-end', id: 't' },
  { type: 'tool-input-available', toolCallId: 'c3', toolName: 'pay', input: { amount: 5 } },
  { type: 'tool-approval-request', approvalId: 'a1', toolCallId: 'c3' },
  { type: 'finish-step' },
  { type: 'finish', finishReason: 'tool-calls', messageMetadata: { timing: { ended: 9 } } },
]

async function receive(req, res) {
  const parts = []
  for await (const part of req) parts.push(part)
  const aborted = Promise.withResolvers()
  const body = parts.length ? JSON.parse(Buffer.concat(parts).toString()) : {}
  const last = (body.messages ?? []).findLast((m) => m.role === 'user')
  const text = (last?.parts ?? []).map((p) => p.text ?? '').join('')
  const request = { path: req.url, headers: req.headers, body, text, gone: false, cut: false, aborted: aborted.promise }
  res.on('close', () => {
    if (res.writableFinished || request.cut) return
    request.gone = true
    aborted.resolve()
  })
  return request
}
