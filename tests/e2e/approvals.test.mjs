// Tools that the user approves: what is asked, what a grant and a refusal lead to, and who executes then.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { assertChatBody, assertRefused } from './harness/assertions.mjs'
import { answerCall, assertAsStored, callingChat, callsOf, saidLast, stateOf } from './harness/calls.mjs'
import { VERSIONS, textOf, validateMessages } from './harness/clients.mjs'
import { textScript } from './harness/fake-model.mjs'
import { blockScript } from './harness/messages-api.mjs'
import { call } from './harness/session.mjs'
import { chunksOf, openSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { reply, startUiRoute } from './harness/ui-route.mjs'

const TOOLS = [{ name: 'pay', description: 'Pays.', approval: true }, { name: 'look' }]
const route = await startUiRoute()
after(() => route.close())
const set = stage({
  agents: (model) => ({
    openai: { producer: 'openai', baseUrl: model.baseUrl, model: 'm', tools: TOOLS },
    anthropic: { producer: 'anthropic', baseUrl: model.baseUrl, model: 'm', tools: TOOLS },
    ui: { producer: 'ui', url: route.url },
  }),
})
const SCRIPTS = {
  openai: (said, calls = []) => textScript([said], { tool: calls.map(({ id, name, input }) => ({ id, name, arguments: JSON.stringify(input) })) }),
  anthropic: (said, calls = []) =>
    blockScript([{ type: 'text', text: said }, ...calls.map((c) => ({ type: 'tool_use', ...c }))], { stop: calls.length ? 'tool_use' : 'end_turn' }),
}
const PAY = { id: 'p1', name: 'pay', input: { amount: 5 } }
const LOOK = { id: 'l1', name: 'look', input: {} }

let count = 0
async function askedBy(version, agent, calls, then, options) {
  const s = set.session()
  const chat = await callingChat(version, s, set.server.origin, { agent, ...options })
  const text = `${agent} ${count++}`
  const before = set.model.requests.length
  set.model.script(text, SCRIPTS[agent]('May I? ', calls))
  // To the Messages API an answer is a user message of its own, without text.
  if (then) set.model.script(agent === 'anthropic' ? '' : text, SCRIPTS[agent](then))
  await chat.sendMessage({ text })
  return { s, chat, text, requests: () => set.model.requests.slice(before) }
}
const part = (chat, id) => callsOf(chat.lastMessage).find((p) => p.toolCallId === id)
const submit = (s, json) => call(`${s.chat}/tool-result`, { json })

for (const version of VERSIONS) {
  for (const agent of ['openai', 'anthropic']) {
    describe(`ai ${version}, ${agent}`, () => {
      test('a grant offers the call, and its result continues', async () => {
        const { s, chat, requests } = await askedBy(version, agent, [PAY], 'Paid.', { auto: 'approvals' })
        const run = (await s.log())[0].chunk.runId
        assert.deepEqual([part(chat, 'p1').state, part(chat, 'p1').approval.id], ['approval-requested', `${run}::p1`])
        await assertAsStored(version, chat, s, 'while it waits')
        await chat.addToolApprovalResponse({ id: part(chat, 'p1').approval.id, approved: true })
        await chat.until((c) => c.status === 'ready' && part(c, 'p1').state === 'input-available')
        assert.equal((await s.snapshot()).body.status, 'paused')
        assert.equal(requests().length, 1)
        await answerCall(chat, 'p1', 'pay', { receipt: 7 })
        await saidLast(chat, 'Paid.')
        const { body } = await s.snapshot()
        assert.deepEqual([body.status, chat.messages.length, textOf(chat.lastMessage), textOf(body.messages.at(-1))], ['ended', 2, 'May I? Paid.', 'May I? Paid.'])
        assert.deepEqual([part(chat, 'p1').output, callsOf(body.messages.at(-1))[0].output], [{ receipt: 7 }, { receipt: 7 }])
        await validateMessages(version, body.messages)
        await validateMessages(version, chat.messages)
        assert.match(JSON.stringify(requests()[1].body.messages.at(-1)), /receipt/)
      })

      test('a refusal is final, and the model is told', async () => {
        const { s, chat, requests } = await askedBy(version, agent, [PAY], 'Then not.', { auto: 'approvals' })
        await chat.addToolApprovalResponse({ id: part(chat, 'p1').approval.id, approved: false, reason: 'too dear' })
        await saidLast(chat, 'Then not.')
        const { body } = await s.snapshot()
        assert.deepEqual([part(chat, 'p1').state, stateOf(body.messages.at(-1), 'p1')], ['output-denied', 'output-denied'])
        assert.deepEqual([textOf(chat.lastMessage), textOf(body.messages.at(-1))], ['May I? Then not.', 'May I? Then not.'])
        assert.match(JSON.stringify(requests()[1].body.messages.at(-1)), /denied this call: too dear/)
        await validateMessages(version, body.messages)
      })
    })
  }

  test(`ai ${version}: a route that asks executes the call itself`, async () => {
    for (const approved of [true, false]) {
      const s = set.session()
      const text = `route ${version} ${approved}`
      const said = (id, delta) => [{ type: 'text-start', id }, { type: 'text-delta', id, delta }, { type: 'text-end', id }]
      const send = (chunks) => reply((writer) => chunks.forEach((c) => writer.write(c)))
      const answers = [
        send([{ type: 'start' }, { type: 'start-step' }, ...said('a', 'May I? '), { type: 'tool-input-available', toolCallId: 'p1', toolName: 'pay', input: {} }, { type: 'tool-approval-request', approvalId: 'own-1', toolCallId: 'p1' }, { type: 'finish-step' }, { type: 'finish', finishReason: 'tool-calls' }]),
        send([{ type: 'start' }, approved ? { type: 'tool-output-available', toolCallId: 'p1', output: 'done' } : { type: 'tool-output-denied', toolCallId: 'p1' }, { type: 'start-step' }, ...said('b', 'So be it.'), { type: 'finish-step' }, { type: 'finish', finishReason: 'stop' }]),
      ]
      let at = 0
      route.script(text, (res, request) => answers[at++].answer(res, request), 2)
      const chat = await callingChat(version, s, set.server.origin, { agent: 'ui', auto: 'approvals' })
      await chat.sendMessage({ text })
      assert.deepEqual([part(chat, 'p1').state, part(chat, 'p1').approval.id], ['approval-requested', 'own-1'], 'the id is the route’s')
      await chat.addToolApprovalResponse({ id: 'own-1', approved })
      await saidLast(chat, 'So be it.')
      const { body } = await s.snapshot()
      const state = approved ? 'output-available' : 'output-denied'
      assert.deepEqual([part(chat, 'p1').state, stateOf(body.messages.at(-1), 'p1'), chat.messages.length], [state, state, 2])
      assert.deepEqual([textOf(chat.lastMessage), textOf(body.messages.at(-1))], ['May I? So be it.', 'May I? So be it.'])
      const asked = route.to(text)
      assert.equal(asked.length, 2)
      const [answered] = callsOf(asked[1].body.messages.at(-1))
      assert.deepEqual([answered.state, answered.approval], ['approval-responded', { id: 'own-1', approved }])
      await validateMessages(version, body.messages)
    }
  })

  test(`ai ${version}: a route’s call that the client executes`, async () => {
    const s = set.session()
    const text = `delegates ${version}`
    const said = (id, delta) => [{ type: 'text-start', id }, { type: 'text-delta', id, delta }, { type: 'text-end', id }]
    const send = (chunks) => reply((writer) => chunks.forEach((c) => writer.write(c)))
    const answers = [
      send([{ type: 'start' }, { type: 'start-step' }, ...said('a', 'Where? '), { type: 'tool-input-available', toolCallId: 'l1', toolName: 'look', input: {} }, { type: 'finish-step' }, { type: 'finish', finishReason: 'tool-calls' }]),
      send([{ type: 'start' }, { type: 'start-step' }, ...said('b', 'There.'), { type: 'finish-step' }, { type: 'finish', finishReason: 'stop' }]),
    ]
    let at = 0
    route.script(text, (res, request) => answers[at++].answer(res, request), 2)
    const options = { agent: 'ui', auto: 'calls', onToolCall: ({ toolCall }) => void answerCall(options.chat, toolCall.toolCallId, toolCall.toolName, 'here') }
    const chat = (options.chat = await callingChat(version, s, set.server.origin, options))
    await chat.sendMessage({ text })
    await saidLast(chat, 'There.')
    await assertAsStored(version, chat, s)
    assert.equal(textOf(chat.lastMessage), 'Where? There.')
    assert.equal(callsOf(route.to(text)[1].body.messages.at(-1))[0].output, 'here')
  })

  test(`ai ${version}: two tabs answer the same question, and the first word counts`, async () => {
    const { s, chat, requests } = await askedBy(version, 'openai', [PAY], 'Paid.', { auto: 'approvals' })
    const other = await callingChat(version, s, set.server.origin, { auto: 'approvals', messages: (await s.snapshot()).body.messages })
    const { id } = part(chat, 'p1').approval
    await chat.addToolApprovalResponse({ id, approved: true })
    await chat.until((c) => c.status === 'ready' && part(c, 'p1').state === 'input-available')
    await other.addToolApprovalResponse({ id, approved: false })
    await other.until((c) => c.status === 'ready' && part(c, 'p1').state === 'input-available')
    await answerCall(chat, 'p1', 'pay', 'mine')
    await saidLast(chat, 'Paid.')
    await answerCall(other, 'p1', 'pay', 'theirs')
    await saidLast(other, 'Paid.')
    for (const one of [chat, other]) assert.deepEqual([textOf(one.lastMessage), part(one, 'p1').output], ['May I? Paid.', 'mine'])
    assert.equal(requests().length, 2)
  })

  test(`ai ${version}: a reload after the grant still has the call to execute, once`, async () => {
    const { s } = await askedBy(version, 'openai', [PAY], 'Paid.')
    const approvalId = callsOf((await s.snapshot()).body.messages.at(-1))[0].approval.id
    const granted = await submit(s, { approvalId, approved: true })
    assert.deepEqual([granted.body.status, granted.body.continues], ['accepted', true])
    const options = { auto: 'calls', onToolCall: ({ toolCall }) => void answerCall(options.chat, toolCall.toolCallId, toolCall.toolName, 'paid') }
    const chat = (options.chat = await callingChat(version, s, set.server.origin, { ...options, messages: (await s.snapshot('?seed=1')).body.messages }))
    await chat.resumeStream()
    await saidLast(chat, 'Paid.')
    assert.deepEqual(chat.seen.toolCalls, [])
    await assertAsStored(version, chat, s)
  })
}

test('a grant and an answer in two steps: the granted call is offered once the others are answered', async () => {
  const { s, requests } = await askedBy('6-latest', 'openai', [PAY, LOOK], 'Both.')
  const approvalId = callsOf((await s.snapshot()).body.messages.at(-1))[0].approval.id
  assert.equal((await submit(s, { approvalId, approved: true })).body.continues, false)
  const { body } = await submit(s, { toolCallId: 'l1', output: 'seen' })
  assert.deepEqual([body.status, body.continues], ['accepted', true], 'the granted call must be offered')
  const offered = await (await s.reconnect()).collect()
  await assertChatBody(offered)
  const message = (await s.snapshot()).body.messages.at(-1)
  assert.deepEqual([stateOf(message, 'p1'), stateOf(message, 'l1')], ['input-available', 'output-available'])
  assert.equal((await submit(s, { toolCallId: 'p1', output: 'paid' })).body.continues, true)
  const got = await (await s.resume()).collect()
  await assertChatBody(got)
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'May I? Both.')
  assert.equal(requests().length, 2)
})

