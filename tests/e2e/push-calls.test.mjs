// A run of a producer outside that waits for its clients, and what becomes of one whose producer or server dies.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { answerCall, assertAsStored, callingChat, saidLast } from './harness/calls.mjs'
import { makeChat, textOf, validateMessages } from './harness/clients.mjs'
import { answered, chunksIn, contract, deltasIn } from './harness/contract.mjs'
import { textScript } from './harness/fake-model.mjs'
import { producer, says, ui } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually, within } from './harness/wait.mjs'

const LEASE_MS = 2000
const set = stage({ vars: { BATCH_WAIT_MS: 20, LIVE_WAIT_MS: 1500, TEST_SEAMS: '1' } })
const ok = (answer) => assert.equal(answer.status, 200, answer.text)

/** A session whose run has asked for these calls and is paused. */
async function paused(calls = ['c1'], json = {}) {
  const s = contract(set)
  const p = producer(s)
  const message = userMessage('ask me')
  const run = await p.open({ message, ...json })
  ok(await run.last([...says('I ask. ').slice(0, 4), ...calls.map((id) => ui.call(id, 'ask')), ui.stepEnd], { pause: { pending: calls, kind: 'client_tool' } }))
  return { s, p, message, run, reply: (await s.snapshot()).body.messages[1] }
}

