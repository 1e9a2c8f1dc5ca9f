// A run whose object died is settled by its own deadline, though nobody asks; whoever asks first finds it failed, typed and retryable.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { plainly } from '../chaos/workerd.mjs'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, textOf, validateMessages } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'

const LEASE_MS = 2500
const LIVE_WAIT_MS = 700
// The seam shows when the run's row says that it ended.
const set = stage({ vars: { LEASE_MS, LIVE_WAIT_MS }, start: plainly })
const runRow = async (s) => (await s.seam('storage', { json: 'load' })).body.ok.run

/** Runs that have said 'part', with their objects killed under them; answers when they were last alive. */
async function killed(...sessions) {
  for (const s of sessions) {
    set.model.script(s.id, textScript(['part', gate()]))
    const sent = await s.send(s.id)
    await sent.until((f) => f.data?.includes('part'))
  }
  await set.server.kill()
  const died = Date.now()
  await set.server.start()
  return died
}

async function assertLost(s) {
  const { body } = await s.snapshot()
  const { code, category, retryable } = body.errorDetail
  assert.deepEqual([body.status, code, category, retryable], ['failed', 'producer_lost', 'producer', true])
  assert.deepEqual(body.messages.map(textOf), [s.id, 'part'])
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  const { terminal } = assertWireBody(await (await s.sse(0)).collect())
  assert.deepEqual([terminal.event, terminal.data.recoverable], ['fail', false])
  assert.equal((await s.reconnect()).status, 204)
  assert.equal((await s.info()).runStatus, 'failed')
}

test('with nobody asking, its alarm settles it; asked at once, the first answer does', async () => {
  const [asked, left] = [set.session(), set.session()]
  const died = await killed(asked, left)
  await assertLost(asked)
  const now = Date.now()
  if (now < died + LEASE_MS) assert.ok((await runRow(asked)).ended <= now + 500, 'before its lease has lapsed')

  // Nobody asks the other session before its deadline is well past; only time can show what happens to it.
  const quiet = Math.max(died + LEASE_MS, now) + 2000
  await new Promise((r) => setTimeout(r, Math.max(0, quiet - Date.now())))
  const firstAsked = Date.now()
  const { ended, status, error } = await runRow(left)
  assert.deepEqual([status, error], ['failed', 'producer_lost'])
  assert.ok(ended < firstAsked - 500, `settled by its alarm, ${firstAsked - ended} ms before anybody asked`)
  await assertLost(left)

  const before = [(await left.snapshot()).body, await left.log(), await runRow(left)]
  await set.server.kill()
  await set.server.start()
  assert.deepEqual([(await left.snapshot()).body, await left.log(), await runRow(left)], before, 'a second restart changes nothing')

  set.model.script(`again ${left.id}`, textScript(['again']))
  await assertChatBody(await left.ask(`again ${left.id}`))
  assert.equal((await left.snapshot()).body.status, 'ended')
})

test('whoever asks first, and whatever for, does not wait for a dead run', async () => {
  const [wire, chat, sender] = [set.session(), set.session(), set.session()]
  await killed(wire, chat, sender)
  assert.equal(assertWireBody(await (await wire.sse(0)).collect(2500)).terminal.event, 'fail')
  assert.equal((await chat.reconnect({ ms: 2500 })).status, 204)
  set.model.script('next', textScript(['next']))
  await assertChatBody(await sender.ask('next'))
  assert.deepEqual((await sender.snapshot()).body.messages.map(textOf), [sender.id, 'part', 'next', 'next'])
  for (const s of [wire, chat]) await assertLost(s)
})

test('a reader that waits for a run that never starts is told to come back', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['over']))
  await s.ask(s.id)
  const { head } = await s.info()
  const begun = performance.now()
  const { terminal } = assertWireBody(await (await s.sse(head, { waitForLive: 1 })).collect(LIVE_WAIT_MS + 5000), head)
  assert.ok(performance.now() - begun >= LIVE_WAIT_MS - 50)
  assert.deepEqual([terminal.event, terminal.data.recoverable, terminal.data.errorDetail.code], ['fail', true, 'transport_stream_drop'])
  assert.equal((await s.info()).readers, 0)
})
