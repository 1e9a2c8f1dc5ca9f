// Objects that die again and again under one reply: deaths are counted apart from the model's failures and spread by growing pauses.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { plainly } from '../chaos/workerd.mjs'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, textOf, validateMessages } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

// `MAX_ATTEMPTS` as it is by default. Plain workerd, as the kills are a second apart.
const set = stage({
  vars: { RECOVERY: 'retry', MAX_ATTEMPTS: 3, HEARTBEAT_MS: 300, LEASE_MS: 6000, TEST_SEAMS: '1' },
  start: plainly,
})
const row = async (s) => (await s.seam('storage', { json: 'load' })).body.ok.run
const WORDS = Array.from({ length: 50 }, (_, i) => `w${i} `)

async function again() {
  await set.server.kill()
  await set.server.start()
}

test('a reply of five seconds, killed a second apart six times, is finished when the kills end', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['first ', step.mode({ paceMs: 100 }), ...WORDS]), { times: 20 })
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('first '))
  for (let i = 0; i < 6; i++) {
    await pause(1000)
    await again()
    // A request loads the object, as any follower's would.
    assert.equal((await s.snapshot()).body.status, 'active', `after ${i + 1} kills`)
  }
  // Whoever comes in the pause is shown the attempt that died; its response breaks when the next one begins.
  let got
  do {
    const back = await s.reconnect()
    assert.equal(back.status, 200)
    got = await back.collect()
    await assertChatBody(got)
  } while (got.ended === 'broken')
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', `first ${WORDS.join('')}`])
  assert.ok((await row(s)).life.deaths > 2, 'more often than MAX_ATTEMPTS')
})

test('a model that fails behind deaths has all its own attempts, and what any attempt has shown is kept', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['shown ', gate()]))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('shown '))
  const calls = set.model.requests.length
  set.model.script(s.id, [step.status(503)], { times: 9 })
  await again()
  await eventually(async () => (await s.info()).runStatus === 'failed', { every: 200, what: 'the failure' })
  assert.equal(set.model.requests.length - calls, 3)
  const { body } = await s.snapshot()
  assert.deepEqual([body.errorDetail.code, textOf(body.messages.at(-1))], ['provider_overloaded', 'shown '])
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  const { chunks, terminal } = assertWireBody(await (await s.sse(0)).collect())
  assert.equal(terminal.event, 'fail')
  assert.equal(chunks.at(-1).sequence, (await s.info()).head)
})

test('attempts that show nothing take nothing away: whoever follows them has it once', async () => {
  const s = set.session()
  const fails = gate()
  set.model.script(s.id, textScript(['shown ', step.mode({}), fails, step.error(), step.destroy()]))
  set.model.script(s.id, [step.status(503)], { times: 2 })
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('shown '))
  fails.open()
  assert.equal((await sent.collect()).ended, 'broken')
  const late = await s.reconnect()
  if (late.status === 200) {
    const got = await late.collect()
    await assertChatBody(got)
    assert.equal(got.text.match(/"delta":"shown "/g)?.length, 1)
  }
  await eventually(async () => (await s.info()).runStatus === 'failed', { every: 200, what: 'the failure' })
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'shown ')
})

test('a stop in the pause behind a death keeps what was shown, and no further attempt is made', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['shown ', gate()]), { times: 20 })
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('shown '))
  // The third pause is long enough to be met.
  for (let i = 0; i < 4; i++) {
    await again()
    const { life } = await row(s)
    if (life.againAt && life.againAt > Date.now() + 500) break
    await eventually(async () => !(await row(s)).life.againAt, { what: 'the next attempt' })
  }
  const calls = set.model.requests.length
  assert.equal((await s.stop()).body.stopped, true)
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1)), set.model.requests.length], ['ended', 'shown ', calls])
})