describe('a paused run', () => {
  test('has no lease, tells its producer each answer, and goes on in the same message', async () => {
    const { s, p, run, reply } = await paused(['c1', 'c2'], { leaseMs: 1000 })
    assert.deepEqual([(await s.snapshot()).body.status, (await s.info()).runStatus], ['paused', 'suspended_client_tool'])
    const refused = await p.ask({ vocabulary: 'ui' })
    assert.deepEqual([refused.status, refused.body.cause], [409, 'calls_pending'])
    let listening = run.control()
    assert.deepEqual((await s.toolResult({ toolCallId: 'c1', output: 'one' })).body.continues, false)
    let told = await within(listening, 1000, 'the first answer')
    assert.deepEqual([told.body.status, told.body.answers, told.body.complete], ['suspended_client_tool', [{ toolCallId: 'c1', output: 'one' }], false])
    listening = run.control('?answers=1')
    await s.toolResult({ toolCallId: 'c2', errorText: 'no idea', state: 'output-error' })
    told = await within(listening, 1000, 'the second answer')
    assert.deepEqual([told.body.answers.length, told.body.answers[1], told.body.complete], [2, { toolCallId: 'c2', errorText: 'no idea' }, true])
    assertRefused(await run.append([ui.step]), 409)

    const next = await p.open({})
    assert.equal(next.claim.resumeMessageId, reply.id)
    ok(await next.last([ui.step, ui.start('u'), ui.text('Thanks.', 'u'), ui.end('u'), ui.stepEnd, ui.finish], { end: { status: 'completed' } }))
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.messages.length, textOf(body.messages[1])], ['ended', 2, 'I ask. Thanks.'])
    assert.deepEqual(body.messages[1].parts.filter((part) => part.toolCallId).map((part) => part.state), ['output-available', 'output-error'])
    assert.equal((await run.control()).body.status, 'completed')
  })

  test('approvals and denials are told with their calls', async () => {
    const s = contract(set)
    const p = producer(s)
    const run = await p.open({ message: userMessage('pay') })
    const asks = ['c1', 'c2'].flatMap((id) => [ui.call(id, 'pay'), { type: 'tool-approval-request', approvalId: `own-${id}`, toolCallId: id }])
    ok(await run.last([...says('May I? ').slice(0, 4), ...asks, ui.stepEnd], { pause: { kind: 'approval', pending: ['c1', 'c2'] } }))
    await s.toolResult({ toolCallId: 'c1', approved: true })
    await s.toolResult({ toolCallId: 'c2', approved: false, reason: 'too much' })
    const told = await run.control('?answers=1')
    assert.deepEqual([told.body.answers, told.body.complete], [[{ toolCallId: 'c1', approved: true }, { toolCallId: 'c2', approved: false, reason: 'too much' }], true])
    const next = await p.open({})
    ok(await next.last([{ type: 'tool-output-available', toolCallId: 'c1', output: 'paid' }, ...says('Done.').map((c) => (c.id ? { ...c, id: 'u' } : c))], { end: { status: 'completed' } }))
    const { body } = await s.snapshot()
    assert.deepEqual(body.messages[1].parts.filter((part) => part.toolCallId).map((part) => part.state), ['output-available', 'output-denied'])
    for (const version of ['7-latest', '6.0.0']) await validateMessages(version, body.messages)
  })

  test('stays paused over its lease and over restarts', async () => {
    const { s } = await paused(['c1'], { leaseMs: 1000 })
    await set.server.kill()
    await set.server.start()
    await new Promise((r) => setTimeout(r, 1500))
    assert.equal((await s.snapshot()).body.status, 'paused')
  })

  test('a chat POST with the last answers waits for the run that goes on, and streams it', async () => {
    const { s, p, run, message, reply } = await paused(['c1', 'c2'])
    const partly = answered(reply, { c1: 1 })
    const first = await (await s.post({ messages: [message, partly] })).collect()
    assert.equal(first.text, 'data: [DONE]\n\n', 'others still wait')
    const both = answered(partly, { c2: 2 })
    const posting = s.post({ messages: [message, both] })
    assert.equal((await within(run.control('?answers=1'), 2000, 'the answers')).body.complete, true)
    const again = s.post({ messages: [message, both] })
    const next = await p.open({})
    ok(await next.last([ui.step, ui.start('u'), ui.text('Thanks.', 'u'), ui.end('u'), ui.stepEnd, ui.finish], { end: { status: 'completed' } }))
    for (const sent of [posting, again]) {
      const got = await (await sent).collect()
      await assertChatBody(got)
      assert.deepEqual([chunksIn(got)[0].messageId, deltasIn(got)], [reply.id, 'Thanks.'])
    }
  })

  test('with nobody to go on, that POST is empty after LIVE_WAIT_MS; stopped meanwhile, at once', async () => {
    const { s, message, reply } = await paused()
    const began = Date.now()
    const both = answered(reply, { c1: 1 })
    const got = await (await s.post({ messages: [message, both] })).collect()
    assert.equal(got.text, 'data: [DONE]\n\n')
    assert.ok(Date.now() - began >= 1400, `after ${Date.now() - began} ms`)
    const posting = s.post({ messages: [message, both] })
    await s.stop()
    assert.equal((await (await within(posting, 1000, 'the answer')).collect()).text, 'data: [DONE]\n\n')
  })

  for (const version of ['7-latest', '6.0.0']) {
    test(`ai ${version}: answers a call by itself and shows the reply once`, async () => {
      const s = set.session()
      const p = producer(s)
      const message = userMessage('ask me')
      const run = await p.open({ message })
      const chat = await callingChat(version, s, set.server.origin, { auto: 'calls', messages: [message] })
      const following = chat.resumeStream()
      ok(await run.last([...says('I ask. ').slice(0, 4), ui.call('c1', 'ask'), ui.stepEnd], { pause: { kind: 'client_tool' } }))
      await following
      const listening = run.control()
      const adding = answerCall(chat, 'c1', 'ask', 'forty-two')
      const told = await within(listening, 2000, 'the answer')
      assert.deepEqual([told.body.answers, told.body.complete], [[{ toolCallId: 'c1', output: 'forty-two' }], true])
      const next = await p.open({})
      ok(await next.last([ui.step, ui.start('u'), ui.text('Thanks.', 'u'), ui.end('u'), ui.stepEnd, ui.finish], { end: { status: 'completed' } }))
      await adding
      await saidLast(chat, 'Thanks.')
      await assertAsStored(version, chat, s)
    })
  }

  test('a send takes its place; the producer is told', async () => {
    const { s, p, run } = await paused()
    const listening = run.control()
    const next = await p.open({ message: userMessage('never mind'), supersede: true })
    assert.equal((await within(listening, 1000, 'the word')).body.superseded, true)
    ok(await next.last(says('fine'), { end: { status: 'completed' } }))
    const { body } = await s.snapshot()
    assert.deepEqual(body.messages.map(textOf), ['ask me', 'I ask. ', 'never mind', 'fine'])
    for (const version of ['7-latest', '6.0.0']) await validateMessages(version, body.messages)
  })
})

