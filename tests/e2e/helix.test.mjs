// The behaviours of a Helix chat server that a black box shows (`spec/helix.md` 16), by their numbers: 1 to 14, 20, 23 to 25 and 27. Request
// keys (15 to 19): request-keys. The run-start window and load (21, 22, 30): run-start. Rewinds (26): rewinds. A killed server (28): restart
// and follower. Slow readers (29): evictions.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody, assertWireBody, idsOf } from './harness/assertions.mjs'
import { VERSIONS, foldAll, textOf } from './harness/clients.mjs'
import { answered, asked, chunksIn, contract, deltasIn, eventsIn, typesIn } from './harness/contract.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { openaiAgent } from './harness/server.mjs'
import { call, userMessage } from './harness/session.mjs'
import { isDone } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { MAX_REQUEST_BYTES: 65_536 }, agents: (model) => ({ ...openaiAgent(model), demo: { producer: 'demo', paceMs: 2 } }) })
const open = () => contract(set)

test('1 the snapshot of an unknown session is 404', async () => {
  const answer = await open().snapshot()
  assert.deepEqual([answer.status, answer.body], [404, { error: 'Session not found', code: 'state_session_not_found' }])
})

test('2 and 3 a first message is answered in the vocabulary of the oldest client, and the snapshot then holds both messages', async () => {
  const s = open()
  set.model.script('two', textScript(['Hel', 'lo']))
  const sent = await s.post({ messages: [userMessage('two')] })
  assert.deepEqual([sent.status, sent.headers['x-vercel-ai-ui-message-stream']], [200, 'v1'])
  const got = await sent.collect()
  await assertChatBody(got)
  const [start] = chunksIn(got)
  assert.equal(start.type, 'start')
  assert.ok(start.messageId)
  assert.deepEqual([deltasIn(got), typesIn(got).at(-1), isDone(got.frames.at(-1))], ['Hello', 'finish', true])

  const { body } = await s.snapshot()
  assert.deepEqual(Object.keys(body).sort(), ['checkpointId', 'latestTruncateCheckpointId', 'messages', 'reconnect', 'sessionId', 'state', 'status', 'stepCount', 'streamSequence'])
  assert.deepEqual([body.status, body.messages.length, body.messages[1].id, body.latestTruncateCheckpointId], ['ended', 2, start.messageId, null])
})

test('4 a snapshot in the middle of a text is active, without the text, and names the live message', async () => {
  const s = open()
  const { sent, held } = await s.held('four')
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.resumeMessageId], ['active', chunksIn(sent)[0].messageId])
  assert.deepEqual(body.messages.map(textOf), ['four'])
  held.open()
  await sent.collect()
})

test('5 a killed connection does not stop the run', async () => {
  const s = open()
  const { sent, held, reply } = await s.held('five')
  const follower = await s.reconnect()
  sent.reset()
  held.open()
  await assertChatBody(await follower.collect())
  assert.deepEqual([(await s.snapshot()).body.status, await s.said()], ['ended', ['five', reply]])
})

test('6 dropped at any delta and resumed from its cursor, a client has every delta once', async () => {
  const words = Array.from({ length: 12 }, (_, i) => `${i} `)
  for (let dropAt = 1; dropAt <= words.length; dropAt += 2) {
    const s = open()
    const held = gate()
    set.model.script(s.id, textScript([...words.slice(0, dropAt), held, ...words.slice(dropAt)]))
    const sent = await s.post({ messages: [userMessage(s.id)] })
    await sent.until((f) => f.data?.includes(`"delta":"${words[dropAt - 1]}"`))
    sent.cut()
    const { messageId } = chunksIn(sent)[0]
    const resumed = await s.resume(idsOf(sent.frames).at(-1), { messageId })
    held.open()
    const got = await resumed.collect()
    await assertChatBody(got)
    assert.equal(chunksIn(got)[0].messageId, messageId)
    assert.equal(deltasIn(sent) + deltasIn(got), words.join(''), `dropped at ${dropAt}`)
  }
})

/** A live run of the demo whose first step is committed, and its snapshot. */
async function inSecondStep() {
  const s = open()
  const sent = await s.post({ messages: [userMessage('use a tool')], agent: 'demo' })
  await sent.until((f) => f.data?.includes('"finish-step"'))
  await sent.until((f) => f.data?.includes('"text-delta"'))
  const { body } = await s.snapshot()
  assert.equal(body.status, 'active')
  return { s, sent, snapshot: body }
}

