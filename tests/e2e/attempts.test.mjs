// A model that fails in mid-answer and is asked again: what the first attempt said counts no more, for whoever reads and whenever.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody, idsOf } from './harness/assertions.mjs'
import { answerCall, assertAsStored, callingChat, callsOf } from './harness/calls.mjs'
import { REPLACES_ON_REPLAY, VERSIONS, foldAll, makeChat, textOf, validateMessages } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { blockScript, errorEvent } from './harness/messages-api.mjs'
import { call, userMessage } from './harness/session.mjs'
import { chunksOf, openSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { reply, startUiRoute } from './harness/ui-route.mjs'
import { eventually, within } from './harness/wait.mjs'

const route = await startUiRoute()
after(() => route.close())
const set = stage({
  vars: { MAX_ATTEMPTS: 3, RECOVERY: 'fail' },
  agents: (model) => ({
    default: { producer: 'openai', baseUrl: model.baseUrl, model: 'm' },
    anthropic: { producer: 'anthropic', baseUrl: model.baseUrl, model: 'm' },
    ui: { producer: 'ui', url: route.url },
  }),
})

const AWARE = { 'x-resume-from-sequence': '0' }
const broken = (...said) => [...textScript(said, { finish: null }), step.error('overloaded', 'overloaded')]
const texts = (frames) => chunksOf(frames).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')
const superseded = (frames) => chunksOf(frames).filter((c) => c.type === 'data-attempt-superseded').map((c) => c.data)
const seed = async (s) => (await s.snapshot('?seed=1')).body.messages

let count = 0
/** A text whose first answer says "Hel", holds, and fails; the second says "Hello", holds, and finishes. */
function failing() {
  const text = `retried ${count++}`
  const fails = gate()
  const ends = gate()
  set.model.script(text, broken('Hel', fails))
  set.model.script(text, textScript(['Hello', ends, '!']))
  return { text, fails, ends, requests: () => set.model.requests.filter((r) => r.lastUserText === text) }
}

describe('stock clients', { concurrency: true }, () => {
  for (const version of VERSIONS) {
    test(`ai ${version}: its response breaks, and it comes back to what counts`, async () => {
      const s = set.session()
      const { text, fails, ends } = failing()
      const chat = await makeChat(version, { id: s.id, origin: set.server.origin })
      const sent = chat.sendMessage({ text })
      await chat.until((c) => textOf(c.lastMessage) === 'Hel')
      fails.open()
      await within(sent)
      assert.equal(chat.status, 'error', 'the break is seen')
      // An older client puts a replay behind what it holds of the message, so its page drops that first.
      if (!REPLACES_ON_REPLAY.includes(version)) chat.messages = await seed(s)
      const resumed = chat.resumeStream()
      await chat.until((c) => textOf(c.lastMessage) === 'Hello')
      ends.open()
      await within(resumed)
      await assertAsStored(version, chat, s)
      assert.deepEqual([textOf(chat.lastMessage), chat.messages.length], ['Hello!', 2])
    })

    test(`ai ${version}: one that comes later sees only what counts`, async () => {
      const s = set.session()
      const { text, fails, ends, requests } = failing()
      const first = await s.send(text)
      await first.until((f) => f.data?.includes('Hel'))
      const early = await makeChat(version, { id: s.id, origin: set.server.origin, messages: await seed(s) })
      first.cut()
      fails.open()
      await eventually(() => requests().length === 2)
      const resumed = early.resumeStream()
      await early.until((c) => textOf(c.lastMessage) === 'Hello')
      ends.open()
      await within(resumed)
      await assertAsStored(version, early, s)
      const later = await makeChat(version, { id: s.id, origin: set.server.origin, messages: (await s.snapshot()).body.messages })
      await later.resumeStream()
      await assertAsStored(version, later, s, 'after the end')
      const replayed = await (await s.resume(0)).collect()
      assert.equal(textOf((await foldAll(version, replayed.raw, [userMessage(text)])).reply), 'Hello!')
    })
  }
})

describe('on the wire', { concurrency: true }, () => {
  test('a stock response breaks; an aware one is told once and goes on', async () => {
    const s = set.session()
    const { text, fails, ends } = failing()
    const stock = await s.send(text)
    await stock.until((f) => f.data?.includes('Hel'))
    const aware = await s.resume(0)
    const wire = await s.sse(0)
    await aware.until((f) => f.data?.includes('Hel'))
    fails.open()
    const got = await stock.collect()
    assert.equal(got.ended, 'broken')
    await assertChatBody(got)
    assert.equal(texts(got.frames), 'Hel')
    const cursor = idsOf(got.frames).at(-1)
    ends.open()
    const told = await aware.collect()
    await assertChatBody(told)
    const [event, ...more] = superseded(told.frames)
    assert.deepEqual([event.reason, event.step, more], ['attempt_superseded', 1, []])
    assert.notEqual(event.attemptId, event.supersededAttemptId)
    assert.ok(chunksOf(told.frames).every((c) => c.type.startsWith('data-') || !('attemptId' in c)))
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1)), body.messages.length], ['ended', 'Hello!', 2])
    for (const version of VERSIONS) await validateMessages(version, body.messages)

    const past = await (await s.resume(cursor)).collect()
    await assertChatBody(past)
    assert.deepEqual([texts(past.frames), superseded(past.frames)], ['Hello!', [event]], 'a cursor behind what no longer counts')
    const before = await (await s.resume(1)).collect()
    assert.deepEqual([texts(before.frames), superseded(before.frames)], ['Hello!', []], 'a cursor before it')
    const eventSource = await (await s.resume(undefined, { headers: { 'last-event-id': String(cursor) } })).collect()
    assert.deepEqual(superseded(eventSource.frames), [event], 'a cursor in the other header is told as well')
    const prefix = await s.resume(cursor, { messageId: body.messages.at(-1).id, prefix: true })
    assert.equal(texts((await prefix.collect()).frames), 'Hello!')

    const { chunks, terminal } = assertWireBody(await wire.collect())
    assert.equal(terminal.data.status, 'completed')
    const starts = chunks.filter((c) => c.chunk.type === 'step_start')
    assert.deepEqual(starts.map((c) => c.chunk.attemptId), [event.supersededAttemptId, event.attemptId])
    assert.equal(starts[0].chunk.step, starts[1].chunk.step)
    assert.equal(chunks.filter((c) => c.chunk.type === 'text-delta').length, 3, 'the wire keeps everything')
  })

  test('a model that has said nothing is asked again when it says so, and nobody notices', async () => {
    const s = set.session()
    const text = `wait ${count++}`
    let at
    const stamp = { then: (resolve) => resolve((at = performance.now())) }
    set.model.script(text, [step.status(429, { error: { message: 'slow down' } }, { 'retry-after': '2' })])
    set.model.script(text, [step.waitFor(stamp), ...textScript(['late'])])
    const begun = performance.now()
    const got = await s.ask(text)
    await assertChatBody(got)
    assert.deepEqual([got.ended, texts(got.frames)], ['clean', 'late'])
    assert.ok(at - begun >= 1900, `asked again after ${at - begun} ms`)
    assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'late')
  })

  test('an attempt too many fails with its cause, and keeps what the last one said', async () => {
    const s = set.session()
    const text = `never ${count++}`
    for (const said of ['one', 'two', 'three']) set.model.script(text, broken(said))
    const aware = await s.ask(text, { headers: AWARE })
    await assertChatBody(aware)
    assert.equal(chunksOf(aware.frames).at(-1).type, 'error')
    assert.equal(superseded(aware.frames).length, 2)
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.errorDetail.retryable, textOf(body.messages.at(-1))], ['failed', true, 'three'])
    assert.equal(set.model.requests.filter((r) => r.lastUserText === text).length, 3)
    const refused = await (await s.resume(0)).collect()
    assert.equal(JSON.parse(refused.text).error, 'stream_failed')
  })

  test('a failure that would come again is not tried again', async () => {
    const s = set.session()
    const text = `refused ${count++}`
    set.model.script(text, [step.status(401, { error: { message: 'no' } })])
    await s.ask(text)
    assert.equal(set.model.requests.filter((r) => r.lastUserText === text).length, 1)
    assert.equal((await s.snapshot()).body.errorDetail.code, 'provider_auth')
  })

  test('a route is never asked twice', async () => {
    const s = set.session()
    const text = `route ${count++}`
    route.script(text, [step.event({ type: 'start' }), step.event({ type: 'text-start', id: 't' }), step.event({ type: 'text-delta', id: 't', delta: 'half' }), step.destroy()], 5)
    const got = await s.ask(text, { agent: 'ui' })
    await assertChatBody(got)
    assert.equal(route.to(text).length, 1)
    assert.deepEqual([(await s.snapshot()).body.status, textOf((await s.snapshot()).body.messages.at(-1))], ['failed', 'half'])
  })

  test('what the API executed in an attempt that does not count is gone, in a stream and in the message', async () => {
    const s = set.session()
    const text = `searched ${count++}`
    const attempt = (said, id, ...end) => [
      ...blockScript([{ type: 'text', text: said }], { stop: null }),
      ...whole(1, { type: 'server_tool_use', id, name: 'web_search', input: {} }),
      ...whole(2, { type: 'web_search_tool_result', tool_use_id: id, content: [] }),
      ...end,
    ]
    set.model.script(text, attempt('Half.', 'srv_a', errorEvent('overloaded_error', 'busy')))
    set.model.script(text, attempt('Whole.', 'srv_b', ...blockScript([]).slice(1)))
    const aware = await s.ask(text, { agent: 'anthropic', headers: AWARE })
    await assertChatBody(aware)
    assert.equal(superseded(aware.frames).length, 1)
    const message = (await s.snapshot()).body.messages.at(-1)
    assert.deepEqual([textOf(message), callsOf(message).map((p) => p.toolCallId)], ['Whole.', ['srv_b']])
    const replayed = await (await s.resume(0)).collect()
    await assertChatBody(replayed)
    assert.ok(!replayed.text.includes('srv_a') && !replayed.text.includes('Half.'), replayed.text)
  })

  test('a route that takes a step back: the answer to an earlier call stays, the step does not', async () => {
    const s = set.session()
    const text = `reset ${count++}`
    const said = (id, delta) => [{ type: 'text-start', id }, { type: 'text-delta', id, delta }, { type: 'text-end', id }]
    const chunks = [
      { type: 'start' }, { type: 'start-step' }, { type: 'tool-input-available', toolCallId: 'c1', toolName: 'f', input: {} }, { type: 'finish-step' },
      { type: 'start-step' }, ...said('a', 'Half.'),
      { type: 'tool-input-available', toolCallId: 'c2', toolName: 'f', input: {} }, { type: 'tool-output-available', toolCallId: 'c2', output: 2 },
      { type: 'tool-output-available', toolCallId: 'c1', output: 1 }, { type: 'reset-step' },
      ...said('b', 'Whole.'), { type: 'finish-step' }, { type: 'finish', finishReason: 'stop' },
    ]
    route.script(text, reply((writer) => chunks.forEach((c) => writer.write(c))))
    await s.ask(text, { agent: 'ui', headers: AWARE })
    const message = (await s.snapshot()).body.messages.at(-1)
    assert.deepEqual([textOf(message), callsOf(message).map((p) => [p.toolCallId, p.output])], ['Whole.', [['c1', 1]]])
    const replayed = await (await s.resume(0)).collect()
    await assertChatBody(replayed)
    for (const version of VERSIONS) {
      const folded = await foldAll(version, replayed.raw, [userMessage(text)])
      assert.deepEqual([folded.status, textOf(folded.reply), callsOf(folded.reply).map((p) => p.output)], ['ready', 'Whole.', [1]], `ai ${version}`)
    }
  })
})

