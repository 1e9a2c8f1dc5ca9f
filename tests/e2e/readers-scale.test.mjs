// Readers that come and go by the thousand leave nothing behind: no place in the registry, no memory, no word in the log.
import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { countsMemory, residentBytes } from './harness/memory.mjs'
import { mulberry32, seed } from './harness/seeded.mjs'
import { stage } from './harness/stage.mjs'
import { openMany, openTally } from './harness/tally.mjs'
import { eventually } from './harness/wait.mjs'

// The runtime's collector takes its time: what it has not looked at yet is up to 100 kB per reader, until there were some 4,000. That is why
// the bound is wide; `make bench` looks closer. READER_CYCLES=2000 is a third of the time and says less.
const CYCLES = Number(process.env.READER_CYCLES ?? 6000)
const SETTLED = Math.round(CYCLES * 0.6)
const LEFT = 96 * 1024 * 1024
const ABORTS = 200
const WIDTH = 50
/** Log lines of requests, runs and responses; and the runtime's own words about connections that broke. */
const EXPECTED = /^\{"event":"(response_closed|run_\w+)"|^\[wrangler:info\] (GET|POST) |Network connection lost|disconnected|ECONNRESET|EPIPE/
let output = ''
const onOutput = (text) => (output += text)
const set = stage({ vars: { TEST_SEAMS: '1', HEARTBEAT_MS: 200, LEASE_MS: 300_000 }, logLevel: 'log', onOutput })
const random = mulberry32(seed)

afterEach(() => {
  const served = output.split(/Ready on .*\n/).at(-1)
  const lines = served.split('\n').filter((line) => line.trim() && !EXPECTED.test(line))
  assert.deepEqual([...new Set(lines)], [], 'the server said something else than what requests and readers are logged with')
})

/** A session whose run has said 'first' and waits; nobody follows it. */
async function waiting() {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['first', held]))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('first'))
  sent.cut()
  await nobody(s)
  return { s, held }
}

const nobody = (s) => eventually(async () => (await s.info()).readers === 0, { what: 'the gauge at zero' })

test(`${CYCLES} readers that open and close`, async () => {
  const { s, held } = await waiting()
  const { head } = await s.info()
  const cycles = async (count) => {
    for (let done = 0; done < count; done += WIDTH) {
      const readers = await openMany(WIDTH, () => openTally(s, head), WIDTH)
      readers.forEach((reader, i) => reader[i % 5 ? 'cut' : 'reset']())
    }
    await nobody(s)
  }
  await cycles(SETTLED)
  const before = countsMemory && residentBytes(set.server)
  await cycles(CYCLES - SETTLED)
  const grown = countsMemory ? residentBytes(set.server) - before : 0
  assert.ok(grown < LEFT, `${Math.round(grown / 1e6)} MB more after ${CYCLES - SETTLED} more readers`)
  const { counters } = await s.info()
  assert.deepEqual([counters.readers.now, counters.opened], [0, CYCLES + 1])
  assert.ok(counters.readers.most <= 1000)
  held.open()
  await eventually(async () => (await s.info()).status === 'ended', { what: 'the end of the run' })
  const after = await (await openTally(s)).collect()
  assert.deepEqual([after.fault, after.ended, after.cursor], [null, 'clean', (await s.info()).head])
})

test(`${ABORTS} readers that leave at random offsets of a run (SEED=${seed})`, async () => {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript([step.mode({ paceMs: 1 }), ...Array(1000).fill('x'.repeat(1024)), held]))
  const sent = await s.send(s.id)
  await sent.take(1)
  const left = await openMany(ABORTS, async (index) => {
    const reader = await openTally(s)
    const gone = reader.received(1 + Math.floor(random() * 1024 * 1024)).then(() => reader[index % 3 ? 'cut' : 'reset']())
    return { reader, gone }
  })
  await Promise.all(left.map(({ gone }) => gone))
  sent.reset()
  await nobody(s)
  for (const { reader } of left) assert.deepEqual([reader.fault, reader.ended], [null, 'cut'])
  assert.equal((await s.info()).status, 'active', 'leaving is not stopping')
  held.open()
  await eventually(async () => (await s.info()).status === 'ended', { what: 'the end of the run' })
  const { head, counters } = await s.info()
  assert.deepEqual([counters.readers.now, counters.opened, counters.evicted.server_error], [0, ABORTS + 1, 0])
  const after = await (await openTally(s)).collect()
  assert.deepEqual([after.fault, after.ended, after.chunks], [null, 'clean', head])
})
