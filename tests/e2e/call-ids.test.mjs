// One id stands for one call of the session, whatever its producer calls it: ids that a producer uses again, calls that it says again, and
// answers that come late.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { assertChatBody, assertRefused } from './harness/assertions.mjs'
import { callsOf } from './harness/calls.mjs'
import { validateMessages } from './harness/clients.mjs'
import { answered, chunksIn, contract } from './harness/contract.mjs'
import { textScript } from './harness/fake-model.mjs'
import { blockScript } from './harness/messages-api.mjs'
import { producer, ui } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { reply, startUiRoute } from './harness/ui-route.mjs'

const TOOLS = [{ name: 'delete_file', approval: true }, { name: 'ask' }]
const route = await startUiRoute()
after(() => route.close())
const set = stage({
  vars: { BATCH_WAIT_MS: 10, LIVE_WAIT_MS: 1500 },
  agents: (model) => ({
    default: { producer: 'openai', baseUrl: model.baseUrl, model: 'm', tools: TOOLS },
    anthropic: { producer: 'anthropic', baseUrl: model.baseUrl, model: 'm', tools: TOOLS },
    demo: { producer: 'demo', paceMs: 0 },
    ui: { producer: 'ui', url: route.url },
  }),
})
const SCRIPTS = {
  default: (said, calls = []) => textScript([said], { tool: calls.map(({ id, name, input }) => ({ id, name, arguments: JSON.stringify(input) })) }),
  anthropic: (said, calls = []) =>
    blockScript([{ type: 'text', text: said }, ...calls.map((c) => ({ type: 'tool_use', ...c }))], { stop: calls.length ? 'tool_use' : 'end_turn' }),
}
/** The vendor's own id of a call: the same in every turn, as some number them. */
const OWN = { default: 'delete_file:0', anthropic: 'toolu_0' }
const deletes = (agent, path) => ({ id: OWN[agent], name: 'delete_file', input: { path } })

/** A turn whose model makes these calls; `[the user message, the stored reply]`. */
async function turn(s, agent, calls, message = userMessage(`turn ${Math.random()}`)) {
  set.model.script(message.parts[0].text, SCRIPTS[agent]('I ask. ', calls))
  await assertChatBody(await (await s.post({ agent, messages: [message] })).collect())
  return [message, (await s.snapshot()).body.messages.at(-1)]
}
const idsOf = async (s) => (await s.snapshot()).body.messages.flatMap(callsOf).map((p) => p.toolCallId)
const late = (answer) => assert.deepEqual([answer.status, answer.body.code], [409, 'state_run_superseded'], answer.text)
const taken = (answer) => assert.deepEqual([answer.status, answer.body.status], [200, 'accepted'], answer.text)

/** The ids of calls and of results in a model's request, in order. */
const idsIn = ({ body }) =>
  body.messages.flatMap((m) => [
    ...(m.tool_calls ?? []).map((c) => c.id),
    ...(m.tool_call_id ? [m.tool_call_id] : []),
    ...(Array.isArray(m.content) ? m.content : []).flatMap((b) => (b.type === 'tool_use' ? [b.id] : b.type === 'tool_result' ? [b.tool_use_id] : [])),
  ])

