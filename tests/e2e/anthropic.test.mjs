// The Messages API through the product: what it said is what every client shows, however it ends and whoever reloads.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, makeChat, reasoningOf, textOf, validateMessages } from './harness/clients.mjs'
import { gate, step } from './harness/fake-model.mjs'
import { blockScript, errorEvent, messageOf, replayMessages } from './harness/messages-api.mjs'
import { messagesRecordings } from './harness/recordings.mjs'
import { anthropicAgent } from './harness/server.mjs'
import { userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const SECRET = 'sk-ant-do-not-tell'
const AT_ONCE = 2000
const set = stage({ agents: (model) => anthropicAgent(model, { apiKey: 'KEY' }), vars: { KEY: SECRET, RECOVERY: 'fail', LEASE_MS: 1500, HEARTBEAT_MS: 300 } })

const calls = (message) =>
  message.parts
    .filter((p) => p.toolCallId)
    .map((p) => ({ name: p.toolName ?? p.type.slice(5), input: p.input, byApi: p.providerExecuted === true }))
const sourcesOf = (message) => message.parts.filter((p) => p.type === 'source-url').map((p) => p.url)

function assertSays(message, said, what) {
  assert.equal(textOf(message), said.text, what)
  assert.equal(reasoningOf(message), said.reasoning, what)
  assert.deepEqual(calls(message), said.tools, what)
  assert.deepEqual(sourcesOf(message).sort(), said.sources.toSorted(), what)
  const signatures = message.parts.filter((p) => p.type === 'reasoning').map((p) => p.providerMetadata?.anthropic?.signature)
  assert.deepEqual(signatures, said.signatures, what)
}

const recordings = messagesRecordings()
describe('recordings', { skip: recordings.length === 0 && 'the recordings are not at hand' }, () => {
  for (const { name, lines } of recordings) {
    test(`${name}: every version shows what was recorded`, async () => {
      const said = messageOf(lines)
      const s = set.session()
      set.model.enqueue(replayMessages(lines))
      const got = await s.ask(name)
      await assertChatBody(got)
      assert.equal(chunksOf(got.frames).at(-1).finishReason, said.finish)
      const { body } = await s.snapshot()
      for (const version of VERSIONS) {
        const { reply, status, error, finishes } = await foldAll(version, got.raw, [userMessage(name)])
        assert.equal(status, 'ready', `ai ${version}: ${error?.message}`)
        assertSays(reply, said, `ai ${version}`)
        assert.equal(finishes.at(-1)?.finishReason, said.finish, `ai ${version}`)
        await validateMessages(version, body.messages)
      }
      assertSays(body.messages.at(-1), said, 'the snapshot')
      assert.equal(chunksOf(got.frames).at(-1).messageMetadata.usage.outputTokens, said.usage.output_tokens)
    })

    test(`${name}: reloads in the middle with a stock client`, async () => {
      const said = messageOf(lines)
      const places = [1, 2, lines.length >> 1, lines.length - 2]
      for (const [nth, at] of places.entries()) {
        const s = set.session()
        const held = gate()
        set.model.enqueue(replayMessages(lines, { gates: { [at]: held } }))
        const sent = await s.send(name)
        await sent.next()
        sent.cut()
        const { body } = await s.snapshot('?seed=1')
        assert.equal(body.status, 'active')
        const version = VERSIONS[(nth + lines.length) % VERSIONS.length]
        const chat = await makeChat(version, { id: s.id, origin: set.server.origin, messages: body.messages })
        const resumed = chat.resumeStream()
        await chat.answered()
        held.open()
        await within(resumed)
        assert.equal(chat.status, 'ready', `ai ${version} at ${at}: ${chat.error?.message}`)
        assertSays(chat.messages.findLast((m) => m.role === 'assistant') ?? { parts: [] }, said, `ai ${version} at ${at}`)
      }
    })
  }
})

test('the request is one to the Messages API, with its version and the key in its header', async () => {
  const s = set.session()
  set.model.script(s.id, blockScript([{ type: 'text', text: 'yes' }]))
  await assertChatBody(await s.ask(s.id))
  const { path, headers } = set.model.requests.find((r) => r.lastUserText === s.id)
  assert.equal(path, '/v1/messages')
  assert.deepEqual([headers['anthropic-version'], headers['x-api-key'], headers.authorization], ['2023-06-01', SECRET, undefined])
})

test('a stop ends the request to the API at once, also while it is silent', async () => {
  const said = blockScript([{ type: 'text', text: 'Hello' }, step.silence()])
  for (const [steps, kept] of [[said, 'Hello'], [[step.silence()], '']]) {
    const s = set.session()
    set.model.enqueue(steps)
    const sent = await s.send(s.id)
    const request = await within((async () => {
      for (;;) {
        const next = await set.model.nextRequest()
        if (next.lastUserText === s.id) return next
      }
    })())
    if (kept) await sent.until((f) => f.data?.includes('"text-delta"'))
    if (kept) await sent.until((f) => f.data?.includes('"llo"'))
    assert.equal((await s.stop()).body.stopped, true)
    await within(request.aborted, AT_ONCE, 'the end of the request')
    const got = await sent.collect(AT_ONCE)
    await assertChatBody(got)
    assert.equal(chunksOf(got.frames).at(-1).type, 'abort')
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.find((m) => m.role === 'assistant'))], ['ended', kept])
  }
})

