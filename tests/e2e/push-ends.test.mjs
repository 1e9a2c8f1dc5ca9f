// What a producer outside commits, and how it ends its run.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { chunksIn } from './harness/contract.mjs'
import { begin, ok, producer, replyOf, says, ui, wireEnd } from './harness/producer.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const set = stage({ vars: { BATCH_WAIT_MS: 20 } })

const begun = (json) => begin(set.session(), json)

describe('commits', () => {
  const two = [ui.step, ui.start(), ui.text('one '), ui.end(), ui.stepEnd, ui.step, ui.start('u'), ui.text('two', 'u')]

  test('by default at the end of the last finished step; takes a number; is repeated without effect', async () => {
    const { s, run } = await begun()
    ok(await run.append(two.slice(0, 3)))
    assertRefused(await run.commit(), 400, 'nothing is finished')
    ok(await run.append(two.slice(3)))
    const committed = await run.commit()
    assert.deepEqual([committed.status, committed.body.expected], [200, 9])
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.stepCount, textOf(body.messages[1])], ['active', 1, 'one '])
    const end = (await s.log()).find((c) => c.chunk.type === 'finish-step').sequence
    assert.equal(body.streamSequence, end)
    assert.deepEqual([(await run.commit({}, { seq: 8 })).body.expected, (await s.snapshot()).body.checkpointId], [9, body.checkpointId])
    assertRefused(await run.commit({}, { seq: 10 }), 409)
    ok(await run.last([ui.end('u'), ui.stepEnd, ui.finish], { commit: {} }))
    assert.equal(textOf(await replyOf(s)), 'one two')
    ok(await run.end())
  })

  test('through a sequence: within its bounds, and never inside a part', async () => {
    const { s, run } = await begun()
    ok(await run.append(two))
    const at = async (type, nth = 0) => (await s.log()).filter((c) => c.chunk.type === type)[nth].sequence
    const through = (throughSequence) => run.commit({ throughSequence })
    const head = (await s.info()).head
    for (const [place, why] of [[head + 1, /must lie/], [head, /text part u/], [await at('text-delta'), /text part t/]]) {
      const refused = await through(place)
      assertRefused(refused, 400)
      assert.match(refused.body.error, why)
    }
    ok(await through(await at('text-end')))
    assert.deepEqual([(await s.snapshot()).body.streamSequence, textOf(await replyOf(s))], [await at('text-end'), 'one '])
    const below = await through((await at('text-end')) - 1)
    assertRefused(below, 400)
    assert.equal(below.body.floor, await at('text-end'))
    ok(await through(await at('start-step', 1)))
    ok(await run.append([ui.end('u'), ui.stepEnd]))
    ok(await run.end())
    assert.equal(textOf(await replyOf(s)), 'one two')
  })

  test('with the producer’s own messages', async () => {
    const { s, run } = await begun()
    ok(await run.append([ui.step, ui.start(), ui.text('half')]))
    const own = (text, id = 'mine') => ({ id, role: 'assistant', parts: [{ type: 'text', text }] })
    assertRefused(await run.commit({ messages: [own('x')] }), 400, 'inside a part')
    ok(await run.append([ui.end()]))
    ok(await run.commit({ messages: [own('summary'), own('second', 'other')], stepCount: 4 }))
    const { body } = await s.snapshot()
    assert.deepEqual([body.stepCount, body.messages.map(textOf)], [4, ['hello', 'summary', 'second']])
    assert.equal(body.messages[1].id, run.claim.resumeMessageId, 'the message that responses write')
    assertRefused(await run.commit({ messages: [{ role: 'assistant' }] }), 400)
    ok(await run.end())
    assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['hello', 'summary', 'second'], 'nothing was said behind the commit')
  })
})

