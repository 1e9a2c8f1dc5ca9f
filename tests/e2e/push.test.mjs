// A producer outside, as its protocol promises: claims, numbers, lines, and what readers see of it. Its commits and ends: push-ends.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { deltasIn } from './harness/contract.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { begin, ok, producer, replyOf, says, ui, wireEnd } from './harness/producer.mjs'
import { call, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually, within } from './harness/wait.mjs'

const BATCH_WAIT_MS = 50
const set = stage({ vars: { BATCH_WAIT_MS, TEST_SEAMS: '1', LIVE_WAIT_MS: 1500 } })

const begun = (json) => begin(set.session(), json)

describe('claims', () => {
  test('a run is opened, is live, and is ended', async () => {
    const s = set.session()
    const p = producer(s)
    const opened = await p.ask({ vocabulary: 'ui', message: userMessage('hello') })
    assert.equal(opened.status, 201, opened.text)
    const { runId, epoch, fromSequence, leaseMs, leaseExpiresAt, resumeMessageId, expected } = opened.body
    assert.deepEqual([epoch, fromSequence, leaseMs, expected], [1, 0, 30_000, 0])
    assert.ok(Math.abs(leaseExpiresAt - Date.now() - leaseMs) < 5000)
    const run = p.at(opened.body)
    assert.equal((await s.info()).runId, runId)
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.resumeMessageId, body.messages.map(textOf)], ['active', resumeMessageId, ['hello']])

    const appended = await run.append(says('Hel', 'lo'))
    ok(appended)
    assert.deepEqual([appended.body.expected, appended.body.stopRequested, appended.body.status], [7, false, 'running'])
    assert.equal(appended.body.head, appended.body.lastSequence)
    assert.equal(appended.body.lastSequence - appended.body.firstSequence + 1, 7, 'the sequences of this request')
    ok(await run.end())
    const after = (await s.snapshot()).body
    assert.deepEqual([after.status, after.messages[1].id, textOf(after.messages[1])], ['ended', resumeMessageId, 'Hello'])
    assert.deepEqual((await wireEnd(s)).data, { status: 'completed' })
  })

  test('a live run refuses another, unless that supersedes it; the superseded producer is told', async () => {
    const { s, p, run } = await begun()
    ok(await run.append(says('old').slice(0, 3)))
    const refused = await p.ask({ vocabulary: 'ui', message: userMessage('second') })
    assertRefused(refused, 409)
    assert.deepEqual([refused.body.code, refused.body.runId], ['state_already_running', run.id])
    const listening = run.control()
    const next = await p.open({ message: userMessage('second'), supersede: true })
    const told = await within(listening, 1000, 'the word that the run was superseded')
    assert.deepEqual([told.body.superseded, told.body.stopRequested, told.body.status], [true, false, 'superseded'])
    for (const answer of [await run.append([ui.text('late')]), await run.end(), await run.commit(), await run.renew()]) {
      assertRefused(answer, 409)
      assert.deepEqual([answer.body.code, answer.body.runStatus, answer.body.stopRequested], ['state_run_superseded', 'superseded', false])
    }
    ok(await next.last(says('new'), { end: { status: 'completed' } }))
    assert.equal(textOf(await replyOf(s)), 'new')
  })

  test('the same run id claims again: a higher epoch, what is stored, and the old epoch is fenced off', async () => {
    const { s, p, run } = await begun({ runId: 'run-a' })
    ok(await run.append(says('one ', 'two').slice(0, 3)))
    const again = await p.ask({ vocabulary: 'ui', runId: 'run-a' })
    assert.equal(again.status, 200, again.text)
    const { epoch, expected, fromSequence, head } = again.body
    assert.deepEqual([epoch, expected, fromSequence, head - fromSequence], [2, 3, 0, 5])
    const fenced = await run.append([ui.text('x')])
    assertRefused(fenced, 403)
    assert.deepEqual([fenced.body.code, fenced.body.epoch], ['state_producer_fenced', 2])
    assertRefused(await run.renew(), 403)
    assertRefused(await run.end(), 403)
    const mine = p.at(again.body)
    ok(await mine.append(says('one ', 'two').slice(3)))
    ok(await mine.end())
    assert.equal(textOf(await replyOf(s)), 'one two')
    const late = await p.ask({ vocabulary: 'ui', runId: 'run-a' })
    assertRefused(late, 409)
    assert.deepEqual([late.body.code, late.body.runStatus], ['state_run_ended', 'completed'])
    await (await p.open({ message: userMessage('more') })).end()
    const later = await p.ask({ vocabulary: 'ui', runId: 'run-a' })
    assert.deepEqual([later.status, later.body.code], [409, 'state_run_ended'], 'also when another run has followed')
  })

  test('a claim ends an open body of the one before at its next line', async () => {
    const { s, p, run } = await begun({ runId: 'run-b' })
    const lines = run.lines()
    lines.write(ui.step, ui.start(), ui.text('a'))
    await eventually(async () => (await s.info()).head >= 5)
    const mine = p.at((await p.ask({ vocabulary: 'ui', runId: 'run-b' })).body)
    lines.write(ui.text('from the past'))
    assert.equal((await lines.answer()).status, 403)
    ok(await mine.append([ui.text('b'), ui.end(), ui.stepEnd]))
    ok(await mine.end())
    assert.equal(textOf(await replyOf(s)), 'ab')
  })

  test('a run of the object itself is not for sale', async () => {
    const s = set.session()
    set.model.script('in the object', textScript(['part', gate()]))
    const sent = await s.send('in the object')
    await sent.until((f) => f.data?.includes('part'))
    const { runId } = await s.info()
    const refused = await producer(s).ask({ vocabulary: 'ui', runId })
    assertRefused(refused, 400)
    assertRefused(await producer(s).at({ runId, epoch: 1 }).append([ui.step]), 409)
    assert.equal((await s.info()).runStatus, 'running')
    await s.stop()
  })

  test('a request key starts one run, and belongs to one input', async () => {
    const s = set.session()
    const p = producer(s)
    const message = userMessage('keyed')
    const run = await p.open({ message, requestKey: 'k-1' })
    const again = await p.ask({ vocabulary: 'ui', message, requestKey: 'k-1' })
    assert.deepEqual([again.status, again.body.runId, again.body.epoch], [200, run.id, 2])
    const other = await p.ask({ vocabulary: 'ui', message: userMessage('another'), requestKey: 'k-1' })
    assert.deepEqual([other.status, other.body.code, other.body.runId], [409, 'state_request_key_conflict', run.id])
  })

  test('its lease is its own, is renewed by every write, and may be changed', async () => {
    const { p, run } = await begun({ leaseMs: 60_000, runId: 'leased' })
    assert.equal(run.claim.leaseMs, 60_000)
    const renewed = await run.renew({ leaseMs: 90_000 })
    ok(renewed)
    assert.equal(renewed.body.leaseMs, 90_000)
    assert.ok(renewed.body.leaseExpiresAt > Date.now() + 80_000)
    const written = await run.append([ui.step])
    assert.ok(written.body.leaseExpiresAt > Date.now() + 80_000)
    const again = await p.ask({ vocabulary: 'ui', runId: 'leased', leaseMs: 20_000 })
    assert.deepEqual([again.body.leaseMs, again.body.leaseExpiresAt < Date.now() + 21_000], [20_000, true])
  })

  test('state given at the start is the session’s, patches change it, commits keep it', async () => {
    const { s, run } = await begun({ state: { n: 1 } })
    assert.deepEqual((await s.snapshot()).body.state, { n: 1 })
    const patch = (value) => ({ type: 'state_patch', patches: [{ op: 'replace', path: '/n', value }] })
    ok(await run.append([ui.step, patch(2), ui.start(), ui.text('a'), ui.end(), ui.stepEnd]))
    assert.deepEqual((await s.snapshot()).body.state, { n: 1 }, 'not before a commit')
    ok(await run.append([ui.step, patch(3)]))
    ok(await run.commit())
    assert.deepEqual((await s.snapshot()).body.state, { n: 2 }, 'the state at the end of the last finished step')
    ok(await run.append([{ type: 'state_patch', patches: [{ op: 'test', path: '/n', value: 3 }] }]), 'what was patched behind the cursor holds')
    const wrong = await run.append([{ type: 'state_patch', patches: [{ op: 'remove', path: '/absent' }] }])
    assertRefused(wrong, 400)
    ok(await run.append([ui.start('u'), ui.text('b', 'u'), ui.end('u'), ui.stepEnd]))
    ok(await run.commit({ state: { mine: true } }))
    ok(await run.append([{ type: 'state_patch', patches: [{ op: 'add', path: '/n', value: 9 }] }]))
    ok(await run.end())
    assert.deepEqual((await s.snapshot()).body.state, { mine: true, n: 9 })
  })

  test('runs that cannot be opened are refused, and leave nothing', async () => {
    const s = set.session()
    const p = producer(s)
    const twice = userMessage('twice')
    assertRefused(await p.ask({ vocabulary: 'ui', messages: [twice, twice] }), 400, 'one id twice')
    for (const json of [
      {},
      { vocabulary: 'klingon' },
      { vocabulary: 'ui', runId: 'a/b' },
      { vocabulary: 'ui', messages: 'x' },
      { vocabulary: 'ui', message: { role: 'user' } },
      { vocabulary: 'ui', leaseMs: 0 },
      { vocabulary: 'ui', leaseMs: '5' },
      { vocabulary: 'ui', requestKey: '' },
    ]) {
      assertRefused(await p.ask(json), 400, JSON.stringify(json))
    }
    assert.equal((await s.snapshot()).status, 404)
    assertRefused(await p.at({ runId: 'nobody', epoch: 1 }).append([]), 404)
    const run = await p.open({ message: userMessage('x') })
    assertRefused(await p.at({ runId: 'nobody', epoch: 1 }).append([]), 404)
    for (const headers of [{}, { 'producer-epoch': '1' }, { 'producer-epoch': 'x', 'producer-seq': '0' }, { 'producer-epoch': '1', 'producer-seq': '-1' }]) {
      run.headers = () => headers
      assertRefused(await run.append([ui.step]), 400, JSON.stringify(headers))
    }
  })
})

