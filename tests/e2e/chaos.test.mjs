// Twenty kills of the campaign and forty of its reloads (`make chaos` makes more), at random moments.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { campaign } from '../chaos/campaign.mjs'
import { reloads } from '../chaos/reloads.mjs'
import { seed } from './harness/seeded.mjs'

test(`twenty kills lose nothing, repeat nothing and leave nothing running (SEED=${seed})`, { timeout: 240_000 }, async () => {
  const { kills, failures } = await campaign({ seed, kills: 20 })
  assert.deepEqual(failures, [])
  assert.equal(kills, 20)
})

test(`forty reloads near a reply's end show the reply once (SEED=${seed})`, { timeout: 240_000 }, async () => {
  const { reloads: count, failures } = await reloads({ seed, count: 40 })
  assert.deepEqual(failures, [])
  assert.equal(count, 40)
})