describe('with tools', { concurrency: true }, () => {
  const CALL = { id: 'c1', name: 'f', arguments: '{"x":1}' }
  const submit = (s, json) => call(`${s.chat}/tool-result`, { json })

  for (const version of VERSIONS) {
    test(`ai ${version}: a continuation that is tried again`, async () => {
      const s = set.session()
      const text = `continued ${count++}`
      const [fails, ends] = [gate(), gate()]
      set.model.script(text, textScript(['Asks. '], { tool: CALL }))
      set.model.script(text, broken('Hel', fails))
      set.model.script(text, textScript(['Hello', ends, '!']))
      const chat = await callingChat(version, s, set.server.origin, { auto: 'calls' })
      await chat.sendMessage({ text })
      await answerCall(chat, 'c1', 'f', 'so')
      await chat.until((c) => textOf(c.lastMessage) === 'Asks. Hel')
      fails.open()
      await chat.until((c) => c.status === 'error')
      if (!REPLACES_ON_REPLAY.includes(version)) chat.messages = await seed(s)
      const resumed = chat.resumeStream()
      await chat.until((c) => textOf(c.lastMessage) === 'Asks. Hello')
      ends.open()
      await within(resumed)
      await assertAsStored(version, chat, s)
      assert.equal(textOf(chat.lastMessage), 'Asks. Hello!')
      assert.equal(set.model.requests.filter((r) => r.lastUserText === text).length, 3)
    })
  }

  test('a call of an attempt that does not count takes no answer, and one of the same id is another', async () => {
    const s = set.session()
    const text = `called ${count++}`
    const fails = gate()
    const lost = { id: 'c0', name: 'f', arguments: '{}' }
    set.model.script(text, [...textScript(['Half. '], { tool: [CALL, lost], finish: null }), step.waitFor(fails), step.error('busy', 'overloaded')])
    set.model.script(text, textScript(['Whole. '], { tool: CALL }))
    set.model.script(text, textScript(['Done.']))
    const aware = await s.send(text, { headers: AWARE })
    await aware.until((f) => f.data?.includes('c0'))
    fails.open()
    const told = await aware.collect()
    await assertChatBody(told)
    assert.equal(superseded(told.frames).length, 1)
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1)), callsOf(body.messages.at(-1)).map((p) => [p.toolCallId, p.state])], ['paused', 'Whole. ', [['c1_2', 'input-available']]])
    const page = await (await s.reconnect()).collect()
    await assertChatBody(page)
    assert.ok(!page.text.includes('c0') && !page.text.includes('Half'), page.text)
    for (const toolCallId of ['c0', 'c1']) assertRefused(await submit(s, { toolCallId, output: 1 }), 400)
    assert.equal((await submit(s, { toolCallId: 'c1_2', output: 1 })).body.continues, true)
    await (await s.resume()).collect()
    const message = (await s.snapshot()).body.messages.at(-1)
    assert.deepEqual([textOf(message), callsOf(message).map((p) => p.output)], ['Whole. Done.', [1]])
  })
})

