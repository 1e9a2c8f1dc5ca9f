// One of many readers stops reading while megabytes flow: nobody else notices, and it is sent away and comes back.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gate, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'
import { openMany, openTally } from './harness/tally.mjs'
import { eventually } from './harness/wait.mjs'

const READERS = 40
const CHUNK = 'x'.repeat(64 * 1024)
// The sockets between the object and a client that stalls take more than 10 MB before the object notices.
const FLUSHES = 64
const PER_FLUSH = 8
const SLOWEST_MS = 10_000
const set = stage({ vars: { TEST_SEAMS: '1', READER_LAG_BYTES: 1024 * 1024, LEASE_MS: 300_000 } })

test(`one of ${READERS} readers stalls while ${(FLUSHES * PER_FLUSH * CHUNK.length) >> 20} MB flow`, async () => {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['first', held]))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('first'))
  sent.cut()
  const readers = await openMany(READERS, () => openTally(s))
  await Promise.all(readers.map((reader) => reader.joined()))
  const stalled = readers.pop()
  stalled.stall()

  const delays = []
  for (let flush = 0; flush < FLUSHES; flush++) {
    const begun = performance.now()
    const { status, body } = await s.seam('append', { body: CHUNK, count: PER_FLUSH })
    assert.equal(status, 200)
    await Promise.all(readers.map((reader) => reader.until(body.sequence)))
    delays.push(performance.now() - begun)
  }
  const sorted = delays.toSorted((a, b) => a - b)
  assert.ok(sorted.at(-1) < SLOWEST_MS, `the slowest flush took ${Math.round(sorted.at(-1))} ms, the median one ${Math.round(sorted[FLUSHES / 2])} ms`)

  await eventually(async () => (await s.info()).readers === READERS - 1, { what: 'the eviction' })
  const { counters } = await s.info()
  assert.deepEqual(counters.evicted, { slow_consumer: 1, stale: 0, connection_cap: 0, server_error: 0 })
  stalled.unstall()
  await stalled.collect()
  assert.deepEqual([stalled.fault, stalled.ended], [null, 'clean'])
  assert.deepEqual(stalled.events.at(-1), { event: 'evicted', data: { resumeFrom: stalled.cursor, reason: 'slow_consumer' } })

  held.open()
  const back = await (await openTally(s, stalled.cursor)).collect()
  await Promise.all(readers.map((reader) => reader.collect()))
  const { head } = await s.info()
  for (const reader of [...readers, back]) {
    assert.deepEqual([reader.fault, reader.ended, reader.cursor], [null, 'clean', head])
    assert.deepEqual(reader.events.map(({ event }) => event), ['caught-up', 'end'])
  }
  for (const reader of readers) assert.equal(reader.chunks, head)
  assert.equal(stalled.chunks + back.chunks, head)
})
