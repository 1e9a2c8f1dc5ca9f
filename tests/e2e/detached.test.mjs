// A run that nobody follows is stopped after `DETACHED_MS` (`spec/pitfalls.md`): a visit begins the count anew, and a restart does not.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { plainly } from '../chaos/workerd.mjs'
import { setTimeout as pause } from 'node:timers/promises'
import { assertChatBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { TEXT, pushRun } from './harness/push.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const DETACHED_MS = 3000
const set = stage({ vars: { DETACHED_MS, HEARTBEAT_MS: 200, RECOVERY: 'retry', LEASE_MS: 20_000 }, start: plainly })
// What the run's row says: a look at it is no visit.
const row = async (s) => (await s.seam('storage', { json: 'load' })).body.ok.run
const unfollowed = async (s) => (await row(s)).life?.unfollowed
const left = (s) => eventually(() => unfollowed(s), { what: 'that nobody follows' })

/** A run that has said 'kept ' and waits; `held` lets it go on. */
async function begun() {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['kept ', held, 'whole']), { times: 9 })
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('kept '))
  return { s, sent, held, request: set.model.requests.findLast((r) => r.lastUserText === s.id) }
}

test('it is stopped, with its model call, when nobody comes back', async () => {
  const { s, sent, request } = await begun()
  sent.reset()
  const since = await left(s)
  await request.aborted
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1)), (await s.info()).runStatus], ['ended', 'kept ', 'interrupted'])
  assert.ok((await row(s)).ended >= since + DETACHED_MS)
})

test('a visit begins the count anew', async () => {
  const { s, sent, request } = await begun()
  sent.reset()
  const first = await left(s)
  await pause(first + 2000 - Date.now())
  const visit = await s.reconnect()
  assert.equal(visit.status, 200)
  await visit.until((f) => f.data?.includes('kept '))
  assert.equal(await unfollowed(s), undefined, 'somebody follows')
  await pause(500)
  visit.reset()
  const second = await left(s)
  assert.ok(second >= first + 2000)
  await request.aborted
  assert.ok((await row(s)).ended >= second + DETACHED_MS, `stopped ${(await row(s)).ended - second} ms after the visit`)
})

test('the time in which somebody followed is not counted', async () => {
  const { s, sent, held } = await begun()
  await pause(DETACHED_MS + 500)
  sent.reset()
  await left(s)
  await pause(800)
  const back = await s.reconnect()
  assert.equal(back.status, 200, 'it is there')
  held.open()
  await assertChatBody(await back.collect())
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'kept whole')
})

test('a restart does not begin the count anew', async () => {
  const { s, sent } = await begun()
  sent.reset()
  const since = await left(s)
  await set.server.kill()
  await set.server.start()
  assert.equal(await unfollowed(s), since)
  await eventually(async () => (await row(s)).status !== 'running', { every: 200, what: 'its stop' })
  const { status, ended } = await row(s)
  assert.equal(status, 'interrupted')
  assert.ok(ended >= since + DETACHED_MS)
})

test('who followed when the server died has the whole time to come back', async () => {
  const { s, held } = await begun()
  await pause(DETACHED_MS + 500)
  await set.server.kill()
  await set.server.start()
  held.open()
  const back = await s.reconnect()
  assert.equal(back.status, 200)
  await assertChatBody(await back.collect())
})

test('a run that a producer outside writes counts alike', async () => {
  const s = set.session()
  const run = await pushRun(s, { leaseMs: 20_000 })
  await run.append(TEXT('kept'))
  const since = await unfollowed(s)
  assert.ok(since, 'nobody has followed it yet')
  const follower = await s.sse(0)
  await follower.until((f) => f.data?.includes('"kept"'))
  assert.equal(await unfollowed(s), undefined)
  follower.reset()
  const again = await left(s)
  await eventually(async () => (await row(s)).status !== 'running', { every: 200, what: 'its stop' })
  assert.ok((await row(s)).ended >= again + DETACHED_MS)
  assert.equal((await run.control()).body.stopRequested, true)
})
