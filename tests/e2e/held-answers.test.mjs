// Answers that come while the reply still runs: what a client was shown it may answer at once. It is held, and counts when the run waits.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { answerCall, assertAsStored, callingChat, callsOf, stateOf } from './harness/calls.mjs'
import { textOf, validateMessages } from './harness/clients.mjs'
import { AWARE, chunksIn, contract, deltasIn, typesIn } from './harness/contract.mjs'
import { gate } from './harness/fake-model.mjs'
import { blockScript } from './harness/messages-api.mjs'
import { begin, ok, says, ui } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { chunkScript, startUiRoute } from './harness/ui-route.mjs'
import { eventually, within } from './harness/wait.mjs'

const TOOLS = [{ name: 'look' }, { name: 'pay', approval: true }]
const LOOK = { type: 'tool_use', id: 'c1', name: 'look', input: { q: 1 } }
const MORE = { ...LOOK, id: 'c2' }
const PAY = { type: 'tool_use', id: 'p1', name: 'pay', input: { amount: 5 } }
const text = (said) => ({ type: 'text', text: said })

const route = await startUiRoute()
after(() => route.close())
const agents = (model) => ({
  default: { producer: 'anthropic', baseUrl: model.baseUrl, model: 'm', tools: TOOLS },
  ui: { producer: 'ui', url: route.url },
})

let count = 0
/** A reply that has asked for these calls and is still speaking: `finish()` lets it end. `then`: what the model says to the answers. */
async function asking(set, calls = [LOOK], then = ['Done.'], headers = {}) {
  const s = contract(set)
  const said = `ask ${count++}`
  const rest = gate()
  const of = (request) => JSON.stringify(request.body.messages).includes(said)
  const answers = (request) => of(request) && JSON.stringify(request.body.messages).includes('tool_result')
  set.model.script(answers, blockScript(then.map(text)))
  set.model.script(said, blockScript([text('I ask. '), ...calls, rest, text('Meanwhile. ')], { stop: 'tool_use' }))
  const message = userMessage(said)
  const sent = await s.post({ messages: [message] }, headers)
  await sent.until((f) => f.data?.includes(`"toolCallId":"${calls.at(-1).id}"`) && /tool-(input-available|approval-request)/.test(f.data))
  if (calls.at(-1) === PAY) await sent.until((f) => f.data?.includes('tool-approval-request'))
  const { runId, messageId } = { runId: (await s.info()).runId, messageId: (await s.snapshot()).body.resumeMessageId }
  const part = (c) => ({ type: `tool-${c.name}`, toolCallId: c.id, state: 'input-available', input: c.input })
  const reply = { id: messageId, role: 'assistant', parts: [{ type: 'step-start' }, { type: 'text', text: 'I ask. ', state: 'done' }, ...calls.map(part)] }
  return { s, sent, message, reply, runId, finish: () => rest.open(), requests: () => set.model.requests.filter(of) }
}
const withOutput = (reply, id, output) => ({ ...reply, parts: reply.parts.map((p) => (p.toolCallId === id ? { ...p, state: 'output-available', output } : p)) })
const held = (answer) => {
  ok(answer)
  assert.deepEqual([answer.body.status, answer.body.held, answer.body.continues], ['accepted', true, false])
}
const replyOf = async (s) => (await s.snapshot()).body.messages.at(-1)
const states = (message) => callsOf(message).map((p) => [p.toolCallId, p.state])
const atRest = (s) => eventually(async () => (await s.snapshot()).body.status !== 'active', { what: 'the end of the run' })

