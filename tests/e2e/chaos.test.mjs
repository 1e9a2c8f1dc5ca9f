// Twenty kills of the campaign (`make chaos` makes more): the server or the producer, at random moments, with runs of every kind.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { campaign } from '../chaos/campaign.mjs'
import { seed } from './harness/seeded.mjs'

test(`twenty kills lose nothing, repeat nothing and leave nothing running (SEED=${seed})`, { timeout: 240_000 }, async () => {
  const { kills, failures } = await campaign({ seed, kills: 20 })
  assert.deepEqual(failures, [])
  assert.equal(kills, 20)
})