for (const agent of ['default', 'anthropic']) {
  describe(`${agent}: a vendor that numbers its calls anew`, () => {
    const own = OWN[agent]

    test('names another call in each turn, and an answer reaches the one that it names', async () => {
      const s = contract(set)
      await turn(s, agent, [deletes(agent, 'P')])
      const [, second] = await turn(s, agent, [deletes(agent, 'Q')])
      assert.deepEqual(await idsOf(s), [own, `${own}_2`])
      late(await s.toolResult({ toolCallId: own, approved: true }))
      assert.equal((await s.snapshot()).body.messages.at(-1).parts.at(-1).state, 'approval-requested', 'the newer call is untouched')
      const approval = callsOf(second)[0].approval.id
      assert.equal(approval, `${(await s.info()).runId}::${own}_2`)
      taken(await s.toolResult({ approvalId: approval, approved: true }))
      set.model.script(agent === 'anthropic' ? '' : (await s.snapshot()).body.messages.at(-2).parts[0].text, SCRIPTS[agent]('Gone.'))
      const before = set.model.requests.length
      taken(await s.toolResult({ toolCallId: `${own}_2`, output: 'deleted Q' }))
      await (await s.resume(undefined)).collect()
      const { messages } = (await s.snapshot()).body
      assert.deepEqual(messages.flatMap(callsOf).map((p) => [p.toolCallId, p.input.path, p.state]), [[own, 'P', 'output-error'], [`${own}_2`, 'Q', 'output-available']])
      await validateMessages('7-latest', messages)
      // The Messages API wants each id once in a request; there the second one differs.
      const ids = idsIn(set.model.requests.at(before))
      if (agent === 'default') assert.deepEqual(ids, [own, own, own, own], 'the model knows its own')
      else assert.deepEqual([ids[0], ids[0], ids[2], ids.length], [own, ids[1], ids[3], 4])
    })

    test('after a regenerate a stale tab’s answer is late, by message and by id', async () => {
      const s = contract(set)
      const [message, old] = await turn(s, agent, [deletes(agent, 'P')])
      set.model.script(message.parts[0].text, SCRIPTS[agent]('Again. ', [deletes(agent, 'Q')]))
      await (await s.post({ agent, trigger: 'regenerate-message', messages: [message] })).collect()
      const now = (await s.snapshot()).body.messages.at(-1)
      assert.notEqual(now.id, old.id)
      assert.deepEqual(await idsOf(s), [`${own}_2`])
      const granted = { ...old, parts: old.parts.map((p) => (p.toolCallId ? { ...p, state: 'approval-responded', approval: { ...p.approval, approved: true } } : p)) }
      const requests = set.model.requests.length
      late(await s.refused({ agent, messages: [message, granted] }))
      late(await s.toolResult({ toolCallId: own, approved: true }))
      assert.deepEqual([(await s.snapshot()).body.messages.at(-1), set.model.requests.length], [now, requests])
    })
  })
}

describe('ids of a vendor', () => {
  test('stay taken after an edit, a retry and a stop', async () => {
    const s = contract(set)
    const call = { id: 'c', name: 'ask', input: {} }
    const [message] = await turn(s, 'default', [call])
    await turn(s, 'default', [call], { ...message, parts: [{ type: 'text', text: 'edited' }] })
    assert.deepEqual(await idsOf(s), ['c_2'])
    set.model.script('edited', SCRIPTS.default('', [call]))
    await (await s.retry()).collect()
    assert.deepEqual(await idsOf(s), ['c_3'])
    for (const id of ['c', 'c_2']) late(await s.toolResult({ toolCallId: id, output: 1 }))
    await s.stop()
    await turn(s, 'default', [call])
    assert.deepEqual(await idsOf(s), ['c_3', 'c_4'])
    assert.equal((await s.toolResult({ toolCallId: 'c_3', output: 1 })).body.status, 'already_completed', 'by the stop')
    set.model.script((await s.snapshot()).body.messages.at(-2).parts[0].text, textScript(['Thanks.']))
    taken(await s.toolResult({ toolCallId: 'c_4', output: 4 }))
    assertRefused(await s.toolResult({ toolCallId: 'c_5', output: 1 }), 400)
  })

  test('a continuation that uses an id of its message again', async () => {
    const s = contract(set)
    const call = (q) => ({ id: 'c', name: 'ask', input: { q } })
    const [message, first] = await turn(s, 'default', [call(1)])
    set.model.script(message.parts[0].text, SCRIPTS.default('', [call(2)]))
    const got = await (await s.post({ messages: [message, answered(first, { c: 'one' })] })).collect()
    assert.deepEqual(chunksIn(got).filter((c) => c.type === 'tool-input-available').map((c) => c.toolCallId), ['c_2'])
    assert.equal((await s.snapshot()).body.messages.at(-1).id, first.id, 'a message that goes on keeps its id')
    set.model.script(message.parts[0].text, textScript(['Thanks.']))
    taken(await s.toolResult({ toolCallId: 'c_2', output: 'two' }))
    await (await s.resume(undefined)).collect()
    assert.deepEqual(callsOf((await s.snapshot()).body.messages.at(-1)).map((p) => [p.toolCallId, p.output]), [['c', 'one'], ['c_2', 'two']])
    assert.deepEqual(idsIn(set.model.requests.at(-1)), ['c', 'c', 'c', 'c'])
  })

  test('a granted call is answered under the run that asked; another run’s name for it is refused', async () => {
    const s = contract(set)
    const [message] = await turn(s, 'default', [deletes('default', 'P')])
    const { runId: asked } = await s.info()
    taken(await s.toolResult({ approvalId: `${asked}::delete_file:0`, approved: true }))
    const { runId: offers } = await s.info()
    assert.notEqual(offers, asked)
    assertRefused(await s.toolResult({ toolCallId: 'delete_file:0', runId: 'run_of_nobody', output: 1 }), 400)
    set.model.script(message.parts[0].text, SCRIPTS.default('', [{ id: 'c', name: 'ask', input: {} }]))
    taken(await s.toolResult({ approvalId: `${asked}::delete_file:0`, approved: true, output: 'deleted' }))
    await (await s.resume(undefined)).collect()
    assertRefused(await s.toolResult({ toolCallId: 'c', runId: asked, output: 1 }), 400)
    assert.deepEqual(callsOf((await s.snapshot()).body.messages.at(-1)).map((p) => [p.toolCallId, p.output]), [['delete_file:0', 'deleted'], ['c', undefined]])
  })

  test('two answers under the id of a message before a retry: each counts for its call', async () => {
    const s = contract(set)
    const call = { id: 'c', name: 'ask', input: {} }
    const [message, reply] = await turn(s, 'default', [call])
    set.model.script(message.parts[0].text, textScript(['Thanks.']))
    // As a client holds it whose response went on from an attempt that had said nothing.
    const held = { ...answered(reply, { c: 'one' }), id: 'msg_old' }
    const got = await (await s.post({ messages: [message, held] })).collect()
    assert.equal(chunksIn(got).find((c) => c.type === 'start').messageId, 'msg_old')
    assert.deepEqual((await s.snapshot()).body.messages.flatMap(callsOf).map((p) => p.output), ['one'])
  })
})