describe('a model', () => {
  const set = stage({ agents, vars: { LEASE_MS: 20_000 } })

  test('an answer by /tool-result is held, said once, and the reply goes on with it in every open response', async () => {
    const { s, sent, finish, requests, runId } = await asking(set)
    const aware = await s.resume(0, { headers: AWARE })
    held(await s.toolResult({ toolCallId: 'c1', output: { sky: 'clear' } }))
    const again = await s.toolResult({ toolCallId: 'c1', output: { sky: 'clear' }, runId })
    assert.deepEqual([again.status, again.body.status], [200, 'already_completed'])
    for (const other of [{ output: { sky: 'dark' } }, { errorText: 'no' }]) {
      const refused = await s.toolResult({ toolCallId: 'c1', ...other })
      assertRefused(refused, 409)
      assert.equal(refused.body.code, 'state_answer_conflict')
    }
    assert.equal((await s.snapshot()).body.status, 'active', 'nothing is cut short')
    finish()
    for (const got of [await sent.collect(), await aware.collect()]) {
      await assertChatBody(got)
      assert.deepEqual([deltasIn(got), typesIn(got).filter((t) => t === 'finish').length], ['I ask. Meanwhile. Done.', 1])
      assert.equal(chunksIn(got).filter((c) => c.type === 'tool-output-available').length, 1)
    }
    const message = await replyOf(s)
    assert.deepEqual([textOf(message), states(message)], ['I ask. Meanwhile. Done.', [['c1', 'output-available']]])
    assert.equal(requests().length, 2)
    assert.match(JSON.stringify(requests()[1].body.messages), /"tool_use_id":"c1".*clear/)
    await validateMessages('7-latest', (await s.snapshot()).body.messages)
    assertWireBody(await (await s.sse(0)).collect())
  })

  test('a stock POST gets the rest of the live reply, and what follows it', async () => {
    const { s, sent, message, reply, finish, requests } = await asking(set)
    const answered = withOutput(reply, 'c1', 'blue')
    const posts = [await s.post({ messages: [message, answered] }), await s.post({ messages: [message, answered] })]
    const refused = await s.refused({ messages: [message, withOutput(reply, 'c1', 'green')] })
    assertRefused(refused, 409)
    finish()
    for (const post of posts) {
      const got = await post.collect()
      await assertChatBody(got)
      assert.deepEqual([chunksIn(got)[0].messageId, deltasIn(got)], [reply.id, 'Meanwhile. Done.'])
      assert.ok(!typesIn(got).includes('tool-input-available'), 'the client holds the call')
    }
    assert.equal(deltasIn(await sent.collect()), 'I ask. Meanwhile. Done.')
    assert.deepEqual([textOf(await replyOf(s)), requests().length], ['I ask. Meanwhile. Done.', 2])
  })

  for (const version of ['7-latest', '6.0.0']) {
    test(`ai ${version}: a page that has lost its stream answers, and shows everything once`, async () => {
      const { s, sent, message, reply, finish } = await asking(set)
      sent.cut()
      const chat = await callingChat(version, s, set.server.origin, { auto: 'calls', messages: [message, reply] })
      const adding = answerCall(chat, 'c1', 'look', 'seen')
      await eventually(async () => (await s.toolResult({ toolCallId: 'c1', output: 'seen' })).body.status === 'already_completed')
      finish()
      await adding
      await chat.until((c) => c.status === 'ready' && textOf(c.lastMessage).endsWith('Done.'))
      assert.deepEqual([textOf(chat.lastMessage), stateOf(chat.lastMessage, 'c1')], ['I ask. Meanwhile. Done.', 'output-available'])
      assert.equal(chat.messages.length, 2)
    })
  }

  test('one of two: the run waits for the other, and the log tells the answer behind its end', async () => {
    const { s, sent, finish, runId } = await asking(set, [LOOK, MORE])
    held(await s.toolResult({ toolCallId: 'c2', errorText: 'no net' }))
    finish()
    const got = await sent.collect()
    assert.deepEqual([chunksIn(got).at(-1).type, chunksIn(got).at(-1).finishReason], ['finish', 'tool-calls'])
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, states(body.messages[1])], ['paused', [['c1', 'input-available'], ['c2', 'output-error']]])
    assert.deepEqual([(await s.log()).at(-1).chunk.type, (await s.log()).at(-1).chunk.runId], ['tool-output-error', runId])
    const last = await s.toolResult({ toolCallId: 'c1', output: 1 })
    assert.deepEqual([last.body.status, last.body.continues], ['accepted', true])
    await atRest(s)
    assert.equal(textOf(await replyOf(s)), 'I ask. Meanwhile. Done.')
  })

  test('an approval, and the result of what was granted', async () => {
    const { s, sent, finish, requests, runId } = await asking(set, [PAY])
    held(await s.toolResult({ toolCallId: 'p1', approved: true, approvalId: `${runId}::p1` }))
    assertRefused(await s.toolResult({ toolCallId: 'p1', approved: false }), 409)
    held(await s.toolResult({ toolCallId: 'p1', output: { receipt: 7 } }))
    finish()
    await assertChatBody(await sent.collect())
    const message = await replyOf(s)
    assert.deepEqual([textOf(message), states(message)], ['I ask. Meanwhile. Done.', [['p1', 'output-available']]])
    assert.match(JSON.stringify(requests()[1].body.messages), /receipt/)
  })

  test('a denial goes to the model', async () => {
    const { s, sent, finish, requests } = await asking(set, [PAY])
    held(await s.toolResult({ toolCallId: 'p1', approved: false, reason: 'too much' }))
    finish()
    const got = await sent.collect()
    await assertChatBody(got)
    assert.ok(typesIn(got).includes('tool-output-denied'))
    assert.deepEqual([states(await replyOf(s)), requests().length], [[['p1', 'output-denied']], 2])
  })

  test('a stop keeps the result, and what is said later is typed', async () => {
    const { s, sent } = await asking(set, [LOOK, MORE])
    held(await s.toolResult({ toolCallId: 'c1', output: 'kept' }))
    await s.stop()
    const got = await sent.collect()
    await assertChatBody(got)
    const message = await replyOf(s)
    assert.deepEqual(states(message), [['c1', 'output-available'], ['c2', 'output-error']])
    assert.equal(callsOf(message)[0].output, 'kept')
    const late = await s.toolResult({ toolCallId: 'c1', output: 'kept' })
    assert.deepEqual([late.status, late.body.status], [200, 'already_completed'])
  })

  test('a run that another one supersedes takes no answer any more', async () => {
    const { s, runId } = await asking(set)
    held(await s.toolResult({ toolCallId: 'c1', output: 1 }))
    set.model.script(/^ask/, blockScript([text('anew')]))
    await (await s.retry()).collect()
    const late = await s.toolResult({ toolCallId: 'c1', output: 1, runId })
    assertRefused(late, 409)
    assert.equal(late.body.code, 'state_run_superseded')
    assert.equal(textOf(await replyOf(s)), 'anew')
  })

  test('what was not shown cannot be answered', async () => {
    const { s, message, reply, finish, sent } = await asking(set)
    assertRefused(await s.toolResult({ toolCallId: 'c9', output: 1 }), 400)
    assertRefused(await s.toolResult({ toolCallId: 'c1', approved: true }), 400)
    assertRefused(await s.toolResult({ toolCallId: 'c1', output: 'x'.repeat(1 << 20) }), 400)
    assertRefused(await s.refused({ messages: [message, { ...reply, parts: reply.parts.map((p) => (p.toolCallId ? { ...p, state: 'approval-responded', approval: { id: 'x', approved: true } } : p)) }] }), 400)
    finish()
    assert.equal(chunksIn(await sent.collect()).at(-1).finishReason, 'tool-calls', 'nothing of it was taken')
  })
})