describe('numbers', () => {
  test('what is stored is skipped, a gap tells the number that is missing', async () => {
    const { s, run } = await begun()
    const all = says('a', 'b', 'c')
    ok(await run.append(all.slice(0, 4)))
    const repeated = await run.append(all.slice(0, 4), { seq: 0 })
    assert.deepEqual([repeated.status, repeated.body.expected], [200, 4])
    const gap = await run.append(all.slice(5), { seq: 5 })
    assertRefused(gap, 409)
    assert.deepEqual([gap.body.code, gap.body.expected], ['state_producer_gap', 4])
    const overlap = await run.append(all, { seq: 0 })
    assert.deepEqual([overlap.status, overlap.body.expected], [200, all.length])
    ok(await run.end())
    assert.equal(textOf(await replyOf(s)), 'abc')
  })

  test('an invalid chunk is named with its place and why; nothing of its request is stored', async () => {
    const { run } = await begun()
    ok(await run.append([ui.step, ui.start()]))
    for (const [chunks, index, reason] of [
      [[ui.text('a'), { type: 'text-delta', id: 't' }], 1, /delta/],
      [[ui.text('a'), ui.text('b', 'nobody')], 1, /nobody/],
      [[7], 0, /object/],
      [[{ type: 'no-such' }], 0, /no-such/],
      [[ui.start()], 0, /open/],
      [[{ type: 'error', errorText: 'x' }], 0, /fail/],
      [[ui.end(), ui.stepEnd, ui.finish, ui.step], 3, /finish/],
    ]) {
      const refused = await run.append(chunks)
      assertRefused(refused, 400)
      assert.deepEqual([refused.body.code, refused.body.index, refused.body.number, refused.body.expected], ['validation_error', index, 2 + index, 2])
      assert.match(refused.body.reason, reason)
    }
    for (const body of ['{', '"x"', '{"chunks":1}', '{"chunks":[],"end":{"status":"completed"},"fail":{"error":"x"}}', '{"chunks":[],"end":{}}']) {
      assertRefused(await call(`${run.url}/chunks`, { body, headers: { ...run.headers(), 'content-type': 'application/json' } }), 400, body)
    }
    ok(await run.append([ui.text('a')]))
  })

  test('an ended run takes nothing, and says that it was stopped', async () => {
    const { s, run } = await begun()
    ok(await run.append(says('part').slice(0, 3)))
    const listening = run.control()
    const stopped = await s.stop()
    assert.deepEqual([stopped.body.stopped, stopped.body.runId], [true, run.id])
    const told = await within(listening, 1000, 'the word that the run was stopped')
    assert.deepEqual([told.body.status, told.body.stopRequested, told.body.superseded], ['interrupted', true, false])
    for (const answer of [await run.append([ui.text('late')]), await run.end(), await run.commit(), await run.renew()]) {
      assertRefused(answer, 409)
      assert.deepEqual([answer.body.code, answer.body.stopRequested, answer.body.runStatus], ['state_run_ended', true, 'interrupted'])
    }
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages[1])], ['ended', 'part'])
    assert.deepEqual((await wireEnd(s)).data, { status: 'interrupted' })
  })
})

