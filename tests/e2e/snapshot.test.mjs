// The snapshot: committed messages, one cursor, the run's status; before, during and after a run.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { VERSIONS, foldAll, textOf, validateMessages } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
const REMOVED = ['timestamp', 'startSequence', 'startMessageCount']

/** Without what versions keep differently: absent keys, the stream's ids of reasoning parts (kept from 6.0.253 on). */
const plain = (parts) => JSON.parse(JSON.stringify(parts)).map(({ id, ...part }) => (part.type === 'reasoning' ? part : { id, ...part }))

function assertShape(body, s) {
  assert.equal(body.sessionId, s.id)
  assert.ok(Array.isArray(body.messages))
  assert.ok(Number.isSafeInteger(body.streamSequence))
  assert.ok(Number.isSafeInteger(body.stepCount))
  assert.ok('state' in body && 'checkpointId' in body)
  assert.equal(body.latestTruncateCheckpointId, null)
  assert.deepEqual(REMOVED.filter((key) => key in body), [])
  assert.equal('resumeMessageId' in body, ['active', 'paused'].includes(body.status))
  assert.equal('errorDetail' in body, body.status === 'failed')
}

test('of an unknown session is 404 with the exact body', async () => {
  const answer = await set.session().snapshot()
  assert.deepEqual([answer.status, answer.body], [404, { error: 'Session not found', code: 'state_session_not_found' }])
})

test('of a finished run holds the whole reply under the id that was streamed', async () => {
  const s = set.session()
  const question = userMessage('finished')
  set.model.enqueue(textScript(['Hel', 'lo'], { reasoning: ['hm'], usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } }))
  const sent = await s.send('finished', { messages: [question] })
  const chunks = chunksOf((await sent.collect()).frames)
  const { status, body } = await s.snapshot()
  assert.equal(status, 200)
  assertShape(body, s)
  assert.equal(body.status, 'ended')
  assert.deepEqual(body.messages.map((m) => [m.role, m.id]), [['user', question.id], ['assistant', chunks[0].messageId]])
  assert.equal(textOf(body.messages[1]), 'Hello')
  assert.equal(body.streamSequence, (await s.info()).head)
  assert.equal(body.stepCount, 1)
  for (const version of VERSIONS) {
    await validateMessages(version, body.messages)
    const folded = await foldAll(version, chunks, [question])
    assert.deepEqual(plain(folded.reply.parts), plain(body.messages[1].parts), `ai ${version} folds the stream to the snapshot's parts`)
  }
})

test('of a live run holds no part cut in the middle, and names the message to resume', async () => {
  const s = set.session()
  const held = gate()
  set.model.enqueue(textScript(['Hel', held, 'lo']))
  const sent = await s.send('live')
  await sent.until((f) => f.data?.includes('Hel'))
  const { body } = await s.snapshot()
  assertShape(body, s)
  assert.equal(body.status, 'active')
  assert.equal(body.resumeMessageId, chunksOf(sent.frames)[0].messageId)
  assert.doesNotMatch(JSON.stringify(body.messages), /Hel/)
  const { body: seed } = await s.snapshot('?seed=1')
  assert.ok(!seed.messages.some((m) => m.id === body.resumeMessageId))
  assert.equal(seed.messages.at(-1).role, 'user')
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  held.open()
  await sent.collect()
  assert.equal((await s.snapshot()).body.status, 'ended')
})

test('is active from the answer to the send on, with a cursor before the run’s first chunk', async () => {
  const s = set.session()
  set.model.enqueue(textScript([gate()]))
  await s.send('window')
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.streamSequence, body.messages.length], ['active', 0, 1])
})

test('is the same on the session’s own route, with legacy false', async () => {
  const s = set.session()
  set.model.enqueue(textScript(['x']))
  await s.ask('own route')
  const chat = (await s.snapshot()).body
  const own = (await call(`${s.own}/snapshot`)).body
  assert.equal(own.legacy, false)
  assert.deepEqual({ ...own, legacy: undefined }, { ...chat, legacy: undefined })
})

test('and what follows its cursor always make the whole transcript', async () => {
  const s = set.session()
  const gates = Array.from({ length: 12 }, gate)
  const script = textScript(gates.flatMap((g, i) => [g, `${i} `]))
  set.model.enqueue(script)
  const sent = await s.send('consistent')
  const taken = []
  for (const next of gates) {
    next.open()
    taken.push((await s.snapshot()).body)
  }
  await sent.collect()
  taken.push((await s.snapshot()).body)
  const log = await s.log()
  const last = taken.at(-1)
  for (const body of taken) {
    assertShape(body, s)
    const committed = textOf(body.messages.find((m) => m.role === 'assistant'))
    assert.ok(script.text.startsWith(committed))
    assert.ok(body.streamSequence <= log.length)
    assert.ok(body.streamSequence <= last.streamSequence)
    if (committed === '') {
      const got = await (await s.resume(body.streamSequence)).collect()
      if (got.frames.length) assert.equal(textOf((await foldAll('7-latest', got.raw, [userMessage('x')])).reply), script.text)
    } else assert.equal(committed, script.text)
  }
})

test('is not disturbed by a deleted session of another name', async () => {
  const [kept, gone] = [set.session(), set.session()]
  for (const s of [kept, gone]) {
    set.model.enqueue(textScript(['x']))
    await s.ask('x')
  }
  assert.ok((await gone.delete()).status < 300)
  assert.equal((await gone.snapshot()).status, 404)
  assert.deepEqual(await gone.info(), { exists: false })
  assert.equal((await kept.snapshot()).status, 200)
})
