// Agents whose replies are written from outside: they are told of their run by one request, and write it over HTTP.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { answerCall, assertAsStored, callingChat, saidLast } from './harness/calls.mjs'
import { textOf } from './harness/clients.mjs'
import { chunksIn, contract, deltasIn } from './harness/contract.mjs'
import { PushedRun, says, ui } from './harness/producer.mjs'
import { startRejoin } from './harness/server.mjs'
import { session } from './harness/session.mjs'
import { gate, within } from './harness/wait.mjs'
import { upstream } from './harness/upstream.mjs'

const set = { session: (id) => session(set.server, id) }
let agent

/** A small server that is told of runs: `next()` is what it is told next; `answers` decides what it says to that. */
async function startAgent() {
  const told = []
  const waiting = []
  const self = { status: 202, hold: null }
  const server = upstream(async (req, res) => {
    let text = ''
    for await (const part of req.setEncoding('utf8')) text += part
    const request = { headers: req.headers, body: JSON.parse(text) }
    const next = waiting.shift()
    if (next) next(request)
    else told.push(request)
    await self.hold
    res.writeHead(self.status).end()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return Object.assign(self, {
    url: `http://127.0.0.1:${server.address().port}/runs`,
    next: () => within(told.length ? Promise.resolve(told.shift()) : new Promise((resolve) => waiting.push(resolve)), 5000, 'a run that is told'),
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  })
}

before(async () => {
  agent = await startAgent()
  set.server = await startRejoin({
    vars: { LIVE_WAIT_MS: 3000, BATCH_WAIT_MS: 20 },
    agents: {
      default: { producer: 'push', url: agent.url, sendHeaders: { 'x-fixed': 'f' }, leaseMs: 20_000 },
      nobody: { producer: 'push', url: 'http://127.0.0.1:9/runs' },
      quick: { producer: 'push', url: agent.url, leaseMs: 1000 },
    },
  })
})
after(async () => {
  await set.server?.close()
  await agent?.close()
})

const ok = (answer) => assert.equal(answer.status, 200, answer.text)
/** The run that the agent was told of, to be written. */
const taken = (s, { body }) => {
  const run = new PushedRun(s, { ...body, expected: 0 })
  assert.equal(body.appendUrl, `${run.url}/chunks`)
  return run
}

test('a send is told with the conversation, and the reply that is written reaches the client', async () => {
  const s = set.session()
  const sending = s.send('hello')
  const told = await agent.next()
  const { entry, sessionId, runId, epoch, leaseMs, messages, results } = told.body
  assert.deepEqual([entry, sessionId, epoch, leaseMs, results, told.headers['x-fixed']], ['send', s.id, 1, 20_000, undefined, 'f'])
  assert.deepEqual(messages.map((m) => [m.role, textOf(m)]), [['user', 'hello']])
  const run = taken(s, told)
  assert.equal((await s.info()).runId, runId)
  ok(await run.append(says('Hi ', 'there').slice(0, 3)))
  ok(await run.last(says('Hi ', 'there').slice(3), { end: { status: 'completed' } }))
  const got = await (await sending).collect()
  await assertChatBody(got)
  assert.equal(deltasIn(got), 'Hi there')
  assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['hello', 'Hi there'])

  const retrying = contract(set, s.id).retry()
  const again = await agent.next()
  assert.deepEqual([again.body.entry, again.body.messages.map(textOf)], ['retry', ['hello']])
  ok(await taken(s, again).last(says('Once more'), { end: { status: 'completed' } }))
  await (await retrying).collect()
  assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['hello', 'Once more'])
})