describe('the demo', () => {
  test('asks anew after a retry', async () => {
    const s = contract(set)
    await (await s.post({ agent: 'demo', messages: [userMessage('/tool')] })).collect()
    const [id] = await idsOf(s)
    await (await s.retry({ agent: 'demo' })).collect()
    const [other] = await idsOf(s)
    assert.notEqual(other, id)
    late(await s.toolResult({ toolCallId: id, output: 1 }))
    taken(await s.toolResult({ toolCallId: other, output: { place: 'Bern' } }))
    await (await s.resume(undefined)).collect()
    assert.equal(callsOf((await s.snapshot()).body.messages.at(-1))[0].state, 'output-available')
  })
})

describe('a chat route', () => {
  const said = (kind, more = {}) => ({ type: kind, toolCallId: 'd1', ...more })
  const input = said('tool-input-available', { toolName: 'delete_file', input: { path: 'P' } })
  const asks = [{ type: 'start' }, { type: 'start-step' }, input, said('tool-approval-request', { approvalId: 'd1' }), { type: 'finish-step' }, { type: 'finish', finishReason: 'tool-calls' }]
  const answers = (text, chunks) => route.script(text, reply((writer) => chunks.forEach((c) => writer.write(c)), { ai: '6-latest' }))

  for (const [how, again] of [
    ['whole', [input]],
    ['in a step of its own', [{ type: 'start-step' }, input]],
    ['in pieces', [said('tool-input-start', { toolName: 'delete_file' }), said('tool-input-delta', { inputTextDelta: '{"path":"P"}' }), input]],
  ]) {
    test(`says an approved call again, ${how}, and it is that call`, async () => {
      const s = contract(set)
      const message = userMessage(`approve ${how}`)
      answers(message.parts[0].text, asks)
      await (await s.post({ agent: 'ui', messages: [message] })).collect()
      const asked = (await s.snapshot()).body.messages.at(-1)
      assert.equal(callsOf(asked)[0].approval.id, 'd1', 'as the route sent it')
      const granted = { ...asked, parts: asked.parts.map((p) => (p.toolCallId ? { ...p, state: 'approval-responded', approval: { id: 'd1', approved: true } } : p)) }
      answers(message.parts[0].text, [{ type: 'start' }, ...again, said('tool-output-available', { output: 'deleted' }), { type: 'finish' }])
      const got = await (await s.post({ agent: 'ui', messages: [message, granted] })).collect()
      assert.deepEqual(chunksIn(got).filter((c) => c.type.startsWith('tool-input')), [])
      const shown = (await s.snapshot()).body.messages.at(-1)
      assert.deepEqual(callsOf(shown).map((p) => [p.toolCallId, p.state, p.output]), [['d1', 'output-available', 'deleted']])
      await validateMessages('7-latest', [shown])

      // The next turn: the route finds its own ids, and a call of a turn that is over is another one here.
      const next = userMessage(`next ${how}`)
      answers(next.parts[0].text, asks)
      await (await s.post({ agent: 'ui', messages: [next] })).collect()
      const { messages } = (await s.snapshot()).body
      assert.deepEqual(messages.flatMap(callsOf).map((p) => [p.toolCallId, p.approval.id]), [['d1', 'd1'], ['d1_2', 'd1_2']])
      late2(await s.toolResult({ toolCallId: 'd1', approved: true }))
      answers(next.parts[0].text, [{ type: 'start' }, input, said('tool-output-available', { output: 'again' }), { type: 'finish' }])
      taken(await s.toolResult({ toolCallId: 'd1_2', approvalId: 'd1_2', approved: true }))
      await (await s.resume(undefined)).collect()
      assert.deepEqual(callsOf((await s.snapshot()).body.messages.at(-1)).map((p) => [p.toolCallId, p.output]), [['d1_2', 'again']])
      const told = route.to(next.parts[0].text).at(-1).body.messages.flatMap(callsOf)
      assert.deepEqual(told.map((p) => [p.toolCallId, p.approval.id, p.state]), [['d1', 'd1', 'output-available'], ['d1', 'd1', 'approval-responded']])
    })
  }
  const late2 = (answer) => assert.equal(answer.body.status, 'already_completed', answer.text)
})