test('a model whose object is killed: what was answered counts, and the reply goes on from there', async (t) => {
  const set = await staged(t, { agents, vars: { RECOVERY: 'retry', MAX_ATTEMPTS: 3, LEASE_MS: 5000 } })
  const { s, sent, requests } = await asking(set)
  held(await s.toolResult({ toolCallId: 'c1', output: 'before the crash' }))
  await set.server.kill()
  await sent.collect()
  await set.server.start()
  await s.info()
  await atRest(s)
  const message = await replyOf(s)
  assert.deepEqual([textOf(message), states(message)], ['I ask. Done.', [['c1', 'output-available']]])
  assert.equal(requests().length, 2, 'the call was not asked for again')
  assert.match(JSON.stringify(requests()[1].body.messages), /before the crash/)
})

describe('a chat route', () => {
  const set = stage({ agents, vars: { LEASE_MS: 20_000 } })

  test('an approval given while it speaks reaches it in the next request', async () => {
    const s = contract(set)
    const call = { type: 'tool-input-available', toolCallId: 'd1', toolName: 'delete', input: {} }
    const asks = { type: 'tool-approval-request', approvalId: 'own-1', toolCallId: 'd1' }
    const first = chunkScript([{ type: 'start' }, { type: 'start-step' }, call, asks, ...says('Wait. ').slice(1, 4), { type: 'finish-step' }, { type: 'finish', messageMetadata: { tokens: 3 } }])
    route.script('delete it', async (res, request) => {
      if (!JSON.stringify(request.body ?? {}).includes('"approved":true')) return first.answer(res, request)
      const done = chunkScript([{ type: 'start' }, { type: 'tool-output-available', toolCallId: 'd1', output: 'gone' }, ...says('Deleted.').slice(0, 5), { type: 'finish' }])
      done.open()
      return done.answer(res, request)
    }, 2)
    first.open(4)
    const message = userMessage('delete it')
    const sent = await s.post({ messages: [message], agent: 'ui' })
    await sent.until((f) => f.data?.includes('tool-approval-request'))
    held(await s.toolResult({ toolCallId: 'd1', approved: true, approvalId: 'own-1' }))
    first.open()
    const got = await sent.collect()
    await assertChatBody(got)
    assert.equal(deltasIn(got), 'Wait. Deleted.')
    const reply = await replyOf(s)
    assert.deepEqual([states(reply), reply.metadata], [[['d1', 'output-available']], { tokens: 3 }])
  })
})