for (const [name, cursorOf] of [['7 a', (snapshot) => snapshot.streamSequence], ['8 a stale', () => 0]]) {
  test(`${name} cursor and the replay flag bring the committed parts between markers, then the tail of the server's own snapshot`, async () => {
    const { s, sent, snapshot } = await inSecondStep()
    const id = snapshot.resumeMessageId
    const resumed = await s.resume(cursorOf(snapshot), { messageId: id, prefix: true })
    const got = await resumed.collect()
    const whole = await sent.collect()
    await assertChatBody(got)
    const chunks = chunksIn(got)
    assert.deepEqual([chunks[0].type, chunks[0].messageId], ['start', id])
    const marks = chunks.flatMap((c, i) => (c.type === 'data-helix-replay' ? [[i, c]] : []))
    assert.deepEqual(marks.map(([, c]) => [c.transient, c.data]), [[true, { phase: 'begin', messageId: id }], [true, { phase: 'end', messageId: id }]])
    assert.equal(marks[0][0], 1, 'right behind the start')
    const end = got.frames.findIndex((f) => f.data?.includes('"phase":"end"'))
    assert.ok(got.frames.slice(0, end + 1).every((f) => f.id === undefined), 'what is replayed has no sequence')
    assert.ok(idsOf(got.frames).every((n) => n > snapshot.streamSequence))
    const plain = (message) => JSON.parse(JSON.stringify(message)).parts.map(({ id: _, ...part }) => part)
    for (const version of VERSIONS) {
      const seed = snapshot.messages.filter((m) => m.id !== id)
      const [again, once] = [await foldAll(version, got.raw, seed), await foldAll(version, whole.raw, seed)]
      assert.equal(again.messages.length, 2)
      assert.deepEqual(plain(again.reply), plain(once.reply), `ai ${version}`)
    }
  })
}

test('a message of which nothing is committed yet is replayed as one without parts', async () => {
  const s = open()
  const { sent, held, reply } = await s.held('uncommitted')
  const { body } = await s.snapshot()
  const resumed = await s.resume(body.streamSequence, { messageId: body.resumeMessageId, prefix: true })
  held.open()
  const got = await resumed.collect()
  await assertChatBody(got)
  await sent.collect()
  assert.deepEqual(typesIn(got).slice(0, 3), ['start', 'data-helix-replay', 'data-helix-replay'])
  assert.equal(deltasIn(got), reply)
})

test('9 a replay of a message that the session does not hold is refused, live and over', async () => {
  const s = open()
  const { sent, held } = await s.held('nine')
  const check = async (id) => {
    const { status, body } = await call(s.chat, { headers: { 'x-resume-from-sequence': '0', 'x-existing-message-id': id, 'x-helix-replay-prefix': '1' } })
    const { error, ...facts } = body
    assert.equal(typeof error, 'string')
    assert.deepEqual([status, facts], [409, { code: 'state_not_resumable', cause: 'resume_message_unknown', retryable: true }])
  }
  await check('nobody')
  held.open()
  await sent.collect()
  await check('nobody')
})

test('10 the replay flag without a message id, or other than 1, replays nothing', async () => {
  const { s, sent, snapshot } = await inSecondStep()
  const bodies = await Promise.all([
    s.resume(snapshot.streamSequence, { prefix: true }),
    s.resume(snapshot.streamSequence, { messageId: snapshot.resumeMessageId, headers: { 'x-helix-replay-prefix': 'true' } }),
  ])
  await sent.collect()
  for (const reader of bodies) {
    const got = await reader.collect()
    await assertChatBody(got)
    assert.deepEqual(eventsIn(got, 'helix-replay'), [])
  }
})

test('11 Last-Event-ID is a cursor, and X-Resume-From-Sequence wins over it', async () => {
  const s = open()
  set.model.script('eleven', textScript(['a', 'b', 'c', 'd']))
  const got = await (await s.post({ messages: [userMessage('eleven')] })).collect()
  const [early, late] = [idsOf(got.frames)[3], idsOf(got.frames)[5]]
  const read = async (headers) => (await (await s.resume(undefined, { headers })).collect()).raw.toString()
  assert.equal(await read({ 'last-event-id': String(early) }), await read({ 'x-resume-from-sequence': String(early) }))
  assert.equal(await read({ 'last-event-id': String(early), 'x-resume-from-sequence': String(late) }), await read({ 'x-resume-from-sequence': String(late) }))
})

