// A run whose object died in mid-reply is tried again from its last commit; one that may be asked once only, or too often, fails.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { plainly } from '../chaos/workerd.mjs'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const settled = (s) => eventually(async () => (await s.snapshot()).body.status !== 'active', { what: 'the end of the run' })
const shownBy = (got) => chunksOf(got.frames).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')

/** A session whose run has said 'lost ' when the server dies; `then` is what the model says when it is asked once more. */
async function killed(set, then, headers) {
  const s = set.session()
  const text = `killed ${s.id}`
  set.model.script(text, textScript(['lost ', gate(), 'never']))
  const sent = await s.send(text, { headers })
  await sent.until((f) => f.data?.includes('lost '))
  const seen = (await s.log()).at(-1).sequence
  await set.server.kill()
  if (then) set.model.script(text, textScript(then))
  await set.server.start()
  return { s, seen, text }
}

describe('a run whose object died', () => {
  const set = stage({ vars: { RECOVERY: 'retry', MAX_ATTEMPTS: 3, LEASE_MS: 5000 }, start: plainly })

  test('is asked again, and whoever comes sees the surviving reply once', async () => {
    const held = gate()
    const { s, seen } = await killed(set, ['kept ', held, 'whole'])
    const stream = await s.reconnect()
    await stream.until((f) => f.data?.includes('kept '))
    held.open()
    const got = await stream.collect()
    await assertChatBody(got)
    assert.equal(shownBy(got), 'kept whole')
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1)), body.messages.length], ['ended', 'kept whole', 2])
    const log = await s.log()
    assert.deepEqual(log.map((c) => c.sequence), log.map((_, i) => i + 1))
    assert.ok(log.length > seen, 'no chunk that was seen is gone')
    const attempts = log.filter((c) => c.chunk.type === 'step_start').map((c) => c.chunk.attemptId)
    assert.equal(new Set(attempts).size, 2)
    assert.equal(log.filter((c) => c.chunk.type === 'step_committed').at(-1).chunk.committedAttemptId, attempts[1])
    assertWireBody(await (await s.sse(seen)).collect(), seen)
    assert.equal((await s.info()).counters.reaped, 1)
  })

  test('tells an aware client, whose cursor is past what does not count any more', async () => {
    const { s, seen } = await killed(set, ['kept'])
    const got = await (await s.resume(seen)).collect()
    const events = chunksOf(got.frames).filter((c) => c.type === 'data-attempt-superseded')
    assert.equal(events.length, 1)
    assert.equal(events[0].data.reason, 'attempt_superseded')
    const [resync, ...more] = chunksOf(got.frames).filter((c) => c.type === 'data-stream-resync')
    const { checkpointId, fromSequence, messageCount, reason, runId, truncateCheckpointId } = resync.data
    const { body } = await s.snapshot()
    assert.deepEqual([reason, runId, messageCount, more.length, truncateCheckpointId], ['crash_recovery', (await s.info()).runId, 1, 0, undefined])
    assert.ok(checkpointId !== body.checkpointId && fromSequence < seen, 'it names the commit from which the run went on')
    assert.equal(shownBy(got), 'kept')
  })

  test('goes on with the next send', async () => {
    const { s } = await killed(set, ['kept'])
    await settled(s)
    set.model.enqueue(textScript(['next']))
    await assertChatBody(await s.ask('and now'))
    assert.equal((await s.snapshot()).body.messages.length, 4)
  })
})
