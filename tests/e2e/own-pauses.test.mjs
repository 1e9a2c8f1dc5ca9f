// A pushed run that waits for its own producer (sub-agents, the rest of a step): live, answered by no page, opened again by its producer.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertRefused } from './harness/assertions.mjs'
import { textOf, validateMessages } from './harness/clients.mjs'
import { answered, contract } from './harness/contract.mjs'
import { ok, producer, says, ui, wireEnd } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const set = stage({ vars: { BATCH_WAIT_MS: 20, LIVE_WAIT_MS: 1500 } })
const KINDS = { awaiting_children: 'suspended_awaiting_children', step_partial: 'suspended_step_partial' }

/** A session whose run has begun a call of its own and waits for its end. */
async function pausedForItself(kind, json = {}) {
  const s = contract(set)
  const p = producer(s)
  const message = userMessage('delegate')
  const run = await p.open({ message, leaseMs: 1000, ...json })
  ok(await run.last([...says('I ask a child. ').slice(0, 4), ui.call('c1', 'child'), ui.stepEnd], { pause: { pending: ['c1'], kind } }))
  return { s, p, run, message, reply: (await s.snapshot()).body.messages[1] }
}

describe('a run that waits for its own producer', () => {
  for (const [kind, status] of Object.entries(KINDS)) {
    test(`${kind}: its status is told everywhere, a send meets a running run, and its producer ends the call`, async () => {
      const { s, p, run, message, reply } = await pausedForItself(kind)
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, body.resumeMessageId], ['paused', reply.id])
      assert.deepEqual([(await s.info()).runStatus, (await s.info()).status], [status, 'paused'])
      assert.equal((await run.control('?wait=1')).body.status, status)
      assert.equal((await wireEnd(s)).data.status, 'paused')

      const refused = await s.refused({ messages: [message, reply, userMessage('and this')] }, { 'x-helix-client': 'test' })
      assertRefused(refused, 409)
      assert.deepEqual([refused.body.code, refused.body.runId], ['state_already_running', run.id])
      assertRefused(await s.toolResult({ toolCallId: 'c1', output: 'mine' }), 400)
      assertRefused(await s.refused({ messages: [message, answered(reply, { c1: 'mine' })] }), 400)
      assert.deepEqual((await s.snapshot()).body.messages, body.messages, 'nothing was stored')

      const next = await p.open({})
      assert.equal(next.claim.resumeMessageId, reply.id)
      const rest = says('The child is back.').map((chunk) => (chunk.id ? { ...chunk, id: 'u' } : chunk))
      ok(await next.last([{ type: 'tool-output-available', toolCallId: 'c1', output: 'from the child' }, ...rest], { end: { status: 'completed' } }))
      const end = (await s.snapshot()).body
      const call = end.messages[1].parts.find((part) => part.toolCallId === 'c1')
      assert.deepEqual([end.status, call.state, call.output, textOf(end.messages[1])], ['ended', 'output-available', 'from the child', 'I ask a child. The child is back.'])
      for (const version of ['7-latest', '6.0.0']) await validateMessages(version, end.messages)
    })
  }

  test('in Helix chunks the end of the call comes from the run that goes on', async () => {
    const s = contract(set)
    const p = producer(s)
    const run = await p.open({ message: userMessage('delegate'), vocabulary: 'helix' })
    const start = [{ type: 'step_start' }, { type: 'tool_start', toolCallId: 'c1', toolName: 'child', arguments: { q: 1 } }]
    ok(await run.last(start, { pause: { pending: ['c1'], kind: 'suspended_awaiting_children' } }))
    assert.equal((await s.info()).runStatus, 'suspended_awaiting_children')
    const next = await p.open({ vocabulary: 'helix' })
    const rest = [{ type: 'tool_end', toolCallId: 'c1', toolName: 'child', result: 'done', success: true }, { type: 'step_start' }, { type: 'text_delta', delta: 'All done.' }]
    ok(await next.last(rest, { end: { status: 'completed' } }))
    const { body } = await s.snapshot()
    const call = body.messages[1].parts.find((part) => part.toolCallId === 'c1')
    assert.deepEqual([body.status, call.state, call.output, textOf(body.messages[1])], ['ended', 'output-available', 'done', 'All done.'])
  })

  test('it has no lease and outlives a restart; its producer hears of a stop', async () => {
    const { s, run, reply } = await pausedForItself('awaiting_children')
    await set.server.kill()
    await set.server.start()
    assert.equal((await s.info()).runStatus, 'suspended_awaiting_children')
    const listening = run.control()
    assert.equal((await s.stop()).body.stopped, true)
    const told = await within(listening, 5000, 'the stop')
    assert.deepEqual([told.body.status, told.body.stopRequested], ['interrupted', true])
    const { body } = await s.snapshot()
    const call = body.messages[1].parts.find((part) => part.toolCallId === 'c1')
    assert.deepEqual([body.status, body.messages[1].id, textOf(body.messages[1]), call.state], ['ended', reply.id, 'I ask a child. ', 'output-error'])
  })
})
