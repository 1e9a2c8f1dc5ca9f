// What goes wrong between the product and a model API: every failure has its own code, its words are in the log and nowhere else.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { startFakeModel, step, textScript } from './harness/fake-model.mjs'
import { freePort, openaiAgent, startRejoin } from './harness/server.mjs'
import { session } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { eventually } from './harness/wait.mjs'
import { upstream } from './harness/upstream.mjs'

const KEY = 'sk-live-0123456789abcdefghijkl'
const HIDDEN = 'words-of-the-provider'
const LEASE_MS = 1500

let model
let server
let elsewhere
let log = ''
const strayed = []
before(async () => {
  model = await startFakeModel()
  elsewhere = upstream((req, res) => {
    strayed.push(req.headers)
    res.end()
  })
  elsewhere.listen(0, '127.0.0.1')
  await once(elsewhere, 'listening')
  const at = (baseUrl) => ({ ...openaiAgent(model).default, apiKey: 'KEY', baseUrl })
  const agents = {
    default: at(model.baseUrl),
    refused: at(`http://127.0.0.1:${await freePort()}/v1`),
    nowhere: at('http://no-such-host.invalid/v1'),
    tls: at(`https://127.0.0.1:${model.port}/v1`),
  }
  server = await startRejoin({ agents, vars: { KEY, RECOVERY: 'fail', LEASE_MS, HEARTBEAT_MS: 300 }, logLevel: 'log', onOutput: (text) => (log += text) })
})
after(async () => {
  await server?.close()
  await model?.close()
  elsewhere?.close()
})

const words = (message, more = {}) => ({ error: { message: `${message} ${HIDDEN}, key ${KEY}`, ...more } })
const partial = (...rest) => [...textScript(['Hello'], { finish: null }), ...rest]
const elsewhereUrl = () => `http://127.0.0.1:${elsewhere.address().port}/v1/chat/completions`
const html = `<!doctype html><title>${HIDDEN}</title>${KEY}`
const htmlType = { 'content-type': 'text/html' }

// [name, steps (or a function that makes them), code, retryable, what the log line says, {said, agent}]
const faults = [
  ['a refused key', [step.status(401, words('Incorrect API key provided', { code: 'invalid_api_key' }))], 'provider_auth', false, `401: invalid_api_key: Incorrect API key provided ${HIDDEN}`],
  ['a key without the right', [step.status(403, words('no right'))], 'provider_auth', false, `403: no right ${HIDDEN}`],
  ['a rate limit', [step.status(429, words('slow down', { type: 'rate_limit_error' }), { 'retry-after': '7' })], 'provider_rate_limited', true, HIDDEN],
  ['no credit', [step.status(429, words('You exceeded your current quota', { type: 'insufficient_quota' }))], 'provider_quota', false, HIDDEN],
  ['no payment', [step.status(402, words('pay'))], 'provider_quota', false, HIDDEN],
  ['an overload', [step.status(503, words('overloaded'))], 'provider_overloaded', true, HIDDEN],
  ['a conversation that is too long', [step.status(400, words('m', { code: 'context_length_exceeded' }))], 'provider_context_length', false, HIDDEN],
  ['a content filter', [step.status(400, words('m', { code: 'content_filter' }))], 'provider_content_filter', false, HIDDEN],
  ['a request that is not accepted', [step.status(400, words('m', { type: 'invalid_request_error' }))], 'provider_bad_request', false, HIDDEN],
  ['an unknown model', [step.status(404, words('m', { code: 'model_not_found' }))], 'provider_bad_request', false, HIDDEN],
  ['a fault of the API', [step.status(500, words('m'))], 'provider_unavailable', true, HIDDEN],
  ['a gateway’s page', [step.status(502, html, htmlType)], 'provider_unavailable', true, `502: an HTML page: <!doctype html><title>${HIDDEN}</title>`],
  ['HTML instead of a stream', [step.status(200, html, htmlType)], 'provider_stream_invalid', true, `an HTML page: <!doctype html><title>${HIDDEN}</title>`],
  ['HTML that calls itself a stream', [step.raw(html), step.end()], 'provider_stream_invalid', true, `an HTML page: <!doctype html><title>${HIDDEN}</title>`],
  ['JSON instead of a stream', [step.status(200, words('m'))], 'provider_error', true, HIDDEN],
  ['a redirect', () => [step.status(307, '', { location: elsewhereUrl() })], 'provider_bad_request', false, '307'],
  ['a permanent redirect', () => [step.status(301, '', { location: elsewhereUrl() })], 'provider_bad_request', false, '301'],
  ['a connection that is refused', [], 'provider_unavailable', true, 'provider_unavailable: ', { agent: 'refused' }],
  ['a name that nobody has', [], 'provider_unavailable', true, 'provider_unavailable: ', { agent: 'nowhere' }],
  ['a server without TLS', [], 'provider_unavailable', true, 'provider_unavailable: ', { agent: 'tls' }],
  ['an end before the first event', [step.end()], 'provider_stream_ended', true, 'without a finish reason'],
  ['an end in mid-stream', partial(step.end()), 'provider_stream_ended', true, 'the body ended without a finish reason', { said: 'Hello' }],
  ['an end in the middle of an event', partial(step.raw('data: {"choices":[{"del'), step.end()), 'provider_stream_ended', true, 'the body ended without a finish reason', { said: 'Hello' }],
  ['[DONE] and nothing before it', [step.done()], 'provider_stream_ended', true, 'done without a finish reason'],
  ['[DONE] behind half a call', textScript([], { tool: { id: 'c', name: 'f', arguments: ['{"a":'] }, finish: null }).concat(step.done()), 'provider_stream_ended', true, 'done without a finish reason'],
  ['a field `error`', partial(step.raw(`error: ${JSON.stringify({ code: 500, message: `broke ${HIDDEN}, key ${KEY}` })}\n\n`)), 'provider_error', true, `broke ${HIDDEN}`, { said: 'Hello' }],
  ['a context that is full, as a fault of the API', [step.status(500, words('Context size has been exceeded.', { code: 500 }))], 'provider_context_length', false, HIDDEN],
  ['a context that is full, in the stream', partial(step.raw(`error: ${JSON.stringify({ code: 400, message: `${HIDDEN}, key ${KEY}`, type: 'exceed_context_size_error' })}\n\n`)), 'provider_context_length', false, HIDDEN, { said: 'Hello' }],
  ['bytes that are not UTF-8', partial(step.raw(Buffer.from([...Buffer.from('data: {"choices":[{"delta":{"content":"'), 0xff, 0xc3, 0x28, ...Buffer.from('"}}]}\n\n')]))), 'provider_stream_invalid', true, 'not UTF-8', { said: 'Hello' }],
  ['17 MiB in one event', () => partial(step.event('x'.repeat(17 << 20))), 'provider_stream_invalid', true, 'larger than', { said: 'Hello' }],
  ['17 MiB in one line that no event has', () => partial(step.raw('x'.repeat(17 << 20))), 'provider_stream_invalid', true, 'larger than', { said: 'Hello' }],
  ['an event that is no JSON', partial(step.event(`{"choices": ${HIDDEN} ${KEY}`)), 'provider_stream_invalid', true, HIDDEN, { said: 'Hello' }],
  ['an error in the stream', partial(step.event(words('broke'))), 'provider_error', true, `broke ${HIDDEN}`, { said: 'Hello' }],
  ['a rate limit in the stream', partial(step.event(words('slow', { code: 429 }))), 'provider_rate_limited', true, HIDDEN, { said: 'Hello' }],
  ['silence', partial(step.silence()), 'provider_timeout', true, '', { said: 'Hello' }],
]

