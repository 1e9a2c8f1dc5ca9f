// The server's processes are frozen, as a suspended laptop or a starved host freezes them: a silence of the server's own kills nobody.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { textOf } from './harness/clients.mjs'
import { step, textScript } from './harness/fake-model.mjs'
import { TEXT, pushRun } from './harness/push.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const LEASE_MS = 1000
const set = stage({ vars: { LEASE_MS, HEARTBEAT_MS: 500 } })

/** Every process of the server stands still for so long. */
async function freeze(ms) {
  process.kill(-set.server.pid, 'SIGSTOP')
  await pause(ms)
  process.kill(-set.server.pid, 'SIGCONT')
}

for (const ms of [1500, 5000]) {
  test(`frozen for ${ms} ms with a lease of ${LEASE_MS} ms: producers that speak within a lease after that go on`, async () => {
    const runs = await Promise.all(Array.from({ length: 8 }, () => pushRun(set.session(), { leaseMs: LEASE_MS })))
    await Promise.all(runs.map(async (run) => assert.equal((await run.append(TEXT('before '))).status, 200)))
    // Their last words lie apart, so that their leases lapse at different moments of the freeze.
    await Promise.all(runs.map((run, i) => pause(i * 60).then(() => run.renew())))
    await freeze(ms)
    // Half of them speak at once, some by a claim; the others use a good part of their lease.
    await Promise.all(
      runs.map(async (run, i) => {
        await pause(i % 2 ? 500 : 0)
        const said = await run.append([{ type: 'text-delta', id: 't', delta: 'after' }])
        assert.deepEqual([said.status, said.body.status], [200, 'running'], `run ${i}: ${said.text}`)
        assert.equal((await run.end()).body.status, 'completed')
      }),
    )
  })

  test(`frozen for ${ms} ms: a reply that a model drips goes on, and who asks first ends nothing`, async () => {
    const s = set.session()
    const words = Array.from({ length: 12 }, (_, i) => `w${i} `)
    set.model.script(s.id, textScript(['first ', step.mode({ paceMs: 300 }), ...words]))
    const sent = await s.send(s.id)
    await sent.until((f) => f.data?.includes('w1 '))
    await freeze(ms)
    assert.ok(['active', 'ended'].includes((await s.snapshot()).body.status))
    await eventually(async () => (await s.info()).status !== 'active', { what: 'the end of the reply' })
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', `first ${words.join('')}`])
    sent.cut()
  })
}

test('a producer that is silent afterwards is lost all the same', async () => {
  const s = set.session()
  const run = await pushRun(s, { leaseMs: LEASE_MS })
  await run.append(TEXT('kept'))
  await freeze(1500)
  await eventually(async () => (await s.info()).status === 'failed', { every: 200, what: 'the loss of the silent producer' })
  const { body } = await s.snapshot()
  assert.deepEqual([body.errorDetail.code, textOf(body.messages.at(-1))], ['producer_lost', 'kept'])
})
