// The alarm alone: nobody asks, its handler fails, its object is started again and again. A dead run is settled once, a live one is left alone.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { workerd } from '../chaos/workerd.mjs'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { startFakeModel, gate, textScript } from './harness/fake-model.mjs'
import { TEXT, pushRun } from './harness/push.mjs'
import { call, session } from './harness/session.mjs'
import { openaiAgent } from './harness/server.mjs'
import { eventually } from './harness/wait.mjs'
import { upstream } from './harness/upstream.mjs'

const LEASE_MS = 2000
let model, server, told
before(async () => {
  model = await startFakeModel()
  told = await producerOutside()
  const agents = { ...openaiAgent(model), outside: { producer: 'push', url: `${told.origin}/told` } }
  server = await workerd({ vars: { AGENTS: agents, LEASE_MS, MAX_ATTEMPTS: 3, RECOVERY: 'retry' } })
})
after(async () => {
  await server?.close()
  await told?.close()
  await model?.close()
})

/** Takes what it is told, and never writes. */
async function producerOutside() {
  const taken = []
  const listener = upstream(async (request, response) => {
    const parts = []
    for await (const part of request) parts.push(part)
    taken.push(JSON.parse(Buffer.concat(parts)))
    response.writeHead(202).end()
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  return { origin: `http://127.0.0.1:${listener.address().port}`, taken, close: () => listener.close() }
}

const restart = async () => {
  await server.kill()
  await server.start()
}
// Like every request it settles what is due, so it is asked once, late; only the row's own time shows who was first.
// What a test has asked of the storage may strike this question, too.
const row = (s) => eventually(async () => (await s.seam('storage', { json: 'load' })).body?.ok?.run)
const fail = async (s, of, count) => assert.equal((await call(`${s.own}/__seam/x?name=fail-storage&of=${of}&count=${count}`)).status, 200)

async function assertLostOnce(s, from, bound, kept) {
  await pause(Math.max(0, from + bound - Date.now()))
  const asked = Date.now()
  const { status, error, ended } = await row(s)
  assert.deepEqual([status, error], ['failed', 'producer_lost'])
  assert.ok(ended <= from + bound && ended < asked, `settled ${ended - from} ms later, by nobody's question`)
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.errorDetail.code, body.errorDetail.retryable], ['failed', 'producer_lost', true])
  assert.deepEqual(body.messages.map(textOf), kept)
  const { terminal } = assertWireBody(await (await s.sse(0)).collect())
  assert.deepEqual([terminal.event, terminal.data.recoverable], ['fail', false])
  return body
}

const settled = []
// Side by side: each waits for its own object's alarm.
describe('nobody asks:', { concurrency: true }, () => {
  test('a pushed run whose producer fell silent is failed, with nobody connected', async () => {
    const s = session(server)
    const run = await pushRun(s, { leaseMs: 1000 })
    await run.append(TEXT('part'))
    await assertLostOnce(s, Date.now(), 1000 + 3000, [s.id, 'part'])
    const late = await run.append([{ type: 'text-delta', id: 't', delta: 'late' }])
    assert.deepEqual([late.status, late.body.code], [409, 'state_run_ended'])
  })

  for (const [of, count] of [['transactions', 1], ['transactions', 2], ['statements', 1], ['statements', 3], ['behind-transaction', 1]]) {
    test(`an alarm whose storage fails (${of}, ${count} times) comes again, and the run ends once`, async () => {
      const s = session(server)
      const run = await pushRun(s, { leaseMs: 1000 })
      await run.append(TEXT('part'))
      await fail(s, of, count)
      // A memory that was thrown away gives a producer outside another lease.
      settled.push([s, await assertLostOnce(s, Date.now(), (1 + count) * (1000 + LEASE_MS) + 3000, [s.id, 'part'])])
    })
  }

  test('a run that was told to a producer outside is waited for, not tried again here', async () => {
    const s = session(server)
    const sent = await s.send(s.id, { agent: 'outside' })
    const begun = Date.now()
    const got = await sent.collect(LEASE_MS + 5000)
    await assertChatBody(got)
    await assertLostOnce(s, begun, LEASE_MS + 3000, [s.id])
    assert.equal((await s.log()).filter((c) => ['step_start', 'reset-step'].includes(c.chunk.type)).length, 0, 'no attempt of its own')
    assert.equal(told.taken.filter((t) => t.sessionId === s.id).length, 1)
  })
})

test('a restart settles nothing again', async () => {
  assert.equal(settled.length, 5)
  await restart()
  for (const [s, body] of settled) assert.deepEqual((await s.snapshot()).body, body)
})

test('five restarts in a row settle no live pushed run, and leave no orphan', async () => {
  const [alive, dead, silent] = [session(server), session(server), session(server)]
  const [run, lost] = [await pushRun(alive, { leaseMs: LEASE_MS }), await pushRun(dead, { leaseMs: LEASE_MS })]
  for (const each of [run, lost]) await each.append(TEXT('part'))
  model.script(silent.id, textScript(['part', gate()]))
  const sent = await silent.send(silent.id)
  await sent.until((f) => f.data?.includes('"part"'))
  let restarted
  for (let i = 0; i < 5; i++) {
    await restart()
    restarted = Date.now()
    // Longer than the lease in all, shorter each time; the first ones fall on its alarm.
    await pause(LEASE_MS * 0.6)
    if (i % 2) assert.equal((await run.append([{ type: 'text-delta', id: 't', delta: `${i}` }])).status, 200, `restart ${i + 1}`)
  }
  assert.equal((await run.append([{ type: 'text-end', id: 't' }, { type: 'finish-step' }])).status, 200)
  assert.equal((await run.end()).status, 200)
  const { body } = await alive.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', 'part13'])

  await assertLostOnce(dead, restarted, LEASE_MS + 5000, [dead.id, 'part'])
  // Its attempts are used up: the model was never heard again.
  const { status, ended } = await row(silent)
  assert.notEqual(status, 'running')
  assert.ok(ended <= restarted + LEASE_MS + 5000)
  const before = [await row(dead), await dead.log(), await row(silent), await silent.log()]
  await restart()
  assert.deepEqual([await row(dead), await dead.log(), await row(silent), await silent.log()], before, 'another restart settles nothing again')
})

test('a run in the object that has outlived its first lease is settled within another when it dies', async () => {
  const s = session(server)
  model.script(s.id, [{ step: 'mode', mode: { paceMs: 300 } }, ...textScript(Array(40).fill('w'))])
  const sent = await s.send(s.id)
  await sent.take(2 + Math.ceil((LEASE_MS + 1000) / 300))
  model.script(s.id, textScript(['again']))
  await restart()
  const restarted = Date.now()
  await pause(LEASE_MS + 5000)
  const { status, ended } = await row(s)
  assert.equal(status, 'completed')
  assert.ok(ended <= restarted + LEASE_MS + 1000, `${ended - restarted} ms behind the restart`)
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'again')
})