describe('between two attempts', { concurrency: true }, () => {
  /** A run whose first attempt has failed and whose third begins in 2 s. */
  async function pausing() {
    const s = set.session()
    const text = `pausing ${count++}`
    const fails = gate()
    set.model.script(text, [...textScript(['Hel', fails], { finish: null }), step.error('busy', 'overloaded')])
    set.model.script(text, [step.status(429, { error: { message: 'wait' } }, { 'retry-after': '2' })])
    const aware = await s.send(text, { headers: AWARE })
    await aware.until((f) => f.data?.includes('Hel'))
    fails.open()
    await eventually(() => set.model.requests.filter((r) => r.lastUserText === text).length === 2)
    await eventually(async () => (await s.log()).filter((c) => c.chunk.type === 'step_start').length === 3)
    return { s, text, aware, asked: () => set.model.requests.filter((r) => r.lastUserText === text).length }
  }

  test('a stop', async () => {
    const { s, aware, asked } = await pausing()
    assert.equal((await s.stop()).body.stopped, true)
    const got = await aware.collect()
    await assertChatBody(got)
    assert.equal(chunksOf(got.frames).at(-1).type, 'abort')
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.messages.map(textOf).slice(1).join('')], ['ended', 'Hel'], 'what was shown is kept')
    for (const version of VERSIONS) await validateMessages(version, body.messages)
    await new Promise((r) => setTimeout(r, 2200))
    assert.equal(asked(), 2)
  })

  test('another answer is asked for', async () => {
    const { s, text, aware, asked } = await pausing()
    set.model.script(text, textScript(['again']))
    const again = await openSse(s.chat, { json: { id: s.id, messages: (await s.snapshot()).body.messages.slice(0, 1), trigger: 'regenerate-message' } })
    const got = await again.collect()
    await assertChatBody(got)
    assert.equal(texts(got.frames), 'again')
    await assertChatBody(await aware.collect())
    await new Promise((r) => setTimeout(r, 2200))
    assert.equal(asked(), 3)
    assert.deepEqual((await s.snapshot()).body.messages.map(textOf), [text, 'again'])
  })
})

