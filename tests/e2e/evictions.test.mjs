// The service ends a response on purpose: why, from where to go on, and that nobody else notices.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

// Between the object and a client that stalls, sockets alone swallow up to 40 MB.
const big = 'x'.repeat(64 * 1024)

/** The chunks that a wire body brought, and its last frame. */
function read(got) {
  const frames = got.frames.filter(isData).map((f) => ({ event: f.event, data: JSON.parse(f.data) }))
  const chunks = frames.filter((f) => f.event === 'chunk').map((f) => f.data.sequence)
  return { chunks, last: frames.at(-1) }
}

/** A run that has said 'first' and goes on with `rest` once `held` opens. */
async function live(set, rest) {
  const s = set.session()
  const held = gate()
  const text = `live ${s.id}`
  set.model.script(text, textScript(['first', held, ...rest]))
  const sent = await s.send(text)
  await sent.until((f) => f.data?.includes('first'))
  return { s, held, sent }
}

describe('a slow reader', () => {
  const set = stage({ vars: { READER_LAG_BYTES: 256 * 1024, READER_STALE_MS: 60_000 } })

  test('on the wire is told so once it is too far behind, and goes on from its own cursor', async () => {
    const { s, held, sent } = await live(set, Array(900).fill(big))
    const stalled = await s.sse(0)
    await stalled.until((f) => f.event === 'caught-up')
    stalled.stall()
    const fast = await s.sse(0)
    await fast.until((f) => f.event === 'caught-up')
    held.open()
    await assertChatBody(await sent.collect())
    assertWireBody(await fast.collect())
    await eventually(async () => (await s.info()).counters.evicted.slow_consumer === 1, { what: 'the eviction' })
    assert.equal((await s.info()).readers, 0, 'its place is free, though its socket has not read the frame')
    stalled.unstall()
    const got = await stalled.collect()
    assert.equal(got.ended, 'clean')
    const { chunks, last } = read(got)
    assert.deepEqual([last.event, last.data.reason], ['evicted', 'slow_consumer'])
    assert.deepEqual(chunks, chunks.map((_, i) => i + 1), 'what it got is contiguous')
    assert.equal(last.data.resumeFrom, chunks.length, 'resumeFrom is the last that it was given')
    const rest = assertWireBody(await (await s.sse(chunks.length)).collect(), chunks.length)
    assert.equal(chunks.length + rest.chunks.length, (await s.info()).head)
  })

  test('of history may take its time', async () => {
    const s = set.session()
    set.model.enqueue(textScript(Array(80).fill(big)))
    await s.ask('history')
    const slow = await s.sse(0)
    slow.stall()
    const other = await s.sse(0)
    assertWireBody(await other.collect())
    assert.equal((await s.info()).counters.evicted.slow_consumer, 0)
    slow.unstall()
    assertWireBody(await slow.collect())
  })

  test('of the chat is never held to the pace of the log', async () => {
    const { s, held, sent } = await live(set, Array(300).fill(big))
    const stalled = await s.reconnect()
    await stalled.until((f) => f.data?.includes('first'))
    stalled.stall()
    held.open()
    await assertChatBody(await sent.collect())
    assert.equal((await s.info()).counters.evicted.slow_consumer, 0)
    stalled.unstall()
    await assertChatBody(await stalled.collect())
  })
})

describe('a reader that takes nothing', () => {
  const set = stage({ vars: { READER_STALE_MS: 700, READER_LAG_BYTES: 1024 ** 3, HEARTBEAT_MS: 400 } })

  test('is stale after a while, on the wire and on the chat', async () => {
    const { s, held, sent } = await live(set, Array(900).fill(big))
    const [wire, chat] = [await s.sse(0), await s.reconnect()]
    for (const reader of [wire, chat]) {
      await reader.until((f) => f.data?.includes('first'))
      reader.stall()
    }
    held.open()
    await assertChatBody(await sent.collect())
    await eventually(async () => (await s.info()).counters.evicted.stale === 2, { what: 'the evictions' })
    assert.equal((await s.info()).readers, 0)
    for (const reader of [wire, chat]) reader.unstall()
    assert.notEqual((await chat.collect()).ended, 'clean', 'a chat body breaks')
    const { chunks, last } = read(await wire.collect())
    assert.deepEqual([last.event, last.data.reason, last.data.resumeFrom], ['evicted', 'stale', chunks.length])
  })

  test('is left alone while there is nothing to take', async () => {
    const { s, held, sent } = await live(set, ['second'])
    const idle = await s.sse(0)
    await idle.until((f) => f.event === 'caught-up')
    for (let i = 0; i < 6; i++) await idle.until((f) => f.comment !== undefined)
    held.open()
    assertWireBody(await idle.collect())
    await sent.collect()
    assert.equal((await s.info()).counters.evicted.stale, 0)
  })
})

