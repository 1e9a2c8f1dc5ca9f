// Several readers of a long log from its start, while it grows: all of it for each, and the writer goes on.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gate, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'
import { openTally } from './harness/tally.mjs'

const READERS = 6
const CHUNK = 'x'.repeat(16 * 1024)
const PER_FLUSH = 64
const FLUSHES = 50
const MEGABYTES = (FLUSHES * PER_FLUSH * CHUNK.length) / (1024 * 1024)
const SLOWEST_MS = 10_000
const set = stage({ vars: { TEST_SEAMS: '1', LEASE_MS: 300_000 } })

test(`${READERS} readers at the start of ${MEGABYTES} MB, while appends go on`, async () => {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['first', held]))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('first'))
  sent.cut()
  const append = async (body, count) => {
    const answer = await s.seam('append', { body, count })
    assert.equal(answer.status, 200)
    return answer.body.sequence
  }
  let head = 0
  for (let flush = 0; flush < FLUSHES; flush++) head = await append(CHUNK, PER_FLUSH)

  let reading = READERS
  const readers = await Promise.all(Array.from({ length: READERS }, () => openTally(s)))
  const read = readers.map((reader) => reader.until(head, 60_000).finally(() => (reading -= 1)))
  let appends = 0
  let slowest = 0
  for (; reading > 0; appends++) {
    const begun = performance.now()
    await append(`meanwhile ${appends}`)
    slowest = Math.max(slowest, performance.now() - begun)
  }
  await Promise.all(read)
  assert.ok(appends > 0 && slowest < SLOWEST_MS, `${appends} appends, the slowest took ${Math.round(slowest)} ms`)

  held.open()
  await Promise.all(readers.map((reader) => reader.collect()))
  const info = await s.info()
  assert.ok(info.head > head + appends)
  for (const reader of readers) {
    assert.deepEqual([reader.fault, reader.ended, reader.chunks, reader.cursor], [null, 'clean', info.head, info.head])
    assert.deepEqual(reader.events.map(({ event }) => event), ['caught-up', 'end'])
    assert.ok(reader.bytes > FLUSHES * PER_FLUSH * CHUNK.length)
  }
  assert.equal(info.counters.evicted.slow_consumer, 0, 'who reads history is not held to the pace of the log')
})