test('a kill between two attempts leaves a conversation that goes on', async () => {
  const s = set.session()
  const text = `pausing ${count++}`
  set.model.script(text, broken('Hel'))
  const aware = await s.send(text, { headers: AWARE })
  await aware.until((f) => f.data?.includes('attempt_superseded'))
  await set.server.kill()
  await set.server.start()
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.errorDetail.retryable], ['failed', true])
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  set.model.script(text, textScript(['alive']))
  const chat = await makeChat('6-latest', { id: s.id, origin: set.server.origin, messages: body.messages })
  await chat.regenerate()
  await assertAsStored('6-latest', chat, s)
  assert.deepEqual(chat.messages.map(textOf), [text, 'alive'])
})

test('a kill in the second attempt keeps what that one said', async () => {
  const s = set.session()
  const { text, fails } = failing()
  const aware = await s.send(text, { headers: AWARE })
  await aware.until((f) => f.data?.includes('Hel'))
  fails.open()
  await aware.until((f) => f.data?.includes('Hello'))
  await set.server.kill()
  await set.server.start()
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1)), body.errorDetail.retryable], ['failed', 'Hello', true])
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  set.model.script('after the kill', textScript(['alive']))
  const next = await s.ask('after the kill')
  await assertChatBody(next)
  assert.equal(texts(next.frames), 'alive')
  assert.ok(!JSON.stringify(set.model.requests.at(-1).body.messages).includes('"Hel"'))
})

/** A content block in one piece. */
const whole = (index, content_block) =>
  [{ type: 'content_block_start', index, content_block }, { type: 'content_block_stop', index }].map((event) => step.named(event.type, event))
