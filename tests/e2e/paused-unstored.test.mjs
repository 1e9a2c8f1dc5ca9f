// A run of a producer outside that pauses before it has stored a message: the session goes on, whoever comes next.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { textOf, validateMessages } from './harness/clients.mjs'
import { chunksIn, contract, deltasIn } from './harness/contract.mjs'
import { begin, ok, says, ui } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { BATCH_WAIT_MS: 20, LIVE_WAIT_MS: 1500 } })
/** What a run has said before its pause: nothing that lasts. */
const SAID = { ui: [], helix: [{ type: 'run_note', n: 1 }], opaque: [{ type: 'anything' }] }

for (const vocabulary of Object.keys(SAID)) {
  describe(vocabulary, () => {
    const paused = async () => {
      const { s, p, run } = await begin(contract(set), { vocabulary })
      if (SAID[vocabulary].length) ok(await run.append(SAID[vocabulary]))
      ok(await run.pause({}))
      return { s, p, run }
    }

    test('its producer is told where it stands, its readers get an end, and no answer is taken', async () => {
      const { s, run } = await paused()
      const seen = await run.control('?wait=0')
      assert.deepEqual([seen.status, seen.body.status, seen.body.answers, seen.body.complete], [200, 'suspended_client_tool', [], true])
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, body.messages.map(textOf)], ['paused', ['hello']])
      for (const response of [await s.reconnect(), await s.resume(), await s.resume(1)]) {
        const got = await response.collect()
        await assertChatBody(got)
        assert.equal(chunksIn(got).at(-1).type, 'finish')
      }
      assert.equal(assertWireBody(await (await s.sse(0)).collect()).terminal.data.status, 'paused')
      assert.equal((await s.toolResult({ toolCallId: 'c1', output: 1 })).body.code, 'INVALID_RESULT')
      ok(await s.stop())
      assert.equal((await s.snapshot()).body.status, 'ended')
    })

    test('a send takes its place', async () => {
      const { s, run } = await paused()
      const { got } = await s.told('and now?', 'The model.')
      assert.equal(deltasIn(got), 'The model.')
      const { body } = await s.snapshot()
      assert.deepEqual(body.messages.map(textOf), ['hello', 'and now?', 'The model.'])
      await validateMessages('7-latest', body.messages)
      assert.equal((await run.control('?wait=0')).body.superseded, true)
    })

    test('another run takes its place', async () => {
      const { s, p } = await paused()
      const next = await p.open({ message: userMessage('instead'), supersede: true })
      ok(await next.last(says('fine'), { end: { status: 'completed' } }))
      assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['hello', 'instead', 'fine'])
    })

    test('it goes on in its message, which its readers see whole', async () => {
      const { s, p, run } = await paused()
      const next = await p.open({})
      assert.equal(next.claim.resumeMessageId, run.claim.resumeMessageId)
      const following = await s.reconnect()
      ok(await next.append(says('so ').slice(0, 3)))
      const later = await s.resume(next.claim.fromSequence + 3)
      ok(await next.last([ui.end(), ui.stepEnd, ui.finish], { end: { status: 'completed' } }))
      const got = await following.collect()
      await assertChatBody(got)
      assert.equal(deltasIn(got), 'so ')
      await assertChatBody(await later.collect())
      await assertChatBody(await (await s.resume()).collect())
      assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['hello', 'so '])
    })

    test('a retry and an edit cut it away', async () => {
      for (const act of ['retry', 'edit']) {
        const { s } = await paused()
        const { body } = await s.snapshot()
        set.model.script(act === 'retry' ? 'hello' : 'hello again', [])
        const message = { ...body.messages[0], parts: [{ type: 'text', text: 'hello again' }] }
        const response = act === 'retry' ? await s.retry() : await s.post({ messages: [message] })
        assert.equal(response.status, 200)
        await response.collect()
      }
    })
  })
}
