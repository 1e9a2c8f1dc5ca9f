// Stopping from anywhere: at once, for everyone, keeping exactly what was shown, and harming no other run.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { chunksOf, isData, isDone } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually, within } from './harness/wait.mjs'

const set = stage()
// One second, and another for a busy machine; heartbeats come every fifteen.
const AT_ONCE = 2000

/** A run that has said 'part' and is silent, with a sender, two followers and a wire reader. */
async function silent(s = set.session(), name = s.id) {
  const held = gate()
  set.model.script(name, textScript(['part', held, ' more']))
  const sent = await s.send(name)
  await sent.until((f) => f.data?.includes('"part"'))
  const chats = [sent, await s.reconnect(), await s.reconnect()]
  const wire = await s.sse(0)
  for (const reader of [...chats.slice(1), wire]) await reader.until((f) => f.data?.includes('"part"'))
  return { s, held, sent, chats, wire, request: set.model.requests.find((r) => r.lastUserText === name), runId: (await s.info()).runId }
}

const types = (got) => chunksOf(got.frames.filter(isData)).map((c) => c.type)

test('while the model is silent, everybody and the model call end at once', async () => {
  const { s, chats, wire, request, runId } = await silent()
  const answer = await s.stop()
  const [raw, ...bodies] = await within(Promise.all([wire, ...chats].map((r) => r.collect(AT_ONCE))), AT_ONCE, 'the end of all responses')
  await within(request.aborted, AT_ONCE, 'the end of the model call')
  assert.deepEqual([answer.status, answer.body], [200, { success: true, stopped: true, runId }])
  for (const got of bodies) {
    assert.equal(got.ended, 'clean')
    await assertChatBody(got)
    assert.equal(types(got).at(-1), 'abort')
    assert.ok(isDone(got.frames.filter(isData).at(-1)))
    assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, 'part')
  }
  const { terminal } = assertWireBody(raw)
  assert.deepEqual([terminal.event, terminal.data.status], ['end', 'interrupted'])
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1)), 'resumeMessageId' in body], ['ended', 'part', false])
  assert.equal((await s.reconnect()).status, 204)
})

test('before the model has said anything, nobody waits for it', async () => {
  const s = set.session()
  set.model.script(s.id, [step.silence()])
  const sent = await s.send(s.id)
  await sent.next()
  const request = await eventually(() => set.model.requests.find((r) => r.lastUserText === s.id), { what: 'the request to the model' })
  assert.equal((await s.stop()).body.stopped, true)
  const got = await sent.collect(AT_ONCE)
  await assertChatBody(got)
  assert.equal(types(got).at(-1), 'abort')
  await within(request.aborted, AT_ONCE, 'the end of the model call')
  assert.deepEqual((await s.snapshot()).body.messages.map((m) => m.role), ['user'])
})

test('in mid-stream, the snapshot keeps exactly the text that was shown', async () => {
  const words = Array.from({ length: 200 }, (_, i) => `w${i} `)
  for (const count of [1, 2, 5, 9, 20, 33, 47, 60]) {
    const s = set.session()
    set.model.script(s.id, [step.mode({ paceMs: 3 }), ...textScript(words)])
    const sent = await s.send(s.id)
    const follower = await s.reconnect()
    await sent.take(count)
    await s.stop()
    const [own, other] = [await sent.collect(AT_ONCE), await follower.collect(AT_ONCE)]
    const kept = textOf((await s.snapshot()).body.messages.find((m) => m.role === 'assistant'))
    for (const got of [own, other]) {
      await assertChatBody(got)
      assert.equal((await foldAll('6.0.0', got.raw, [userMessage('x')])).text, kept, `after ${count} frames`)
    }
    assert.ok(words.join('').startsWith(kept) && kept.length < words.join('').length, 'the run was cut short')
  }
})

test('the next send works, and its history holds what was kept', async () => {
  const { s } = await silent()
  await s.stop()
  set.model.script(`next ${s.id}`, textScript(['next']))
  await assertChatBody(await s.ask(`next ${s.id}`))
  assert.deepEqual((await s.snapshot()).body.messages.map(textOf), [s.id, 'part', `next ${s.id}`, 'next'])
  const { body } = set.model.requests.find((r) => r.lastUserText === `next ${s.id}`)
  assert.match(JSON.stringify(body.messages), /"part"/)
})

describe('a run that is named', () => {
  for (const key of ['runId', 'activeStreamId']) {
    test(`as ${key} is stopped when it is the current one, and only then`, async () => {
      const first = await silent()
      await first.s.stop()
      const second = await silent(first.s, `again ${first.s.id}`)
      for (const id of [first.runId, 'run_of_nobody', '']) {
        const stale = await first.s.stop({ [key]: id })
        assert.deepEqual([stale.status, stale.body], [200, { success: true, stopped: false, cause: 'run_not_current' }], id)
      }
      assert.equal((await first.s.info()).status, 'active')
      assert.equal(second.request.gone, false)
      const stopped = await first.s.stop({ [key]: second.runId, assistantMessage: { parts: [] } })
      assert.deepEqual([stopped.body.stopped, stopped.body.runId], [true, second.runId])
      assert.equal(types(await second.sent.collect(AT_ONCE)).at(-1), 'abort')
    })
  }
})

test('twice, one after the other and at once, is one stop', async () => {
  const { s, sent } = await silent()
  const answers = await Promise.all([s.stop(), s.stop(), s.stop()])
  assert.deepEqual(answers.map((a) => a.status), [200, 200, 200])
  assert.equal(answers.filter((a) => a.body.stopped).length, 1)
  const late = await s.stop()
  assert.deepEqual([late.status, late.body], [200, { success: true, stopped: false, cause: 'run_not_live' }])
  await assertChatBody(await sent.collect())
  const log = (await s.log()).map((c) => c.chunk.type)
  assert.equal(log.filter((t) => t === 'finish').length, 0)
})

test('a finished run is not changed by it', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['whole']))
  await s.ask(s.id)
  const before = [(await s.snapshot()).body, await s.log()]
  assert.equal((await s.stop()).body.stopped, false)
  assert.deepEqual([(await s.snapshot()).body, await s.log()], before)
})

test('without a body it is a stop; of an unknown session it is 404', async () => {
  const { s, sent } = await silent()
  assert.equal((await call(`${s.chat}/stop`, { method: 'POST' })).body.stopped, true)
  await sent.collect(AT_ONCE)
  const unknown = set.session()
  assertRefused(await unknown.stop(), 404)
  assertRefused(await unknown.stop({ runId: 'run_x' }), 404)
  assert.deepEqual(await unknown.info(), { exists: false })
})

test('another session goes on', async () => {
  const [one, other] = [await silent(), await silent()]
  await one.s.stop()
  other.held.open()
  const got = await other.sent.collect()
  await assertChatBody(got)
  assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, 'part more')
})