test('12 a cursor from before the second turn brings nothing of the first', async () => {
  const s = open()
  await s.told('twelve', 'FIRST')
  const { sent, held, reply } = await s.held('twelve, again')
  for (const headers of [{ 'x-resume-from-sequence': '0' }, {}]) {
    const resumed = await s.resume(undefined, { headers })
    await resumed.until((f) => f.data?.includes('part of'))
    assert.doesNotMatch(resumed.raw.toString(), /FIRST/)
    assert.equal(deltasIn(resumed), 'part of twelve, again')
    resumed.cut()
  }
  held.open()
  assert.equal(deltasIn(await sent.collect()), reply)
})

test('13 a send while a run is live is refused, stores nothing and disturbs nobody', async () => {
  const s = open()
  const { sent, held, runId, reply } = await s.held('thirteen')
  const { status, body } = await s.refused({ messages: [userMessage('too early')] })
  const { error, ...facts } = body
  assert.equal(typeof error, 'string')
  assert.deepEqual([status, facts], [409, { code: 'state_already_running', retryable: true, runId, attach: `/api/chat/${s.id}/stream` }])
  assert.deepEqual(await s.said(), ['thirteen'])
  held.open()
  const got = await sent.collect()
  await assertChatBody(got)
  assert.equal(deltasIn(got), reply)
  assert.ok(!set.model.requests.some((r) => asked(r).includes('user: too early')))
})

// 14: two sends at the same instant: concurrency.

test('20 a body over the limit is refused with the limit, and stores nothing', async () => {
  const s = open()
  const { status, body } = await s.refused({ messages: [userMessage('x'.repeat(70_000))] })
  const { error, sizeBytes, ...facts } = body
  assert.deepEqual([status, facts], [413, { code: 'validation_payload_too_large', retryable: false, cause: 'request_body', limitBytes: 65_536 }])
  assert.ok(sizeBytes > 70_000 && typeof error === 'string')
  assert.equal((await s.snapshot()).status, 404)
})

test('23 a model that fails in mid-stream ends the response with an error, and later resumes say which', async () => {
  const s = open()
  set.model.script('twenty-three', textScript(['half', step.error('SECRET insides'), step.destroy()]))
  const got = await (await s.post({ messages: [userMessage('twenty-three')] })).collect()
  await assertChatBody(got)
  assert.equal(typesIn(got).at(-1), 'error')
  assert.ok(!typesIn(got).includes('finish'))
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.errorDetail], ['failed', { code: 'provider_error', category: 'provider', retryable: true }])
  const { status, body: refusal } = await call(s.chat)
  assert.deepEqual([status, refusal.error, refusal.code, refusal.retryable], [409, 'stream_failed', 'provider_error', true])
  assert.doesNotMatch(got.text + JSON.stringify([body, refusal]), /SECRET/)
})

test('24 a run that waits for the client ends its response without an error, and is paused', async () => {
  const s = open()
  const { got, reply } = await s.suspended('twenty-four')
  await assertChatBody(got)
  assert.deepEqual([typesIn(got).at(-1), reply.parts.filter((p) => p.toolCallId).map((p) => p.state)], ['finish', ['input-available', 'input-available']])
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.resumeMessageId], ['paused', reply.id])
  const { terminal } = assertWireBody(await (await s.sse(0)).collect())
  assert.deepEqual([terminal.event, terminal.data], ['end', { status: 'paused' }])
  const resumed = await (await s.resume(body.streamSequence, { messageId: reply.id, prefix: true })).collect()
  await assertChatBody(resumed)
  assert.equal((await foldAll('7-latest', resumed.raw, [])).reply.parts.filter((p) => p.state === 'input-available').length, 2)
})