describe('a model API that fails:', () => {
  for (const [name, made, code, retryable, logged, { said = '', agent = 'default' } = {}] of faults) {
    test(name, async () => {
      const s = session(server)
      const steps = typeof made === 'function' ? made() : made
      if (steps.length) model.enqueue(steps)
      const sent = await s.send('fault', { agent })
      const wire = await s.sse(0)
      const got = await sent.collect()
      await assertChatBody(got)
      assert.equal(chunksOf(got.frames).at(-1).type, 'error')
      const raw = await wire.collect()
      assert.equal(assertWireBody(raw).terminal.data.errorDetail.code, code)
      const { body } = await s.snapshot()
      assert.deepEqual([body.errorDetail.code, body.errorDetail.category, body.errorDetail.retryable], [code, 'provider', retryable])
      assert.equal(textOf(body.messages.find((m) => m.role === 'assistant')), said)

      const again = await (await s.resume(0)).collect()
      const shown = [got.text, raw.text, again.text, JSON.stringify([body, await s.info(), await s.log()])]
      for (const text of shown) for (const hidden of [HIDDEN, KEY, KEY.slice(3), '127.0.0.1', '.invalid']) assert.ok(!text.includes(hidden), `${hidden} in ${text}`)

      const own = () => log.split('\n').filter((line) => line.includes(s.id))
      await eventually(() => own().some((line) => line.includes(logged)), { ms: 5000, what: `"${logged}" in the log of ${s.id}` })
      assert.ok(!log.includes(KEY) && !log.includes(KEY.slice(3)), 'no key in the log')
      assert.deepEqual(strayed, [], 'nothing, and no key, went to another host')
    })
  }
})

test('one byte at a time, for longer than the lease, is slow and alive while its lines end within the lease', async () => {
  const s = session(server)
  const slowly = { then: (resolve) => setTimeout(resolve, LEASE_MS / 20) }
  const bytes = [...'data: {}\n\n'.repeat(4)].flatMap((byte) => [step.waitFor(slowly), step.raw(byte)])
  model.enqueue([...bytes, ...textScript(['late'])])
  const got = await s.ask('slowly')
  await assertChatBody(got)
  assert.equal((await foldAll('7-latest', got.raw)).text, 'late')
})

test('10 MB in one event arrive whole, and the session goes on, without a history beyond its bound', async () => {
  const s = session(server)
  const large = 'grüße '.repeat(10_000_000 / 7)
  model.enqueue(textScript(['a', large, 'z']))
  const got = await s.ask('large')
  const folded = await foldAll('7-latest', got.raw)
  const { body } = await s.snapshot()
  assert.equal(folded.status, 'ready', JSON.stringify(body?.errorDetail))
  assert.ok(folded.text === `a${large}z`, `${folded.text.length} characters`)
  assert.ok(textOf(body.messages.at(-1)) === folded.text)
  model.enqueue(textScript(['fine']))
  const next = await s.ask('and now?')
  assert.equal((await foldAll('7-latest', next.raw)).text, 'fine')
  assert.deepEqual(model.requests.at(-1).body.messages, [{ role: 'user', content: 'and now?' }])
})