describe('a producer outside', () => {
  const asks = {
    ui: (q) => [ui.step, ui.call('c', 'ask', { q }), ui.stepEnd],
    helix: (q) => [{ type: 'step_start' }, { type: 'tool_start', toolCallId: 'c', toolName: 'ask', arguments: { q } }, { type: 'step_committed' }],
  }
  const ok = (answer) => assert.equal(answer.status, 200, answer.text)

  for (const vocabulary of ['ui', 'helix']) {
    test(`${vocabulary}: its own ids for it, the session’s for clients`, async () => {
      const s = contract(set)
      const p = producer(s)
      const first = await p.open({ vocabulary, message: userMessage('one') })
      ok(await first.last(asks[vocabulary](1), { pause: { pending: ['c'] } }))
      const second = await p.open({ vocabulary, message: userMessage('two'), supersede: true })
      ok(await second.append(asks[vocabulary](2)))
      ok(await second.pause({ pending: ['c'] }))
      assert.deepEqual(await idsOf(s), ['c', 'c_2'])
      late(await s.toolResult({ toolCallId: 'c', output: 1 }))
      assert.deepEqual((await second.control('?wait=0')).body.answers, [])
      assert.equal((await s.toolResult({ toolCallId: 'c_2', output: 'two' })).body.status, 'accepted')
      const { answers, complete } = (await second.control('?wait=0')).body
      assert.deepEqual([answers, complete], [[{ toolCallId: 'c', output: 'two' }], true])
      const third = await p.open({ vocabulary })
      const more = asks[vocabulary](3)
      ok(await third.last(more, { pause: { pending: ['c'] } }))
      assert.deepEqual(await idsOf(s), ['c', 'c_2', 'c_3'])
      assert.deepEqual((await s.snapshot()).body.messages.flatMap(callsOf).map((part) => part.input.q), [1, 2, 3])
    })
  }

  test('messages of its own: their calls are named, also in a commit that is repeated', async () => {
    const s = contract(set)
    const p = producer(s)
    const written = { id: 'w', role: 'assistant', parts: [{ type: 'tool-ask', toolCallId: 'c', state: 'input-available', input: 1 }] }
    for (const expected of ['c', 'c_2']) {
      const run = await p.open({ vocabulary: 'opaque', message: userMessage('one'), supersede: true })
      for (let count = 0; count < 2; count++) ok(await run.commit({ messages: [written] }))
      ok(await run.pause({}))
      assert.equal((await idsOf(s)).at(-1), expected)
    }
    taken(await s.toolResult({ toolCallId: 'c_2', output: 1 }))
    late(await s.toolResult({ toolCallId: 'c', output: 1 }))
  })
})

test('the ids are known after a restart', async () => {
  const s = contract(set)
  const call = { id: 'c', name: 'ask', input: {} }
  await turn(s, 'default', [call])
  await turn(s, 'default', [call])
  await set.server.kill()
  await set.server.restart()
  assert.deepEqual(await idsOf(s), ['c', 'c_2'])
  late(await s.toolResult({ toolCallId: 'c', output: 1 }))
  await turn(s, 'default', [call])
  assert.deepEqual(await idsOf(s), ['c', 'c_2', 'c_3'])
  set.model.script((await s.snapshot()).body.messages.at(-2).parts[0].text, textScript(['Thanks.']))
  taken(await s.toolResult({ toolCallId: 'c_3', output: 1 }))
})
