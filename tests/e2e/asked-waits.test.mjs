// A wait that a model API asks for: it is kept when it is at most half a lease, and told, not waited for, when it is longer.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { step, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'

const LEASE_MS = 8000
const set = stage({ vars: { LEASE_MS, HEARTBEAT_MS: 1000, MAX_ATTEMPTS: 3 } })

const error = (message, more = {}) => ({ error: { message, ...more } })
const google = (retryDelay) => [
  error('You exceeded your current quota, please check your plan and billing details.', {
    code: 429,
    status: 'RESOURCE_EXHAUSTED',
    details: [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay }],
  }),
]
const inMs = (ms) => new Date(Date.now() + ms)

/** What asks for a wait of so many ms, made when it is sent, as [status, body, headers]. Dates have no fraction of a second. */
const asks = {
  'retry-after in seconds': (ms) => [429, error('slow'), { 'retry-after': `${ms / 1000}` }],
  'retry-after-ms, at 503': (ms) => [503, error('busy'), { 'retry-after-ms': `${ms}` }],
  'retry-after as a date, at 529': (ms) => [529, error('busy'), { 'retry-after': inMs(ms + 999).toUTCString(), date: inMs(0).toUTCString() }],
  'RetryInfo in the list that Google sends': (ms) => [429, google(`${ms / 1000}s`), {}],
  'the reset of the limit that is used up': (ms) => [
    429,
    error('slow'),
    { 'x-ratelimit-remaining-requests': '9', 'x-ratelimit-reset-requests': '6h', 'x-ratelimit-remaining-tokens': '0', 'x-ratelimit-reset-tokens': `${ms}ms` },
  ],
  'the moment of Anthropic’s reset': (ms) => [429, error('slow'), { 'anthropic-ratelimit-tokens-reset': inMs(ms + 999).toISOString(), date: inMs(0).toUTCString() }],
  'words': (ms) => [429, error(`Rate limit reached. Please try again in ${ms / 1000}s.`), {}],
}
const requestsOf = (s) => set.model.requests.filter((request) => request.lastUserText === s.id).length

describe('a wait that is asked for by', () => {
  for (const [name, ask] of Object.entries(asks)) {
    test(`${name} is kept`, async () => {
      const s = set.session()
      set.model.script(s.id, [step.status(...ask(1500))])
      set.model.script(s.id, textScript(['Hello']))
      const begun = performance.now()
      const got = await s.ask(s.id)
      const took = performance.now() - begun
      await assertChatBody(got)
      assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'Hello')
      assert.ok(took >= 1400, `asked again after ${took} ms`)
      assert.equal(requestsOf(s), 2)
    })

    test(`${name} is told when it is longer than half a lease, after one request`, async () => {
      const s = set.session()
      set.model.script(s.id, [step.status(...ask(60_000))], { times: 3 })
      await assertChatBody(await s.ask(s.id))
      const { body } = await s.snapshot()
      assert.equal(body.status, 'failed')
      assert.match(body.errorDetail.code, /^provider_(rate_limited|overloaded)$/)
      const { retryAfterMs } = body.errorDetail
      assert.ok(retryAfterMs >= 55_000 && retryAfterMs <= 65_000, `${retryAfterMs}`)
      assert.equal(requestsOf(s), 1)
    })
  }
})

test('a conversation that is too long is said once, whatever status says it', async () => {
  const full = { code: 400, message: 'the request exceeds the available context size', type: 'exceed_context_size_error', n_ctx: 512 }
  const answers = [
    [step.status(400, { error: full })],
    [step.status(500, error('Context size has been exceeded.', { code: 500, type: 'server_error' }))],
    [...textScript(['Hel'], { finish: null }), step.raw(`error: ${JSON.stringify(full)}\n\n`), step.silence()],
  ]
  for (const answer of answers) {
    const s = set.session()
    set.model.script(s.id, answer, { times: 3 })
    await assertChatBody(await s.ask(s.id))
    assert.equal((await s.snapshot()).body.errorDetail.code, 'provider_context_length')
    assert.equal(requestsOf(s), 1)
  }
})
