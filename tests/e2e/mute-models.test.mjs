// Model servers that keep the connection alive and say nothing: bounded by a multiple of the lease.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { step, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const LEASE_MS = 1000
const MUTE_LEASES = 10
const set = stage({ vars: { LEASE_MS, HEARTBEAT_MS: 300, MAX_ATTEMPTS: 1 } })

const requestOf = (s) => set.model.requests.find((request) => request.lastUserText === s.id)
/** Each pause begins when it is played. */
const pause = { step: 'wait', get gate() { return new Promise((resolve) => setTimeout(resolve, 400).unref()) } }
const endless = (...said) => Array.from({ length: 500 }, () => [pause, ...said]).flat()

// Side by side: each waits for ten leases.
describe('one that sends nothing but', { concurrency: true }, () => {
  for (const [name, noise] of [['comments', step.comment('PROCESSING')], ['empty events', step.event({ choices: [] })], ['words in data lines', step.event(': PROCESSING')]]) {
    test(`${name} is heard for ${MUTE_LEASES} leases and not for ever`, async () => {
      const s = set.session()
      set.model.script(s.id, [...textScript(['Hello'], { finish: null }), ...endless(noise)])
      const begun = performance.now()
      const got = await (await s.send(s.id)).collect(MUTE_LEASES * LEASE_MS + 10_000)
      const took = performance.now() - begun
      await assertChatBody(got)
      assert.ok(took >= MUTE_LEASES * LEASE_MS - 500, `after ${took} ms`)
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, body.errorDetail.code], ['failed', 'provider_timeout'])
      assert.equal(textOf(body.messages.at(-1)), 'Hello')
      await within(requestOf(s).aborted, 2000, 'the end of the request')
    })
  }
})

test('one that waits in a queue for some leases and then speaks is heard', async () => {
  const s = set.session()
  set.model.script(s.id, [...endless(step.comment('PROCESSING')).slice(0, 14), ...textScript(['late'])])
  await assertChatBody(await (await s.send(s.id)).collect(20_000))
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', 'late'])
})
