// `GET /sessions/:s/sse`, `/info` and `/chunks`: stream wire v2 from every cursor of a finished and of a live log.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertRefused, assertWireBody } from './harness/assertions.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { call } from './harness/session.mjs'
import { readSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
const words = ['one ', 'two ', 'three ', 'four']

describe('a finished log', () => {
  test('is served from every cursor: the rest, caught-up, the end', async () => {
    set.model.enqueue(textScript(words, { reasoning: ['hm'] }))
    const s = set.session()
    await s.ask('finished')
    const log = await s.log()
    assert.deepEqual(log.map((c) => c.sequence), log.map((_, i) => i + 1))
    for (let from = 0; from <= log.length; from++) {
      const got = await (await s.sse(from)).collect()
      const { chunks, historyLength, terminal } = assertWireBody(got, from)
      assert.deepEqual(chunks, log.slice(from))
      assert.equal(historyLength, log.length - from, 'all of it is history')
      assert.deepEqual([terminal.event, terminal.data.status], ['end', 'completed'])
    }
  })

  test('says what its headers must', async () => {
    set.model.enqueue(textScript(['x']))
    const s = set.session()
    await s.ask('headers')
    const got = await readSse(`${s.own}/sse`)
    assert.match(got.headers['content-type'], /^text\/event-stream/)
    assert.match(got.headers['cache-control'], /no-transform/)
    assert.equal(got.headers['content-encoding'], undefined)
    assert.equal(got.frames[0].comment !== undefined, true, 'a comment comes first')
  })

  test('takes Last-Event-ID as the cursor; the query wins', async () => {
    set.model.enqueue(textScript(words))
    const s = set.session()
    await s.ask('last-event-id')
    const byHeader = await (await s.sse(undefined, { headers: { 'last-event-id': '2' } })).collect()
    assert.equal(assertWireBody(byHeader, 2).chunks[0].sequence, 3)
    const both = await (await s.sse(1, { headers: { 'last-event-id': '2' } })).collect()
    assert.equal(assertWireBody(both, 1).chunks[0].sequence, 2)
  })

  test('names the run, its step and the attempt that was committed', async () => {
    set.model.enqueue(textScript(words))
    const s = set.session()
    await s.ask('lifecycle')
    const chunks = (await s.log()).map((c) => c.chunk)
    assert.equal(chunks[0].type, 'run_started')
    assert.equal(new Set(chunks.map((c) => c.runId)).size, 1)
    const attempts = chunks.filter((c) => c.type === 'step_start').map((c) => c.attemptId)
    const committed = chunks.filter((c) => c.type === 'step_committed').map((c) => c.committedAttemptId)
    assert.equal(attempts.length, 1)
    assert.deepEqual(committed, attempts)
    assert.equal((await s.info()).runId, chunks[0].runId)
  })

  test('is read in pages of any size', async () => {
    set.model.enqueue(textScript(words))
    const s = set.session()
    await s.ask('pages')
    const log = await s.log()
    for (const limit of [1, 2, 3, log.length, log.length + 5]) assert.deepEqual(await s.log(limit), log)
    const { body } = await s.page(0, 2)
    assert.deepEqual([body.exists, body.head, body.floor, body.chunks.length], [true, log.length, 0, 2])
    const { body: behind } = await s.page(log.length, 2)
    assert.deepEqual(behind.chunks, [])
  })

  test('refuses a cursor beyond its head, and says where to look', async () => {
    set.model.enqueue(textScript(words))
    const s = set.session()
    await s.ask('beyond')
    const { head } = await s.info()
    const answer = await call(`${s.own}/sse?fromSequence=${head + 1}`)
    assertRefused(answer)
    assert.equal(answer.body.head, head)
    assert.match(answer.text, /snapshot/)
  })

  test('goes on with the next run’s numbers', async () => {
    set.model.enqueue(textScript(['first']))
    set.model.enqueue(textScript(['second']))
    const s = set.session()
    await s.ask('turn one')
    const { head } = await s.info()
    await s.ask('turn two')
    const { chunks } = assertWireBody(await (await s.sse(0)).collect())
    assert.notEqual(chunks[head].chunk.runId, chunks[head - 1].chunk.runId)
    assert.equal(chunks[head].chunk.type, 'run_started')
  })
})

describe('a live log', () => {
  test('joins history and what is live at every cursor, without gap or overlap', async () => {
    const held = gate()
    set.model.enqueue(textScript(['one ', 'two ', held, 'three ', 'four']))
    const s = set.session()
    const sent = await s.send('live')
    await sent.until((f) => f.data?.includes('two '))
    const { head, status } = await s.info()
    assert.equal(status, 'active')
    const readers = await Promise.all(Array.from({ length: head + 1 }, (_, from) => s.sse(from)))
    await Promise.all(readers.map((r) => r.until((f) => f.event === 'caught-up')))
    held.open()
    const bodies = await Promise.all(readers.map((r) => r.collect()))
    const log = await s.log()
    assert.ok(log.length > head)
    bodies.forEach((got, from) => {
      const { chunks, historyLength, terminal } = assertWireBody(got, from)
      assert.deepEqual(chunks, log.slice(from))
      assert.ok(historyLength < log.length - from, 'something came live')
      assert.equal(terminal.data.status, 'completed')
    })
    await sent.collect()
  })

  test('held at several points, is joined at every cursor of each, and at its head', async () => {
    const points = Array.from({ length: 4 }, gate)
    set.model.enqueue(textScript(points.flatMap((g, i) => [`before ${i} `, g, `after ${i} `]), { reasoning: ['hm'] }))
    const s = set.session()
    const sent = await s.send('held')
    const joined = []
    for (const [index, next] of points.entries()) {
      await sent.until((f) => f.data?.includes(`before ${index} `))
      const { head } = await s.info()
      for (let from = 0; from <= head; from++) {
        const reader = await s.sse(from)
        const caughtUp = await reader.until((f) => f.event === 'caught-up')
        assert.equal(JSON.parse(caughtUp.data).head, head)
        joined.push({ from, head, reader })
      }
      const beyond = await call(`${s.own}/sse?fromSequence=${head + 1}`)
      assertRefused(beyond)
      assert.equal(beyond.body.head, head)
      next.open()
    }
    const bodies = await Promise.all(joined.map(({ reader }) => reader.collect()))
    const log = await s.log()
    bodies.forEach((got, i) => {
      const { from, head } = joined[i]
      const { chunks, historyLength } = assertWireBody(got, from)
      assert.deepEqual(chunks, log.slice(from), `from ${from} at head ${head}`)
      assert.equal(historyLength, head - from)
    })
  })

  test('is joined in full flow at whatever its head is', async () => {
    const s = set.session()
    set.model.enqueue([step.mode({ paceMs: 3 }), ...textScript(Array.from({ length: 150 }, (_, i) => `w${i} `))])
    const sent = await s.send('flow')
    const bodies = []
    for (let frame; (frame = await sent.next()); ) {
      if (frame.id === undefined || Number(frame.id) % 4) continue
      const from = Number(frame.id)
      bodies.push(s.sse(undefined, { headers: { 'last-event-id': String(from) } }).then(async (r) => ({ from, got: await r.collect() })))
    }
    const log = await s.log()
    assert.ok(bodies.length > 30)
    for (const { from, got } of await Promise.all(bodies)) assert.deepEqual(assertWireBody(got, from).chunks, log.slice(from))
  })

  test('takes Last-Event-ID as the cursor, and the query before it', async () => {
    const held = gate()
    set.model.enqueue(textScript(['one ', 'two ', held, 'three']))
    const s = set.session()
    const sent = await s.send('live last-event-id')
    await sent.until((f) => f.data?.includes('two '))
    const readers = [
      [3, await s.sse(undefined, { headers: { 'last-event-id': '3' } })],
      [1, await s.sse(1, { headers: { 'last-event-id': '3' } })],
      [0, await s.sse(0, { headers: { 'last-event-id': '3' } })],
    ]
    held.open()
    const log = (await sent.collect()) && (await s.log())
    for (const [from, reader] of readers) assert.deepEqual(assertWireBody(await reader.collect(), from).chunks, log.slice(from))
  })

  test('ends with end{interrupted} when it is stopped', async () => {
    set.model.enqueue(textScript(['part', gate()]))
    const s = set.session()
    const sent = await s.send('stop')
    await sent.until((f) => f.data?.includes('part'))
    const reader = await s.sse(0)
    await reader.until((f) => f.event === 'caught-up')
    await s.stop()
    const { terminal } = assertWireBody(await reader.collect())
    assert.deepEqual([terminal.event, terminal.data.status], ['end', 'interrupted'])
  })
})

test('an absent session: 200 exists:false on /info and /chunks, 404 on /sse and /snapshot', async () => {
  const s = set.session()
  assert.deepEqual(await s.info(), { exists: false })
  const page = await s.page(0)
  assert.deepEqual([page.status, page.body], [200, { exists: false, chunks: [] }])
  assertRefused(await call(`${s.own}/sse`), 404)
  assertRefused(await call(`${s.own}/snapshot`), 404)
})

describe('waitForLive', () => {
  test('a reader that waits takes no stale end for an answer, and follows the next run', async () => {
    const s = set.session()
    set.model.script('first', textScript(['one']))
    await s.ask('first')
    const { head } = await s.info()
    const waiting = await s.sse(head, { waitForLive: 1 })
    await waiting.until((frame) => frame.event === 'caught-up')
    set.model.script('second', textScript(['two']))
    await s.ask('second')
    const got = await waiting.collect()
    assertWireBody(got, head)
    assert.ok(got.frames.some((frame) => frame.data?.includes('two')))
    assert.equal(got.frames.at(-1).event, 'end')
  })

  test('a reader that waits for a session that nobody has begun follows its first run from its first chunk', async () => {
    const s = set.session()
    const waiting = await Promise.all([1, 2, 3].map(() => s.sse(undefined, { waitForLive: 1 })))
    for (const reader of waiting) {
      assert.equal(reader.status, 200)
      assert.deepEqual(JSON.parse((await reader.until((frame) => frame.event === 'caught-up')).data), { head: 0 })
    }
    assert.deepEqual(await s.info(), { exists: false }, 'who waits stores nothing')
    set.model.script('first of all', textScript(['one']))
    await s.ask('first of all')
    for (const reader of waiting) {
      const got = await reader.collect()
      assertWireBody(got)
      assert.ok(got.frames.some((frame) => frame.data?.includes('one')))
      assert.equal(got.frames.at(-1).event, 'end')
    }
    assertWireBody(await (await s.sse(0)).collect())
  })

  test('a reader that waits for a session may also see a producer outside begin it', async () => {
    const s = set.session()
    const waiting = await s.sse(0, { waitForLive: 1 })
    await call(`${s.own}/runs`, { json: { runId: 'r1', vocabulary: 'opaque' } })
    await call(`${s.own}/runs/r1/end`, { headers: { 'producer-epoch': '1', 'producer-seq': '0' }, json: { status: 'completed' } })
    assertWireBody(await waiting.collect())
  })

  test('a cursor in a session that is not there, and a run of one, are gone', async () => {
    assert.equal((await set.session().sse(3, { waitForLive: 1 })).status, 404)
    assert.equal((await set.session().sse(0, { waitForLive: 1, run: 'r1' })).status, 404)
    assert.equal((await set.session().sse(0)).status, 404, 'and who does not wait is told at once')
  })
})