test('25 of two results the first is an empty stream, and the second goes on in the same message', async () => {
  const s = open()
  const { message, reply } = await s.suspended('twenty-five')
  const partly = answered(reply, { c1: 'one' })
  const first = await s.post({ messages: [message, partly] })
  const nothing = await first.collect()
  assert.deepEqual([first.status, nothing.text], [200, 'data: [DONE]\n\n'])
  set.model.script((r) => r.body.messages.at(-1).role === 'tool' && r.lastUserText === 'twenty-five', textScript(['Thanks.']))
  const both = answered(partly, { c2: 'two' })
  const got = await (await s.post({ messages: [message, both] })).collect()
  await assertChatBody(got)
  assert.equal(chunksIn(got)[0].messageId, reply.id)
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.messages.length, textOf(body.messages[1])], ['ended', 2, 'I ask. Thanks.'])
  assert.deepEqual(body.messages[1].parts.filter((p) => p.toolCallId).map((p) => p.output), ['one', 'two'])
  // Of the stock clients the first continue the message that they hold when they resume, as all do behind a result.
  const folded = await foldAll('6.0.0', got.raw, [message, both])
  assert.deepEqual([folded.error, folded.text], [undefined, 'I ask. Thanks.'])
})

test('results that were sent already bring what they have led to and no more, because clients append it', async () => {
  const s = open()
  const { message, reply } = await s.suspended('sent twice')
  const partly = answered(reply, { c1: 'one' })
  for (let i = 0; i < 2; i++) assert.equal((await (await s.post({ messages: [message, partly] })).collect()).text, 'data: [DONE]\n\n')
  const held = gate()
  set.model.script((r) => r.body.messages.at(-1).role === 'tool' && r.lastUserText === 'sent twice', textScript(['Thanks', held, '.']))
  const both = answered(partly, { c2: 'two' })
  const calls = set.model.requests.length
  const readers = [await s.post({ messages: [message, both] }), await s.post({ messages: [message, both] })]
  held.open()
  const [one, two] = await Promise.all(readers.map((r) => r.collect()))
  const late = await (await s.post({ messages: [message, both] })).collect()
  for (const got of [one, two, late]) {
    await assertChatBody(got)
    assert.deepEqual([chunksIn(got)[0].messageId, deltasIn(got)], [reply.id, 'Thanks.'])
    assert.equal((await foldAll('6.0.0', got.raw, [message, both])).text, 'I ask. Thanks.')
  }
  const whole = (await s.snapshot()).body.messages[1]
  assert.equal((await (await s.post({ messages: [message, whole] })).collect()).text, 'data: [DONE]\n\n')
  assert.equal(set.model.requests.length, calls + 1)

  const stopped = open()
  const given = await stopped.suspended('stopped while it waits', ['c1'])
  await stopped.stop()
  const after = await stopped.post({ messages: [given.message, answered(given.reply, { c1: 1 })] })
  assert.deepEqual([after.status, (await after.collect()).text], [200, 'data: [DONE]\n\n'])
})

test('27 the wire serves every cursor strictly behind it, in numbers that a restart does not use again', async () => {
  const s = open()
  const { got } = await s.told('twenty-seven', 'of the first life')
  const { head } = await s.info()
  for (let from = 0; from <= head; from++) {
    const { chunks, terminal } = assertWireBody(await (await s.sse(from)).collect(), from)
    assert.deepEqual([chunks.length, terminal.event, terminal.data.status], [head - from, 'end', 'completed'])
  }
  await set.server.kill()
  await set.server.start()
  assert.equal((await s.info()).head, head)
  const second = await s.told('twenty-seven, again')
  assert.ok(idsOf(second.got.frames)[0] > head && idsOf(got.frames).at(-1) <= head)
  assertWireBody(await (await s.sse(0)).collect())
})

test('two tabs on one run, and one that joins late, all get everything', async () => {
  const s = open()
  const { sent, held, reply } = await s.held('tabs')
  const others = [await s.reconnect(), await s.resume(0)]
  held.open()
  for (const reader of [sent, ...others]) {
    const got = await reader.collect()
    await assertChatBody(got)
    assert.equal(deltasIn(got), reply)
  }
})

test('a message that was sent already, and old history, attach instead of running again', async () => {
  const s = open()
  const { message, got } = await s.told('attach')
  const calls = set.model.requests.length
  const again = await (await s.post({ messages: [message] })).collect()
  const bare = await (await s.post({ messages: [] })).collect()
  const trailing = await (await s.post({ messages: [message, { id: chunksIn(got)[0].messageId, role: 'assistant', parts: [] }] })).collect()
  for (const body of [again, bare, trailing]) {
    await assertChatBody(body)
    assert.equal(deltasIn(body), 're attach')
  }
  assert.equal(set.model.requests.length, calls)
  assert.equal((await open().refused({ messages: [] })).status, 404, 'there is nothing to attach to')
})
