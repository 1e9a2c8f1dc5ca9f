// What happens to a call of an earlier message: a later run of its producer brings the result, or another run gives the call up.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { callsOf } from './harness/calls.mjs'
import { validateMessages } from './harness/clients.mjs'
import { AWARE, chunksIn, contract, eventsIn, typesIn } from './harness/contract.mjs'
import { begin, ok, says, ui } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { BATCH_WAIT_MS: 20 } })
const states = (message) => callsOf(message).map((p) => [p.toolCallId, p.state, p.output ?? p.errorText ?? null])
const messagesOf = async (s) => (await s.snapshot()).body.messages
const asks = (...ids) => [
  { type: 'step_start', step: 1 },
  ...ids.map((toolCallId) => ({ type: 'tool_start', toolCallId, toolName: `look_${toolCallId}`, arguments: {} })),
  { type: 'step_committed', step: 1 },
]

describe('a result that a later Helix run brings', () => {
  test('is told with its tool, and stands in the message that holds the call', async () => {
    const { s, p, run } = await begin(contract(set), { vocabulary: 'helix' })
    ok(await run.last(asks('c1', 'c2', 'c3'), { end: { status: 'completed' } }))
    const next = await p.open({ vocabulary: 'helix', message: userMessage('and?') })
    const [aware, stock] = [await s.reconnect({ headers: AWARE }), await s.reconnect()]
    ok(await next.append([
      { type: 'step_start', step: 1 },
      { type: 'tool_end', toolCallId: 'c1', result: 7, success: true },
      { type: 'tool_end', toolCallId: 'c2', error: 'no net', success: false },
      { type: 'tool_end', toolCallId: 'nobody', result: 1, success: true },
    ]))
    assert.deepEqual(states((await messagesOf(s))[1]).slice(0, 2), [['c1', 'output-available', 7], ['c2', 'output-error', 'no net']], 'whoever reads upon the event finds it')
    const lines = next.lines()
    lines.write({ type: 'tool_end', toolCallId: 'c3', result: 9, success: true }, { type: 'tool_end', toolCallId: 'c3', result: 10, success: true })
    ok(await lines.end())
    ok(await next.last([{ type: 'text_delta', delta: 'There.' }, { type: 'step_committed', step: 1 }], { end: { status: 'completed' } }))
    const got = await aware.collect()
    await assertChatBody(got)
    const told = eventsIn(got, 'tool-output-elsewhere').map((e) => [e.toolCallId, e.toolName])
    assert.deepEqual(told.filter(([id]) => id !== 'nobody'), [['c1', 'look_c1'], ['c2', 'look_c2'], ['c3', 'look_c3']])
    assert.ok(!typesIn(await stock.collect()).some((type) => type.includes('tool-output')), 'a stock client is told nothing that it would fail on')
    const messages = await messagesOf(s)
    assert.deepEqual(states(messages[1])[2], ['c3', 'output-available', 9], 'the first result counts')
    assert.deepEqual(states(messages[3]), [])
    for (const version of ['7-latest', '6.0.0']) await validateMessages(version, messages)
  })
})

describe('a call that another run gives up', () => {
  const call = [...says('I ask. ').slice(0, 4), ui.call('c1', 'look'), ui.stepEnd]

  for (const [name, before] of [['paused', (run) => run.last(call, { pause: {} })], ['running', (run) => run.last(call, { commit: {} })]]) {
    test(`${name}: the run that takes the place says so, and the message is whole`, async () => {
      const { s, p, run } = await begin(contract(set))
      ok(await before(run))
      const next = await p.open({ message: userMessage('never mind'), supersede: true })
      const aware = await s.reconnect({ headers: AWARE })
      ok(await next.last(says('fine'), { end: { status: 'completed' } }))
      const got = await aware.collect()
      await assertChatBody(got)
      assert.deepEqual(eventsIn(got, 'tool-output-elsewhere').map((e) => [e.toolCallId, e.toolName]), [['c1', 'look']])
      const wire = (await s.log()).filter((c) => c.chunk.runId === next.id && c.chunk.type === 'tool-output-error')
      assert.deepEqual(wire.map((c) => c.chunk.toolCallId), ['c1'])
      const messages = await messagesOf(s)
      assert.match(JSON.stringify(states(messages[1])), /c1","output-error","Not executed/)
      for (const version of ['7-latest', '6.0.0']) await validateMessages(version, messages)
    })
  }

  test('a send says so too, to whoever understands', async () => {
    const { s, run } = await begin(contract(set))
    ok(await run.last(call, { pause: {} }))
    const { got } = await s.told('never mind', 'Fine.', { headers: AWARE })
    assert.deepEqual(eventsIn(got, 'tool-output-elsewhere').map((e) => e.toolCallId), ['c1'])
    assert.equal(chunksIn(got).at(-1).type, 'finish')
  })
})