test('a grant that is sent once more is offered the call once more, and stores nothing', async () => {
  const { s } = await askedBy('6-latest', 'openai', [PAY], 'Paid.')
  const { body } = await s.snapshot()
  const granted = body.messages.with(-1, { ...body.messages.at(-1) })
  granted.at(-1).parts = granted.at(-1).parts.map((p) => (p.toolCallId ? { ...p, state: 'approval-responded', approval: { ...p.approval, approved: true } } : p))
  const post = async () => (await openSse(s.chat, { json: { id: s.id, messages: granted } })).collect()
  const first = await post()
  const log = await s.log()
  const second = await post()
  for (const got of [first, second]) {
    await assertChatBody(got)
    assert.deepEqual(chunksOf(got.frames).map((c) => c.type), ['start', 'tool-input-available', 'finish'])
  }
  assert.deepEqual(await s.log(), log)
})

test('a grant with its result, a word that is not asked for, and a second word', async () => {
  const { s, requests } = await askedBy('6-latest', 'openai', [PAY, LOOK], 'Both.')
  const { approval } = callsOf((await s.snapshot()).body.messages.at(-1))[0]
  assertRefused(await submit(s, { toolCallId: 'l1', approved: true }), 400)
  assertRefused(await submit(s, { toolCallId: 'p1', output: 1 }), 400)
  assertRefused(await submit(s, { toolCallId: 'p1', approval: { id: 'other', approved: true } }), 400)
  assert.equal((await submit(s, { toolCallId: 'p1', approvalId: approval.id, approved: true, output: 'paid' })).body.status, 'accepted')
  assert.equal((await submit(s, { toolCallId: 'p1', approvalId: approval.id, approved: false })).body.status, 'already_completed')
  assert.equal((await submit(s, { toolCallId: 'l1', output: 'seen' })).body.continues, true)
  await (await s.resume()).collect()
  const { body } = await s.snapshot()
  assert.deepEqual(callsOf(body.messages.at(-1)).map((p) => p.output), ['paid', 'seen'])
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  assert.equal(requests().length, 2)
})