const error = (type, message = `${SECRET} and words of the provider`) => ({ type: 'error', error: { type, message } })
const partial = (...rest) => [...blockScript([{ type: 'text', text: 'Hello' }], { stop: null }), ...rest]
const faults = [
  ['401', [step.status(401, error('authentication_error'))], 'provider_auth', false],
  ['403', [step.status(403, error('permission_error'))], 'provider_auth', false],
  ['400', [step.status(400, error('invalid_request_error'))], 'provider_bad_request', false],
  ['404', [step.status(404, error('not_found_error'))], 'provider_bad_request', false],
  ['413', [step.status(413, error('request_too_large'))], 'provider_context_length', false],
  ['a prompt that is too long', [step.status(400, error('invalid_request_error', `prompt is too long: 210000 tokens > 200000 ${SECRET}`))], 'provider_context_length', false],
  ['no credit', [step.status(400, error('invalid_request_error', `Your credit balance is too low ${SECRET}`))], 'provider_quota', false],
  ['429', [step.status(429, error('rate_limit_error'), { 'retry-after': '3' })], 'provider_rate_limited', true],
  ['500', [step.status(500, error('api_error'))], 'provider_unavailable', true],
  ['529', [step.status(529, error('overloaded_error'))], 'provider_overloaded', true],
  ['an overload in mid-stream', partial(errorEvent('overloaded_error', SECRET)), 'provider_overloaded', true, 'Hello'],
  ['an error in mid-stream', partial(errorEvent('api_error', SECRET)), 'provider_error', true, 'Hello'],
  ['an error as the first event', [errorEvent('overloaded_error', SECRET)], 'provider_overloaded', true],
  ['a body that ends early', partial(step.end()), 'provider_stream_ended', true, 'Hello'],
  ['a connection that is cut', partial(step.reset()), 'provider_stream_ended', true, 'Hello'],
  ['silence', partial(step.silence()), 'provider_timeout', true, 'Hello'],
  ['silence before the first event', [step.silence()], 'provider_timeout', true],
]
describe('a failure is typed, keeps what was said and tells no secret:', () => {
  for (const [name, steps, code, retryable, said = ''] of faults) {
    test(name, async () => {
      const s = set.session()
      set.model.enqueue(steps)
      const sent = await s.send('fault')
      const wire = await s.sse(0)
      const got = await sent.collect()
      await assertChatBody(got)
      assert.equal(chunksOf(got.frames).at(-1).type, 'error')
      const raw = await wire.collect()
      assert.equal(assertWireBody(raw).terminal.event, 'fail')
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, body.errorDetail.code, body.errorDetail.retryable], ['failed', code, retryable])
      assert.equal(textOf(body.messages.find((m) => m.role === 'assistant')), said)
      for (const text of [got.text, raw.text, JSON.stringify(body), JSON.stringify(await s.info()), JSON.stringify(await s.log())]) {
        assert.ok(!text.includes(SECRET) && !text.includes('words of the provider'), text)
      }
      set.model.enqueue(blockScript([{ type: 'text', text: 'better' }]))
      await assertChatBody(await s.ask('again'))
      assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'better')
    })
  }
})
