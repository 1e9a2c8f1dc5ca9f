// Whoever joins, whenever: every reader gets every chunk from its cursor on, once and in order, to the end.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { mulberry32, seed } from './harness/seeded.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { openMany, openTally } from './harness/tally.mjs'

const CHUNKS = 2000
const JOINS = 200
const READERS = 1000
const set = stage({ vars: { TEST_SEAMS: '1', MAX_READERS: 2 * READERS, LEASE_MS: 300_000 } })
const random = mulberry32(seed)

/** A reader that began at `from` has the whole rest of a log of `head` chunks, and the run's end. */
function assertWhole(reader, from, head, what) {
  assert.equal(reader.fault, null, what)
  assert.deepEqual([reader.ended, reader.chunks, reader.cursor], ['clean', head - from, head], what)
  assert.deepEqual(reader.events.map(({ event }) => event), ['caught-up', 'end'], what)
}

test(`${JOINS} readers that join at random instants of ${CHUNKS} chunks (SEED=${seed})`, async () => {
  const s = set.session()
  const deltas = Array.from({ length: CHUNKS }, (_, i) => `${i} `)
  set.model.script(s.id, textScript([step.mode({ paceMs: 1 }), ...deltas]))
  // A third from the log's start, a third from somewhere in what is there by then, a third of the chat.
  const plan = Array.from({ length: JOINS }, (_, i) => ({ kind: ['start', 'middle', 'chat'][i % 3], at: 1 + Math.floor(random() * CHUNKS), part: random() }))
  const joins = []
  const join = async ({ kind, at, part }) => {
    if (kind === 'chat') return { kind, at, got: await (await s.reconnect()).collect() }
    const from = kind === 'start' ? 0 : Math.floor(part * at)
    return { kind, at, from, got: await (await openTally(s, from)).collect() }
  }
  const sent = await s.send(s.id)
  const waiting = plan.toSorted((a, b) => a.at - b.at)
  const onChunk = (sequence) => {
    while (waiting.length && waiting[0].at <= sequence) joins.push(join(waiting.shift()))
  }
  const leader = await openTally(s, 0, { onChunk })
  await leader.collect()
  const bodies = await Promise.all(joins)
  const { head } = await s.info()
  assert.equal(bodies.length, JOINS)
  assertWhole(leader, 0, head, 'the first reader')
  await assertChatBody(await sent.collect())
  for (const { kind, at, from, got } of bodies) {
    if (kind !== 'chat') assertWhole(got, from, head, `joined at ${at} from ${from}`)
    else if (got.text === '') assert.ok(at > CHUNKS * 0.9, `a chat reader that came at ${at} found no run`)
    else assert.equal(chunksOf(got.frames).map((c) => c.delta ?? '').join(''), deltas.join(''), `the chat, joined at ${at}`)
  }
})

test(`${READERS} readers of a live run: all of it, once, in order`, async () => {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['first', held]))
  const sent = await s.send(s.id)
  await sent.take(1)
  const append = (text) => s.seam('append', { body: text })
  // The log grows while they come, and once more when all are there.
  const readers = []
  const appends = []
  while (readers.length < READERS) {
    appends.push(...Array.from({ length: 10 }, (_, i) => append(`${readers.length} ${i}`)))
    readers.push(...(await openMany(50, () => openTally(s))))
  }
  for (let i = 0; i < 20; i++) appends.push(await append(`all ${i}`))
  assert.deepEqual([...new Set((await Promise.all(appends)).map(({ status }) => status))], [200])
  assert.equal((await s.info()).counters.readers.most, READERS + 1)
  held.open()
  await Promise.all(readers.map((reader) => reader.collect()))
  const { head, counters } = await s.info()
  assert.ok(head > appends.length)
  for (const [index, reader] of readers.entries()) assertWhole(reader, 0, head, `reader ${index}`)
  await assertChatBody(await sent.collect())
  assert.deepEqual([counters.opened, Object.values(counters.evicted).reduce((sum, n) => sum + n, 0)], [READERS + 1, 0])
})