describe('an old response', () => {
  const set = stage({ vars: { READER_MAX_AGE_MS: 600 } })

  test('ends: on the wire with a word, on the chat by breaking', async () => {
    const { s, held, sent } = await live(set, ['second'])
    const wire = await s.sse(0)
    const got = await wire.collect()
    assert.equal(got.ended, 'clean')
    const { chunks, last } = read(got)
    assert.deepEqual([last.event, last.data.reason, last.data.resumeFrom], ['evicted', 'stale', chunks.length])
    assert.notEqual((await sent.collect()).ended, 'clean')
    const again = await s.sse(last.data.resumeFrom)
    held.open()
    assertWireBody(await again.collect(), last.data.resumeFrom)
  })
})

describe('over the cap', () => {
  const set = stage({ vars: { MAX_READERS: 3 } })

  test('the newcomer stays, and the one furthest behind or oldest leaves', async () => {
    const { s, held, sent } = await live(set, ['second'])
    const readers = []
    for (let i = 0; i < 2; i++) {
      const reader = await s.sse(0)
      await reader.until((f) => f.event === 'caught-up')
      readers.push(reader)
    }
    assert.equal((await s.info()).readers, 3)
    const newcomer = await s.sse(0)
    assert.notEqual((await sent.collect()).ended, 'clean', 'the oldest is the chat response, whose body breaks')
    await newcomer.until((f) => f.event === 'caught-up')
    const another = await s.reconnect()
    const { last } = read(await readers[0].collect())
    assert.deepEqual([last.event, last.data.reason], ['evicted', 'connection_cap'])
    const { readers: now, counters } = await s.info()
    assert.deepEqual([now, counters.readers.most, counters.evicted.connection_cap], [3, 4, 2])
    held.open()
    assertWireBody(await readers[1].collect())
    assertWireBody(await newcomer.collect())
    await assertChatBody(await another.collect())
  })
})

describe('a reader whose run is not of this log', () => {
  const set = stage({ vars: { LIVE_WAIT_MS: 400 } })

  test('is told that its cursor is worth nothing', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['old', ' and', ' long']))
    await s.ask('before')
    const { runId, head } = await s.info()
    await s.delete()
    set.model.enqueue(textScript(['new']))
    await s.ask('after')
    for (const cursor of [0, 3, head]) {
      const got = await (await s.sse(cursor, { run: runId })).collect()
      const { chunks, last } = read(got)
      assert.deepEqual([chunks.length, last.event, last.data.errorDetail.code], [0, 'truncated', 'TRUNCATED'])
    }
    const own = await s.info()
    assertWireBody(await (await s.sse(2, { run: own.runId })).collect(), 2)
    assert.equal(own.counters.opened > 0, true)
    assert.equal((await s.info()).counters.truncated, 3)
  })

  test('that waits for a run is told when none comes, whatever the status', async () => {
    const s = set.session()
    const never = read(await (await s.sse(0, { waitForLive: 1 })).collect())
    assert.deepEqual([never.chunks.length, never.last.event, never.last.data.errorDetail.cause], [0, 'fail', 'run_not_live'])
    assert.deepEqual(await s.info(), { exists: false }, 'it has stored nothing')
    set.model.enqueue(textScript(['done']))
    await s.ask('done')
    const { head } = await s.info()
    const { last } = read(await (await s.sse(head, { waitForLive: 1 })).collect())
    assert.deepEqual([last.event, last.data.recoverable, last.data.errorDetail.cause], ['fail', true, 'run_not_live'])
  })
})

describe('counters and log lines', () => {
  const output = []
  const set = stage({ vars: { LOG_SESSION_IDS: '' }, logLevel: 'log', onOutput: (text) => output.push(text) })

  test('count what was done, and never name the session or its content', async () => {
    const s = set.session('a-conversation-of-alice')
    set.model.enqueue(textScript(['secret-content-of-the-reply']))
    await s.ask('secret-content-of-the-question')
    assertWireBody(await (await s.sse(2)).collect(), 2)
    const { counters, head } = await s.info()
    assert.deepEqual(counters.readers, { now: 0, most: 1 })
    assert.deepEqual([counters.opened, counters.resumed, counters.appended, counters.reaped], [2, 1, head, 0])
    assert.equal(counters.chunksSent, head + head - 2)
    assert.ok(counters.bytesSent > 0 && counters.flushes >= 2 && counters.rowsWritten > 0)
    const lines = () => output.join('').split('\n').filter((line) => line.includes('"event":'))
    await eventually(() => lines().filter((line) => line.includes('response_closed')).length === 2, { what: 'the log lines' })
    const parsed = lines().map((line) => JSON.parse(line.slice(line.indexOf('{'))))
    const settled = parsed.find((line) => line.event === 'run_settled')
    assert.deepEqual([settled.status, settled.chunks, settled.code], ['completed', head, null])
    const closed = parsed.filter((line) => line.event === 'response_closed')
    assert.deepEqual(closed.map((line) => [line.dialect, line.ending, line.from, line.through]), [['chat', 'completed', 0, head], ['wire', 'completed', 2, head]])
    assert.equal(new Set(parsed.map((line) => line.session)).size, 1)
    assert.doesNotMatch(lines().join('\n'), /alice|secret-content/)
  })
})
