// Storage that does not take what a reply says: it is asked again, and when that does not help the failure is the service's own, with the
// durable part kept.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, textOf, validateMessages } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { call } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const set = stage({ vars: { TEST_SEAMS: '1', RECOVERY: 'retry', MAX_ATTEMPTS: 3 } })
const fail = async (s, of, count) => assert.equal((await call(`${s.own}/__seam/x?name=fail-storage&of=${of}&count=${count}`)).status, 200)
const shownBy = (got) => chunksOf(got.frames).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')
const asked = (s) => set.model.requests.filter((r) => r.lastUserText === s.id).length

/** A reply that has said 'durable ' and goes on when told. */
async function begun(...rest) {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['durable ', held, ...rest]))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('durable '))
  return { s, sent, held }
}

for (const count of [1, 3]) {
  test(`${count} writes that fail cost a reply nothing`, async () => {
    const { s, sent, held } = await begun(step.mode({ paceMs: 30 }), 'one ', 'two ', 'three')
    await fail(s, 'writes', count)
    held.open()
    const got = await sent.collect()
    await assertChatBody(got)
    assert.equal(shownBy(got), 'durable one two three')
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1)), asked(s)], ['ended', 'durable one two three', 1])
    const log = await s.log()
    assert.deepEqual(log.map((c) => c.sequence), log.map((_, i) => i + 1))
  })
}

test('the end of a reply waits for the storage, too', async () => {
  const { s, sent, held } = await begun()
  await fail(s, 'writes', 3)
  held.open()
  const got = await sent.collect()
  await assertChatBody(got)
  assert.deepEqual([(await s.snapshot()).body.status, shownBy(got), asked(s)], ['ended', 'durable ', 1])
})

test('storage that takes nothing for longer is no fault of the provider: own code, the durable part kept, nobody asked again', async () => {
  const { s, sent, held } = await begun(step.mode({ paceMs: 30 }), 'lost ', 'lost ', gate())
  await fail(s, 'writes', 1_000_000)
  held.open()
  assert.equal((await sent.collect()).ended, 'broken', 'nobody waits for ever')
  await fail(s, 'writes', 0)
  await eventually(async () => (await s.info()).runStatus === 'failed', { every: 100, what: 'the end of the run' })
  const { body } = await s.snapshot()
  const { code, category, retryable } = body.errorDetail
  assert.deepEqual([code, category, retryable, textOf(body.messages.at(-1))], ['state_store_failed', 'state', true, 'durable '])
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  const { terminal } = assertWireBody(await (await s.sse(0)).collect())
  assert.deepEqual([terminal.event, terminal.data.errorDetail.code, asked(s)], ['fail', 'state_store_failed', 1])
  set.model.script(`again ${s.id}`, textScript(['again']))
  await assertChatBody(await s.ask(`again ${s.id}`))
})

test('a stop that could not be stored happens as soon as it can', async () => {
  const { s, sent } = await begun()
  await fail(s, 'writes', 2)
  const stopped = await s.stop()
  assert.ok(stopped.body.code ?? stopped.body.success, stopped.text)
  const got = await sent.collect()
  assert.equal(chunksOf(got.frames).at(-1).type, 'abort')
  const { body } = await s.snapshot()
  assert.deepEqual([(await s.info()).runStatus, textOf(body.messages.at(-1))], ['interrupted', 'durable '])
})