describe('lines', () => {
  test('a body that stays open brings each line to readers as it comes', async () => {
    const { s, run } = await begun()
    const lines = run.lines()
    lines.write(ui.step, ui.start())
    const readers = [await s.reconnect(), await s.sse(0)]
    for (const word of ['one ', 'two ', 'three']) {
      const began = performance.now()
      lines.write(ui.text(word))
      for (const reader of readers) await reader.until((f) => f.data?.includes(`"${word}"`))
      assert.ok(performance.now() - began < BATCH_WAIT_MS + 3000, `${word} came after ${performance.now() - began} ms`)
    }
    lines.write(ui.end(), ui.stepEnd, ui.finish)
    const answer = await lines.end()
    assert.deepEqual([answer.status, answer.body.expected, answer.body.stopRequested], [200, 8, false])
    ok(await run.end())
    const [chat, wire] = await Promise.all(readers.map((r) => r.collect()))
    await assertChatBody(chat)
    assert.equal(deltasIn(chat), 'one two three')
    assert.equal(assertWireBody(wire).terminal.data.status, 'completed')
  })

  test('a body that broke halfway is sent again whole', async () => {
    const { s, run } = await begun()
    const all = says('a', 'b', 'c')
    const lines = run.lines()
    lines.write(...all.slice(0, 3))
    lines.raw(JSON.stringify(all[3]).slice(0, 10))
    await eventually(async () => (await s.info()).head >= 5, { what: 'the first lines in the log' })
    lines.break()
    const again = run.lines({ seq: 0 })
    again.write(...all)
    const answer = await again.end()
    assert.deepEqual([answer.status, answer.body.expected], [200, all.length])
    ok(await run.end())
    assert.equal(textOf(await replyOf(s)), 'abc')
  })

  test('lines before a bad one are stored; a gap and a stop are told while the body is open', async () => {
    const { s, run } = await begun()
    const bad = run.lines()
    bad.write(ui.step, ui.start(), ui.text('a'), { type: 'nonsense' }, ui.text('b'))
    const refused = await bad.answer()
    assert.deepEqual([refused.status, refused.body.code, refused.body.index, refused.body.number, refused.body.expected], [400, 'validation_error', 3, 3, 3])
    const broken = run.lines({ seq: 3 })
    broken.write(ui.text('b'))
    broken.raw('{no json\n')
    const unread = await broken.answer()
    assert.deepEqual([unread.status, unread.body.index, unread.body.expected], [400, 1, 4])
    const late = run.lines({ seq: 3 })
    late.write(ui.text('b'), ui.text('c'))
    await eventually(async () => (await s.log()).some((c) => c.chunk.delta === 'c'))
    late.write(ui.text('x', 'nobody'))
    const second = await late.answer()
    assert.deepEqual([second.status, second.body.index, second.body.number, second.body.expected], [400, 2, 5, 5], 'counted from the first line of the body')
    const early = run.lines({ seq: 9 })
    early.write(ui.text('z'))
    const gap = await early.answer()
    assert.deepEqual([gap.status, gap.body.code, gap.body.expected], [409, 'state_producer_gap', 5])
    const open = run.lines({ seq: 5 })
    open.write(ui.text('d'))
    await eventually(async () => (await s.log()).some((c) => c.chunk.delta === 'd'))
    await s.stop()
    open.write(ui.text('e'))
    const stopped = await open.answer()
    assert.deepEqual([stopped.status, stopped.body.code, stopped.body.stopRequested], [409, 'state_run_ended', true])
    assert.equal(textOf(await replyOf(s)), 'abcd')
  })
})
