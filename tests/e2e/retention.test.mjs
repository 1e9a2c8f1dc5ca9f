// What is kept, and for how long: chunks of finished runs, a session's size, an idle session, and a session that was deleted.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const lastFrame = (got) => {
  const frames = got.frames.filter(isData)
  return { event: frames.at(-1).event, data: JSON.parse(frames.at(-1).data), count: frames.length }
}

/** Asks nothing of the object until its alarm has done what is awaited: the gauge comes from `/chunks`, which changes nothing. */
const floorIs = (s, floor) => eventually(async () => (await s.page(floor, 1)).body.floor === floor, { every: 100, what: `the floor ${floor}` })

describe('the chunks of a finished run', () => {
  const set = stage({ vars: { RETENTION_MS: 1500, TEST_SEAMS: 1 } })

  test('go after their time; the messages stay, and a cursor below the floor is told', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['one ', 'two']))
    await s.ask('first')
    const { head } = await s.info()
    assertWireBody(await (await s.sse(0)).collect())
    await floorIs(s, head)
    assert.equal((await s.seam('counts')).body.chunk_block, 0)
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1)), body.streamSequence], ['ended', 'one two', head])
    for (const cursor of [0, head - 1]) {
      const { event, data, count } = lastFrame(await (await s.sse(cursor)).collect())
      assert.deepEqual([event, data.floor, data.errorDetail.code, count], ['truncated', head, 'TRUNCATED', 1])
    }
    const resumed = await call(s.chat, { headers: { 'x-resume-from-sequence': '0' } })
    assertRefused(resumed, 409)
    assert.deepEqual([resumed.body.code, resumed.body.floor], ['TRUNCATED', head])
    assert.match(resumed.body.snapshot, /snapshot$/)
    assertRefused(await s.page(0, 10), 409)
    assert.equal((await s.info()).floor, head)
    assert.ok((await s.info()).counters.truncated >= 4)
    assert.equal(lastFrame(await (await s.sse(head)).collect()).event, 'end', 'a cursor at the floor lacks nothing')

    set.model.enqueue(textScript(['three']))
    await assertChatBody(await s.ask('second'))
    const { chunks } = assertWireBody(await (await s.sse(head)).collect(), head)
    assert.equal(chunks[0].sequence, head + 1, 'numbers go on')
  })

  test('are not needed by a client that asks for the whole reply: its committed parts are told, whoever asks', async () => {
    const s = set.session()
    const message = userMessage('told anyway')
    set.model.enqueue(textScript(['one ', 'two']))
    const send = () => s.send('', { messages: [message], headers: { 'x-helix-request-key': 'k' } })
    const first = chunksOf((await (await send()).collect()).frames.filter(isData))
    await floorIs(s, (await s.info()).head)
    const { body } = await s.snapshot()
    const [, { id: messageId }] = body.messages
    for (const open of [send, () => s.resume(undefined), () => s.resume(0, { messageId, prefix: true })]) {
      const reader = await open()
      assert.equal(reader.status, 200)
      const got = await reader.collect()
      await assertChatBody(got)
      const { reply, error } = await foldAll('7-latest', got.raw, [message])
      assert.deepEqual([error, reply.id, textOf(reply), chunksOf(got.frames.filter(isData)).at(-1).type], [undefined, first[0].messageId, 'one two', 'finish'])
    }
  })

  test('stay while the run is live, however long it takes', async () => {
    const s = set.session()
    const held = gate()
    set.model.enqueue(textScript(['early ', held, 'late']))
    const sent = await s.send('long')
    await sent.until((f) => f.data?.includes('early'))
    const other = set.session()
    set.model.enqueue(textScript(['x']))
    await other.ask('clock')
    await floorIs(other, (await other.info()).head)
    assert.equal((await s.info()).floor, 0)
    held.open()
    await assertChatBody(await sent.collect())
    assertWireBody(await (await s.sse(0)).collect())
  })

  test('go although the server was away when their time came', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['gone']))
    await s.ask('away')
    const { head } = await s.info()
    await set.server.kill()
    await set.server.start()
    await floorIs(s, head)
  })
})

describe('a session of a bounded size', () => {
  const set = stage({ vars: { MAX_SESSION_BYTES: 200_000 } })
  const words = (count) => Array(count).fill('x'.repeat(4_000))

  test('drops its oldest finished runs first', async () => {
    const s = set.session()
    const heads = []
    for (let turn = 0; turn < 6; turn++) {
      set.model.enqueue(textScript(words(12)))
      await assertChatBody(await s.ask(`turn ${turn}`))
      heads.push((await s.info()).head)
    }
    const { floor } = await s.info()
    assert.ok(floor > 0 && heads.slice(0, -1).includes(floor), `the floor ${floor} is the end of a run`)
    assert.equal((await s.snapshot()).body.messages.length, 12, 'messages stay')
    assertWireBody(await (await s.sse(floor)).collect(), floor)
  })

  test('fails a run that alone is too large, with its own code', async () => {
    const s = set.session()
    set.model.enqueue(textScript(words(100)))
    const got = await s.ask('too much')
    await assertChatBody(got)
    assert.match(got.text, /"type":"error"/)
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.errorDetail.code, body.errorDetail.retryable], ['failed', 'state_session_full', false])
    const kept = assertWireBody(await (await s.sse(0)).collect())
    assert.equal(kept.terminal.event, 'fail')
    const text = kept.chunks.filter((c) => c.chunk.type === 'text-delta').map((c) => c.chunk.delta).join('')
    assert.equal(textOf(body.messages.at(-1)), text, 'the message holds exactly what the log holds')
    set.model.enqueue(textScript(['small']))
    await assertChatBody(await s.ask('again'))
    assert.equal((await s.snapshot()).body.status, 'ended')
  })
})

describe('an idle session', () => {
  const set = stage({ vars: { SESSION_TTL_MS: 1500, TEST_SEAMS: 1 } })
  const nothingIsLeft = async (s) => assert.deepEqual((await s.seam('counts')).body, {})

  test('deletes all that it stores, and tells who follows', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['once']))
    await s.ask('idle')
    const parked = await s.sse(0, { waitForLive: 1 })
    const { event, data } = lastFrame(await parked.collect())
    assert.deepEqual([event, data.recoverable], ['fail', true])
    await nothingIsLeft(s)
    assert.equal((await s.snapshot()).status, 404)
    assert.equal((await s.sse(0)).status, 404)
    set.model.enqueue(textScript(['new']))
    await assertChatBody(await s.ask('again'))
    assert.equal((await s.snapshot()).body.messages.length, 2)
  })

  test('is as good as absent for the first request after its time, whoever comes first', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['once']))
    await s.ask('idle')
    await set.server.kill()
    const over = Date.now() + 1600
    await eventually(() => Date.now() > over, { what: 'its time' })
    await set.server.start()
    assert.equal((await s.snapshot()).status, 404)
    await nothingIsLeft(s)
  })

  test('is not idle while a run is live', async () => {
    const s = set.session()
    const held = gate()
    set.model.enqueue(textScript(['a', held, 'b']))
    const sent = await s.send('live')
    await sent.until((f) => f.data?.includes('"a"'))
    const until = Date.now() + 2000
    await eventually(() => Date.now() > until, { what: 'more than its time' })
    assert.equal((await s.info()).status, 'active')
    held.open()
    await assertChatBody(await sent.collect())
  })

  test('that was deleted has no row either', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['once']))
    await s.ask('deleted')
    assert.equal((await s.seam('counts')).body.message, 2)
    await s.delete()
    await nothingIsLeft(s)
  })
})