test('a send, a stop and a kill while the approval waits', async () => {
  const waiting = async () => (await askedBy('6-latest', 'openai', [PAY], null)).s
  const [sent, stopped, killed] = await Promise.all([waiting(), waiting(), waiting()])
  set.model.script('instead', textScript(['Fine.']))
  await sent.ask('instead', { agent: 'openai' })
  await stopped.stop()
  await set.server.kill()
  await set.server.start()
  const messages = async (s) => (await s.snapshot()).body.messages
  assert.deepEqual(stateOf((await messages(sent))[1], 'p1'), 'output-error')
  assert.deepEqual(stateOf((await messages(stopped))[1], 'p1'), 'output-denied')
  assert.deepEqual(stateOf((await messages(killed))[1], 'p1'), 'approval-requested')
  for (const s of [sent, stopped, killed]) for (const version of VERSIONS) await validateMessages(version, await messages(s))
  const approvalId = callsOf((await messages(sent))[1])[0].approval?.id ?? `${(await sent.log())[0].chunk.runId}::p1`
  const late = await submit(sent, { approvalId, approved: true })
  assertRefused(late, 409)
  assert.equal(late.body.code, 'state_run_superseded')
  set.model.enqueue(textScript(['No.']))
  assert.equal((await submit(killed, { toolCallId: 'p1', approved: false })).body.continues, true)
  const got = await (await killed.resume()).collect()
  await assertChatBody(got)
  assert.equal(textOf((await messages(killed))[1]), 'May I? No.')
})