test('a retry takes the place of a live run; its producer is told', async () => {
  const s = contract(set)
  const run = await producer(s).open({ message: userMessage('again?') })
  ok(await run.append(says('old').slice(0, 3)))
  const listening = run.control()
  set.model.script('again?', textScript(['by the model']))
  const retried = await s.retry()
  assert.deepEqual([(await within(listening, 1000, 'the word')).body.superseded], [true])
  assert.equal(deltasIn(await retried.collect()), 'by the model')
})

describe('deaths', () => {
  const all = says(...Array.from({ length: 20 }, (_, i) => `w${i} `))
  const whole = all.filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')

  test('the server is killed: the lease starts again, the producer claims and appends the rest, readers lose nothing', async () => {
    const s = set.session()
    const p = producer(s)
    const message = userMessage('x')
    const run = await p.open({ runId: 'r', message, leaseMs: LEASE_MS })
    const wire = await s.sse(0)
    const chat = await makeChat('7-latest', { id: s.id, origin: set.server.origin, messages: [message] })
    const following = chat.resumeStream()
    const lines = run.lines()
    lines.write(...all.slice(0, 9))
    await wire.until((f) => f.data?.includes('w6 '))
    await set.server.kill()
    await lines.answer().then(() => assert.fail('an answer from the dead'), () => {})
    const seen = (await wire.collect()).frames.filter((f) => f.event === 'chunk').map((f) => JSON.parse(f.data))
    await following
    await new Promise((r) => setTimeout(r, LEASE_MS))
    await set.server.start()
    const again = await p.ask({ vocabulary: 'ui', runId: 'r' })
    assert.deepEqual([again.status, again.body.epoch], [200, 2])
    assert.ok(again.body.expected >= 9 && again.body.leaseExpiresAt > Date.now())
    const log = await s.log()
    assert.deepEqual(log.slice(0, seen.length), seen)
    assert.equal((await s.snapshot()).body.status, 'active')
    const late = await s.sse(seen.length)
    const resumed = chat.resumeStream()
    const mine = p.at(again.body)
    ok(await mine.append(all, { seq: 0 }))
    ok(await mine.end())
    await resumed
    assertWireBody(await late.collect(), seen.length)
    assert.deepEqual([chat.status, textOf(chat.lastMessage), chat.messages.length], ['ready', whole, 2])
    assert.equal(textOf((await s.snapshot()).body.messages[1]), whole)
  })

  test('a lease that lapses fails the run, typed and retryable; the dead producer that comes back is fenced off', async () => {
    const s = set.session()
    const p = producer(s)
    const run = await p.open({ runId: 'dead', message: userMessage('x'), leaseMs: 1000 })
    ok(await run.append(all.slice(0, 5)))
    const readers = [await s.reconnect(), await s.sse(0)]
    const [chat, wire] = await within(Promise.all(readers.map((r) => r.collect())), 6000, 'the end of a silent run')
    await assertChatBody(chat)
    assert.equal(chunksIn(chat).at(-1).type, 'error')
    assert.deepEqual([assertWireBody(wire).terminal.event], ['fail'])
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.errorDetail.code, body.errorDetail.retryable, textOf(body.messages[1])], ['failed', 'producer_lost', true, 'w0 w1 w2 '])
    for (const answer of [await run.append([all[5]]), await run.end(), await run.renew(), await p.ask({ vocabulary: 'ui', runId: 'dead' })]) {
      assertRefused(answer, 409)
      assert.deepEqual([answer.body.code, answer.body.runStatus], ['state_run_ended', 'failed'])
    }
    const next = await p.open({ message: userMessage('y') })
    ok(await next.last(says('alive'), { end: { status: 'completed' } }))
    assert.equal((await s.snapshot()).body.status, 'ended')
  })

  test('a killed server with a producer that never comes back: failed within its lease and five seconds', async () => {
    const s = set.session()
    const run = await producer(s).open({ message: userMessage('x'), leaseMs: 1000 })
    ok(await run.append(all.slice(0, 4)))
    await set.server.kill()
    await set.server.start()
    // The seam reads the rows only: nobody asks the session.
    const row = async () => (await s.seam('storage', { json: 'load' })).body.ok.run
    const ended = await eventually(async () => (await row()).status === 'failed' && (await row()), { ms: 6000, what: 'the end of the run' })
    assert.equal(ended.error, 'producer_lost')
  })

  test('nobody follows: stopped after DETACHED_MS, and its producer is told', async () => {
    await set.server.restart({ DETACHED_MS: 800 })
    try {
      const run = await producer(set.session()).open({ message: userMessage('x') })
      const told = await within(run.control(), 5000, 'the stop')
      assert.deepEqual([told.body.status, told.body.stopRequested], ['interrupted', true])
    } finally {
      await set.server.restart({ DETACHED_MS: '' })
    }
  })

  test('what it costs: about one row a flush', async () => {
    const s = set.session()
    const run = await producer(s).open({ message: userMessage('x') })
    ok(await run.append(all.slice(0, 2)))
    const before = await s.info()
    for (let i = 0; i < 40; i++) ok(await run.append([ui.text(`${i} `)]))
    const after = await s.info()
    const [rows, flushes] = [after.rowsWritten - before.rowsWritten, after.counters.flushes - before.counters.flushes]
    assert.equal(flushes, 40)
    assert.ok(rows <= flushes * 1.25, `${rows} rows for ${flushes} flushes`)
    ok(await run.end())
  })
})

