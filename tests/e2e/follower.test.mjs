// Readers that outlive what happens to their connections: one object that follows another, and many clients across restarts.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { call } from './harness/session.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { follow } from './harness/follower.mjs'
import { openaiAgent } from './harness/server.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const READERS = 20
const set = stage({
  vars: { TEST_SEAMS: '1', RECOVERY: 'fail', LIVE_WAIT_MS: 700 },
  agents: (model) => ({ ...openaiAgent(model), demo: { producer: 'demo', paceMs: 10 } }),
})

/** Another session's object follows `s`; answers what it saw. */
async function followedBy(other, s, query = {}) {
  const answer = await call(`${other.own}/__seam/x?${new URLSearchParams({ name: 'follow', session: s.id, ...query })}`)
  assert.equal(answer.status, 200, answer.text)
  return answer.body
}

describe('an object that follows another', () => {
  test('gets a live run from its first chunk to its end', async () => {
    const s = set.session()
    const sent = await s.send('to be followed', { agent: 'demo' })
    await sent.take(5)
    const seen = await followedBy(set.session(), s)
    assert.equal(sent.ended ?? (await sent.collect()).ended, 'clean')
    const { head } = await s.info()
    assert.deepEqual(seen, { outcome: 'completed', first: 1, last: head, count: head, contiguous: true, opens: 1, caughtUp: true })
  })

  test('gets the rest after its cursor', async () => {
    const s = set.session()
    await s.ask('to be followed', { agent: 'demo' })
    const { head } = await s.info()
    const seen = await followedBy(set.session(), s, { fromSequence: head - 3 })
    assert.deepEqual(seen, { outcome: 'completed', first: head - 2, last: head, count: 3, contiguous: true, opens: 1, caughtUp: true })
  })

  test('may be one of many, and of itself', async () => {
    const s = set.session()
    const held = gate()
    set.model.script(s.id, textScript(['one ', held, 'two']))
    const sent = await s.send(s.id)
    await sent.until((f) => f.data?.includes('one '))
    const all = [s, ...Array.from({ length: 8 }, () => set.session())].map((other) => followedBy(other, s))
    await eventually(async () => (await s.info()).readers === all.length + 1, { what: 'nine followers' })
    held.open()
    const { head } = await eventually(async () => ((await s.info()).status === 'ended' ? s.info() : null), { what: 'the end' })
    for (const seen of await Promise.all(all)) assert.deepEqual([seen.outcome, seen.count, seen.contiguous], ['completed', head, true])
  })

  test('waits for a run instead of taking the last one’s end for it', async () => {
    const s = set.session()
    await s.ask('first', { agent: 'demo' })
    const { head } = await s.info()
    const follows = followedBy(set.session(), s, { fromSequence: head, waitForLive: '1' })
    await eventually(async () => (await s.info()).readers === 1, { what: 'the follower' })
    await s.ask('second', { agent: 'demo' })
    const seen = await follows
    assert.deepEqual([seen.outcome, seen.first, seen.last, seen.contiguous], ['completed', head + 1, (await s.info()).head, true])
  })

  test('gives up when no run starts', async () => {
    const s = set.session()
    await s.ask('first', { agent: 'demo' })
    const seen = await followedBy(set.session(), s, { fromSequence: (await s.info()).head, waitForLive: '1' })
    assert.deepEqual([seen.outcome, seen.count, seen.opens, seen.caughtUp], ['dropped', 0, 2, true])
  })

  test('comes back after a drop, and learns that the session was deleted', async () => {
    const s = set.session()
    const held = gate()
    set.model.script(s.id, textScript(['one ', held]))
    const sent = await s.send(s.id)
    await sent.until((f) => f.data?.includes('one '))
    const follows = followedBy(set.session(), s)
    await eventually(async () => (await s.info()).readers === 2, { what: 'the follower' })
    await s.delete()
    const seen = await follows
    held.open()
    assert.deepEqual([seen.outcome, seen.opens, seen.contiguous], ['absent', 2, true])
    assert.ok(seen.count > 0)
  })

  test('is told of failure, absence and refusal', async () => {
    const s = set.session()
    set.model.script(s.id, [step.status(400)])
    await s.ask(s.id)
    const [failed, absent, refused] = await Promise.all([
      followedBy(set.session(), s),
      followedBy(set.session(), set.session()),
      followedBy(set.session(), s, { fromSequence: 1_000_000 }),
    ])
    assert.deepEqual([failed.outcome, failed.contiguous], ['failed', true])
    assert.deepEqual([absent.outcome, absent.count, absent.opens], ['absent', 0, 1])
    assert.deepEqual([refused.outcome, refused.count, refused.opens], ['refused', 0, 1])
  })
})

describe(`${READERS} followers`, () => {
  const words = Array.from({ length: 80 }, (_, i) => `w${i} `)

  test('across a kill in the middle of a run all get the whole log, once', async () => {
    const s = set.session()
    const held = gate()
    set.model.script(s.id, [step.mode({ paceMs: 8 }), ...textScript([...words, held])])
    const sent = await s.send(s.id)
    const follows = Array.from({ length: READERS }, () => follow(s))
    await sent.take(30)
    await set.server.kill()
    await sent.collect()
    await set.server.start()
    const all = await Promise.all(follows)
    held.open()
    const log = await s.log()
    assert.ok(log.length > 30)
    for (const seen of all) {
      assert.equal(seen.outcome, 'failed')
      assert.equal(seen.fail.errorDetail.retryable, true)
      assert.ok(seen.opened >= 2, `${seen.opened} connections`)
      assert.deepEqual(seen.chunks, log)
    }
  })

  test('whose connections are cut again and again get the whole log, once', async () => {
    const s = set.session()
    set.model.script(s.id, [step.mode({ paceMs: 8 }), ...textScript(words)])
    const sent = await s.send(s.id)
    const cutEvery = (n) => (chunk, stream) => chunk.sequence % n === 0 && stream.cut()
    const all = await Promise.all(Array.from({ length: READERS }, (_, i) => follow(s, { onChunk: cutEvery(12 + i) })))
    await sent.collect()
    const log = await s.log()
    for (const seen of all) {
      assert.deepEqual([seen.outcome, seen.chunks], ['completed', log])
      assert.ok(seen.opened > 2)
    }
  })

  test('across clean restarts of an idle server they wait for the run that comes after', async () => {
    const s = set.session()
    await s.ask('first', { agent: 'demo' })
    const { head } = await s.info()
    // A wait that is cut short by the restart, and the one after it: both bring nothing, so it may be restarted once.
    const follows = Array.from({ length: READERS }, () => follow(s, { from: head, waitForLive: 1 }))
    await eventually(async () => (await s.info()).readers === READERS, { what: 'all followers' })
    await set.server.restart({ LIVE_WAIT_MS: 20_000 })
    await eventually(async () => (await s.info()).readers === READERS, { what: 'all followers again' })
    await s.ask('second', { agent: 'demo' })
    const rest = (await s.log()).slice(head)
    for (const seen of await Promise.all(follows)) assert.deepEqual([seen.outcome, seen.chunks], ['completed', rest])
  })
})