describe('ends', () => {
  test('chunks and the end are one; a repeat changes nothing; the result is told', async () => {
    const { s, run } = await begun()
    const body = { chunks: says('done'), end: { status: 'completed', output: { n: 1 }, usage: { tokens: 3 } } }
    const refused = await run.deed('chunks', { ...body, chunks: [...says('done'), ui.step] })
    assertRefused(refused, 400)
    assert.equal((await s.info()).status, 'active')
    ok(await run.deed('chunks', body, { seq: 0 }))
    const log = await s.log()
    for (let i = 0; i < 2; i++) {
      const again = await run.deed('chunks', body, { seq: 0 })
      assert.deepEqual([again.status, again.body.status, again.body.expected], [200, 'completed', 7])
    }
    assert.deepEqual(await s.log(), log)
    const { data } = await wireEnd(s)
    assert.deepEqual(data, { status: 'completed', output: { n: 1 }, usage: { tokens: 3 } })
    assertRefused(await run.append([ui.step]), 409)
  })

  test('a run without a finish is closed: what is open ends', async () => {
    const { s, run } = await begun()
    ok(await run.append([ui.step, ui.start(), ui.text('open')]))
    const reader = await s.reconnect()
    ok(await run.end({ status: 'completed' }))
    const got = await reader.collect()
    await assertChatBody(got)
    assert.equal(chunksIn(got).at(-1).type, 'finish')
    assert.equal(textOf(await replyOf(s)), 'open')
  })

  test('interrupted by its producer, and failed with a code of ours', async () => {
    const stopped = await begun()
    ok(await stopped.run.last([ui.step, ui.start(), ui.text('part')], { end: { status: 'interrupted' } }))
    assert.deepEqual((await wireEnd(stopped.s)).data, { status: 'interrupted' })
    for (const [error, code, retryable] of [['SECRET words', 'producer_failed', true], [{ code: 'provider_rate_limited', message: 'SECRET', retryAfterMs: 7000 }, 'provider_rate_limited', true]]) {
      const { s, run } = await begun()
      ok(await run.append([ui.step, ui.start(), ui.text('part')]))
      const reader = await s.reconnect()
      const wire = await s.sse(0)
      ok(await run.fail(error))
      ok(await run.fail(error, { seq: 3 }), 'a repeat')
      const got = await reader.collect()
      await assertChatBody(got)
      assert.equal(chunksIn(got).at(-1).type, 'error')
      const { body, text } = await s.snapshot()
      assert.deepEqual([body.status, body.errorDetail.code, body.errorDetail.retryable, textOf(body.messages[1])], ['failed', code, retryable, 'part'])
      const live = await wire.collect()
      const { data } = assertWireBody(live).terminal
      assert.deepEqual(data.errorDetail, body.errorDetail, 'live as in the snapshot')
      assert.equal(data.errorDetail.retryAfterMs, error.retryAfterMs)
      assert.doesNotMatch(text + got.text + live.text, /SECRET/)
    }
  })

  test('bounds: a line, a request, a session; a body of lines has none', async () => {
    await set.server.restart({ MAX_SESSION_BYTES: 400_000, MAX_REQUEST_BYTES: 65_536 })
    try {
      const long = 'x'.repeat(40_000)
      const { s, run } = await begun()
      const lines = run.lines()
      lines.write(ui.step, ui.start(), ui.text(long), ui.text(long), ui.text(long))
      assert.equal((await lines.end()).body.expected, 5)
      const tooLong = run.lines()
      tooLong.write(ui.text('a'), ui.text('y'.repeat(70_000)))
      const refused = await tooLong.answer()
      assert.deepEqual([refused.status, refused.body.index, refused.body.expected], [400, 1, 6])
      const array = await run.append([ui.text(long), ui.text(long)])
      assert.deepEqual([array.status, array.body.limitBytes], [413, 65_536])
      let last
      for (let i = 0; i < 10; i++) {
        last = await run.append([ui.text(long)])
        if (last.status !== 200) break
      }
      assert.deepEqual([last.status, last.body.code], [409, 'state_session_full'])
      assert.equal((await s.snapshot()).body.errorDetail.code, 'state_session_full')
      const other = await begun()
      let count = 0
      while (count++ < 8) ok(await other.run.append(count === 1 ? [ui.step, ui.start(), ui.text(long)] : [ui.text(long)]))
      last = await other.run.last([ui.text(long + long.slice(0, 10_000)), ui.text('z')], { end: { status: 'completed' } })
      if (last.status === 200) last = await other.run.append([])
      assert.equal(last.status, 409)
      assert.notEqual((await other.s.info()).runStatus, 'running')
    } finally {
      await set.server.restart({ MAX_SESSION_BYTES: 1 << 30, MAX_REQUEST_BYTES: 16 << 20 })
    }
  })

  test('a session that is deleted under its producer is gone for it', async () => {
    const { s, run } = await begun()
    const lines = run.lines()
    lines.write(ui.step, ui.start(), ui.text('a'))
    await eventually(async () => (await s.info()).head >= 5)
    const listening = run.control()
    await s.delete()
    lines.write(ui.text('b'))
    assert.equal((await lines.answer()).status, 404)
    assertRefused(await listening, 404)
    assertRefused(await run.append([ui.text('c')]), 404)
    assert.deepEqual(await s.info(), { exists: false })
  })
})