describe('a paused run that is broken off', () => {
  test('keeps the answers that came, and gives up the calls that wait', async () => {
    for (const last of [[], [ui.finish]]) {
      const s = contract(set)
      const run = await producer(s).open({ message: userMessage('ask me') })
      const calls = [ui.call('c1', 'ask'), ui.call('c2', 'ask'), ui.stepEnd, ...last]
      ok(await run.last([...says('I ask. ').slice(0, 4), ...calls], { pause: { kind: 'client_tool' } }))
      await s.toolResult({ toolCallId: 'c1', output: 'one' })
      const listening = run.control('?answers=1')
      await s.stop()
      assert.equal((await within(listening, 1000, 'the stop')).body.stopRequested, true)
      const { body } = await s.snapshot()
      assert.deepEqual(body.messages[1].parts.filter((p) => p.toolCallId).map((p) => [p.state, p.output]), [['output-available', 'one'], ['output-error', undefined]])
      for (const version of ['7-latest', '6.0.0']) await validateMessages(version, body.messages)
      assertWireBody(await (await s.sse(0)).collect())
    }
  })

  test('Helix: the answers are told on the log as the client gave them, and the next run goes on', async () => {
    const s = contract(set)
    const p = producer(s)
    const run = await p.open({ vocabulary: 'helix', message: userMessage('ask me') })
    const asks = [{ type: 'step_start', step: 1 }, { type: 'text_delta', delta: 'I ask. ' }, { type: 'tool_start', toolCallId: 'c1', toolName: 'ask', arguments: {} }, { type: 'step_committed', step: 1 }]
    ok(await run.last(asks, { pause: { kind: 'suspended_client_tool', pending: ['c1'] } }))
    assert.equal((await s.snapshot()).body.status, 'paused')
    await s.toolResult({ toolCallId: 'c1', output: 'one' })
    const next = await p.open({ vocabulary: 'helix' })
    const reader = await s.reconnect()
    ok(await next.last([{ type: 'step_start', step: 1 }, { type: 'text_delta', delta: 'Thanks.' }, { type: 'step_committed', step: 1 }], { end: { status: 'completed' } }))
    await assertChatBody(await reader.collect())
    const { body } = await s.snapshot()
    assert.deepEqual([body.messages.length, textOf(body.messages[1])], [2, 'I ask. Thanks.'])
    assert.deepEqual(body.messages[1].parts.filter((part) => part.toolCallId).map((part) => [part.state, part.output]), [['output-available', 'one']])
  })

  test('a pause for calls that the message does not have is refused', async () => {
    const run = await producer(set.session()).open({ message: userMessage('x') })
    ok(await run.append(says('x').slice(0, 5)))
    for (const pause of [{ pending: ['nobody'] }, { kind: 'siesta' }, { pending: 'c1' }]) assertRefused(await run.pause(pause), 400, JSON.stringify(pause))
    ok(await run.pause({ kind: 'awaiting_children' }))
    ok(await run.pause({ kind: 'awaiting_children' }, { seq: 5 }), 'a repeat')
  })
})