describe('a producer outside', () => {
  const set = stage({ vars: { BATCH_WAIT_MS: 20, LIVE_WAIT_MS: 1500 } })
  const STARTS = {
    ui: [...says('I ask. ').slice(0, 4), ui.call('c1', 'look')],
    helix: [{ type: 'step_start', step: 1 }, { type: 'text_delta', delta: 'I ask. ' }, { type: 'tool_start', toolCallId: 'c1', toolName: 'look', arguments: {} }],
  }
  const ENDS = { ui: [ui.stepEnd], helix: [{ type: 'step_committed', step: 1 }] }

  for (const vocabulary of ['ui', 'helix']) {
    test(`${vocabulary}: control shows the answer while it writes, over a kill too; the pause sees it, and the next run goes on`, async () => {
      const { s, p, run } = await begin(contract(set), { vocabulary, runId: `r-${vocabulary}` })
      ok(await run.append(STARTS[vocabulary]))
      const listening = run.control()
      held(await s.toolResult({ toolCallId: 'c1', output: 'one' }))
      const told = await within(listening, 3000, 'the answer')
      assert.deepEqual([told.body.status, told.body.answers], ['running', [{ toolCallId: 'c1', output: 'one' }]])
      await set.server.kill()
      await set.server.start()
      const mine = p.at((await p.ask({ vocabulary, runId: run.id })).body)
      assert.deepEqual((await mine.control('?wait=0')).body.answers, [{ toolCallId: 'c1', output: 'one' }])
      assertRefused(await s.toolResult({ toolCallId: 'c1', output: 'two' }), 409)
      const paused = await mine.last(ENDS[vocabulary], { pause: { pending: ['c1'] } })
      ok(paused)
      assert.equal(paused.body.status, 'suspended_client_tool')
      const seen = await mine.control()
      assert.deepEqual([seen.body.answers, seen.body.complete], [[{ toolCallId: 'c1', output: 'one' }], true])
      assert.deepEqual(states(await replyOf(s)), [['c1', 'output-available']])
      const next = await p.open({ vocabulary: 'ui' })
      ok(await next.last(says('Thanks.').map((c) => (c.id ? { ...c, id: 'u' } : c)), { end: { status: 'completed' } }))
      assert.equal(textOf(await replyOf(s)), 'I ask. Thanks.')
    })

    test(`${vocabulary}: a run that ends without waiting keeps the result`, async () => {
      for (const end of [{ end: { status: 'completed' } }, { fail: { error: 'broke' } }]) {
        const { s, run } = await begin(contract(set), { vocabulary })
        ok(await run.append(STARTS[vocabulary]))
        held(await s.toolResult({ toolCallId: 'c1', output: 'kept' }))
        ok(await run.last(ENDS[vocabulary], end))
        assert.deepEqual(states(await replyOf(s)), [['c1', 'output-available']], JSON.stringify(end))
        assert.equal(callsOf(await replyOf(s))[0].output, 'kept')
        assert.equal((await s.toolResult({ toolCallId: 'c1', output: 'kept' })).body.status, 'already_completed')
      }
    })
  }

  test('a producer that answers the call itself is believed; a stop keeps what was answered', async () => {
    const { s, run } = await begin(contract(set))
    ok(await run.append([...STARTS.ui, ui.call('c2', 'look')]))
    held(await s.toolResult({ toolCallId: 'c1', output: 'client' }))
    held(await s.toolResult({ toolCallId: 'c2', output: 'client' }))
    ok(await run.append([{ type: 'tool-output-available', toolCallId: 'c1', output: 'producer' }]))
    await s.stop()
    assert.deepEqual(callsOf(await replyOf(s)).map((p) => p.output), ['producer', 'client'])
  })
})

/** A stage for one test. */
async function staged(t, options) {
  const { startFakeModel } = await import('./harness/fake-model.mjs')
  const { startRejoin } = await import('./harness/server.mjs')
  const { session } = await import('./harness/session.mjs')
  const set = { session: (id) => session(set.server, id) }
  set.model = await startFakeModel()
  set.server = await startRejoin({ vars: options.vars, agents: options.agents(set.model) })
  t.after(async () => {
    await set.server.close()
    await set.model.close()
  })
  return set
}