for (const version of ['7-latest', '6.0.0']) {
  test(`ai ${version}: a tool result and an approval are told as entries, and the reply goes on`, async () => {
    const s = set.session()
    const chat = await callingChat(version, s, set.server.origin, { auto: 'approvals' })
    const sending = chat.sendMessage({ text: 'ask me' })
    const first = taken(s, await agent.next())
    ok(await first.last([...says('I ask. ').slice(0, 4), ui.call('c1', 'ask'), ui.stepEnd], { pause: { kind: 'client_tool', pending: ['c1'] } }))
    await sending
    const adding = answerCall(chat, 'c1', 'ask', 42)
    const told = await agent.next()
    assert.deepEqual([told.body.entry, told.body.results], ['tool-result', [{ toolCallId: 'c1', output: 42 }]])
    assert.deepEqual(told.body.messages.at(-1).parts.filter((p) => p.toolCallId).map((p) => [p.state, p.output]), [['output-available', 42]])
    const second = taken(s, told)
    const approval = [ui.step, ui.start('u'), ui.text('May I? ', 'u'), ui.end('u'), ui.call('c2', 'pay'), { type: 'tool-approval-request', approvalId: 'mine', toolCallId: 'c2' }, ui.stepEnd]
    ok(await second.last(approval, { pause: { kind: 'approval' } }))
    await adding
    await saidLast(chat, 'May I? ')
    const part = chat.lastMessage.parts.find((p) => p.toolCallId === 'c2')
    assert.equal(part.state, 'approval-requested')
    const approving = chat.addToolApprovalResponse({ id: part.approval.id, approved: true })
    const approved = await agent.next()
    assert.deepEqual([approved.body.entry, approved.body.results], ['tool-result', [{ toolCallId: 'c2', approved: true }]])
    const third = taken(s, approved)
    ok(
      await third.last(
        [{ type: 'tool-output-available', toolCallId: 'c2', output: 'paid' }, ui.step, ui.start('v'), ui.text('Done.', 'v'), ui.end('v'), ui.stepEnd, ui.finish],
        { end: { status: 'completed' } },
      ),
    )
    await approving
    await saidLast(chat, 'Done.')
    await assertAsStored(version, chat, s)
  })
}

test('a refusal and no answer fail the run typed, and a retry asks again', async () => {
  for (const [status, name] of [[500, 'default'], [404, 'default'], [302, 'default'], [202, 'nobody']]) {
    agent.status = status
    const s = set.session()
    const got = await (await s.send('hello', { agent: name })).collect()
    agent.status = 202
    await assertChatBody(got)
    assert.equal(chunksIn(got).at(-1).type, 'error')
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.errorDetail.code, body.errorDetail.retryable], ['failed', 'producer_unreachable', true], `${status} ${name}`)
    if (name === 'nobody') continue
    await agent.next()
    const retrying = contract(set, s.id).retry()
    ok(await taken(s, await agent.next()).last(says('now'), { end: { status: 'completed' } }))
    assert.equal(deltasIn(await (await retrying).collect()), 'now')
  }
})

test('one that never answers is dead after its lease; one that answers late, but writes, is not', async () => {
  agent.hold = gate()
  const s = set.session()
  const sending = s.send('hello', { agent: 'quick' })
  const run = taken(s, await agent.next())
  ok(await run.last(says('written'), { end: { status: 'completed' } }))
  assert.equal(deltasIn(await (await sending).collect()), 'written')
  const silent = set.session()
  const reading = await silent.send('hello', { agent: 'quick' })
  await agent.next()
  await within(reading.collect(), 6000, 'the end of the silent run')
  const { body } = await silent.snapshot()
  assert.equal(body.status, 'failed')
  assert.ok(['producer_lost', 'producer_unreachable'].includes(body.errorDetail.code), body.errorDetail.code)
  agent.hold.open()
  agent.hold = null
})

test('a stop reaches the agent at its next write and by control', async () => {
  const s = set.session()
  const sending = s.send('hello')
  const run = taken(s, await agent.next())
  ok(await run.append(says('part').slice(0, 3)))
  const listening = run.control()
  await s.stop()
  assert.equal((await within(listening, 1000, 'the stop')).body.stopRequested, true)
  assert.equal((await run.append([ui.text('late')])).body.stopRequested, true)
  assert.equal(chunksIn(await (await sending).collect()).at(-1).type, 'abort')
  assert.equal(textOf((await s.snapshot()).body.messages[1]), 'part')
})

test('a second send while it writes is refused, a regenerate takes its place', async () => {
  const s = contract(set)
  const sending = s.send('hello')
  const run = taken(s, await agent.next())
  ok(await run.append(says('old').slice(0, 3)))
  const refused = await s.refused({ messages: [{ id: 'x', role: 'user', parts: [{ type: 'text', text: 'more' }] }] })
  assert.equal(refused.body.code, 'state_already_running')
  const retrying = s.retry()
  const next = taken(s, await agent.next())
  assert.deepEqual((await run.append([ui.text('late')])).body.code, 'state_run_superseded')
  ok(await next.last(says('new'), { end: { status: 'completed' } }))
  assert.equal(deltasIn(await (await retrying).collect()), 'new')
  await (await sending).collect()
})
