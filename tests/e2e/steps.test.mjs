// A reply of several steps: what is committed while it goes on, and coming back before, between and after them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody, idsOf } from './harness/assertions.mjs'
import { VERSIONS, foldAll, makeChat, textOf, reasoningOf, validateMessages } from './harness/clients.mjs'
import { userMessage } from './harness/session.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const ASK = 'use a tool'
// The slow one is still in its second step after whatever a busy machine makes of a few requests.
const set = stage({ agents: () => ({ default: { producer: 'demo', paceMs: 2 }, slow: { producer: 'demo', paceMs: 20 } }) })

/** Parts as every version keeps them. */
const plain = (parts) => JSON.parse(JSON.stringify(parts)).map(({ id, ...part }) => part)
const stepsOf = (message) => (message?.parts ?? []).filter((p) => p.type === 'step-start').length
const withoutId = (chunks) => chunks.map(({ messageId, id, toolCallId, ...chunk }) => chunk)

/** A finished run: the chunks of its response, and its message. */
async function finished() {
  const s = set.session()
  const got = await s.ask(ASK)
  await assertChatBody(got)
  return { got, message: (await s.snapshot()).body.messages.at(-1) }
}

/** A live run whose first step is committed. */
async function inSecondStep(agent = 'default') {
  const s = set.session()
  const sent = await s.send(ASK, { agent })
  await sent.until((f) => f.data?.includes('"finish-step"'))
  await sent.until((f) => f.data?.includes('"text-delta"'))
  return { s, sent }
}

test('a live snapshot holds the committed steps of the message that is in flight, and its cursor brings the rest', async () => {
  const whole = await finished()
  const { s, sent } = await inSecondStep('slow')
  const [{ body }, { body: seed }] = [await s.snapshot(), await s.snapshot('?seed=1')]
  const resumed = await s.resume(body.streamSequence, { messageId: body.resumeMessageId })
  assert.equal(body.status, 'active')
  assert.equal(body.stepCount, 1)
  const inFlight = body.messages.at(-1)
  assert.deepEqual([inFlight.role, inFlight.id, stepsOf(inFlight)], ['assistant', body.resumeMessageId, 1])
  assert.ok(inFlight.parts.every((p) => !['streaming', 'input-streaming'].includes(p.state)), JSON.stringify(inFlight.parts))
  assert.equal(inFlight.parts.find((p) => p.toolCallId)?.state, 'output-available')
  for (const version of VERSIONS) await validateMessages(version, body.messages)
  assert.deepEqual(seed.messages.map((m) => m.role), ['user'])

  const rest = await resumed.collect()
  await assertChatBody(rest)
  assert.ok(idsOf(rest.frames).every((id) => id > body.streamSequence))
  // Only these versions continue a seeded message; later ones replace it (the exceptions of the README).
  for (const version of ['6.0.0', '6.0.230']) {
    const { reply, messages } = await foldAll(version, rest.raw, body.messages)
    assert.equal(messages.length, 2)
    assert.deepEqual([textOf(reply), reasoningOf(reply), stepsOf(reply)], [textOf(whole.message), reasoningOf(whole.message), stepsOf(whole.message)], `ai ${version}`)
  }
  const all = await sent.collect()
  const after = withoutId(chunksOf(all.frames.filter((f) => Number(f.id) > body.streamSequence)))
  assert.deepEqual(withoutId(chunksOf(rest.frames.filter((f) => f.id !== undefined))), after)
})

test('a stock reconnect in the second step replays both, for every version', async () => {
  const whole = await finished()
  const reconnects = async (version) => {
    const { s, sent } = await inSecondStep('slow')
    sent.cut()
    const chat = await makeChat(version, { id: s.id, origin: set.server.origin, messages: (await s.snapshot('?seed=1')).body.messages })
    await within(chat.resumeStream())
    assert.deepEqual([chat.status, chat.messages.length], ['ready', 2], chat.error?.message)
    const message = (await s.snapshot()).body.messages.at(-1)
    assert.equal(chat.lastMessage.id, message.id)
    assert.deepEqual([textOf(chat.lastMessage), stepsOf(chat.lastMessage)], [textOf(whole.message), stepsOf(whole.message)], `ai ${version}`)
    assert.deepEqual(plain(chat.lastMessage.parts), plain(message.parts), `ai ${version} folds to what is stored`)
  }
  await Promise.all(VERSIONS.map(reconnects))
})

test('a resume from any cursor of a live reply brings exactly the rest of it', async () => {
  const s = set.session()
  const sent = await s.send(ASK)
  const resumed = []
  for (let frame; (frame = await sent.next()); ) {
    if (frame.id === undefined || resumed.length >= 60 || Number(frame.id) % 3) continue
    resumed.push({ cursor: Number(frame.id), body: s.resume(frame.id).then((r) => (r.status === 200 ? r.collect() : r.cut())) })
  }
  const all = sent.frames.filter((f) => isData(f) && f.id !== undefined)
  assert.ok(resumed.length > 20, `${resumed.length} resumes`)
  for (const { cursor, body } of resumed) {
    const got = await body
    await assertChatBody(got)
    const rest = all.filter((f) => Number(f.id) > cursor)
    assert.deepEqual(got.frames.filter((f) => f.id !== undefined).map((f) => [f.id, f.data]), rest.map((f) => [f.id, f.data]), `cursor ${cursor}`)
    const { status, error } = await foldAll('7-latest', got.raw, [userMessage(ASK)])
    assert.equal(status, 'ready', `cursor ${cursor}: ${error?.message}`)
  }
})

test('a stop in the second step keeps the first and what was shown of the second', async () => {
  const { s, sent } = await inSecondStep()
  await s.stop()
  const got = await sent.collect()
  await assertChatBody(got)
  const message = (await s.snapshot()).body.messages.at(-1)
  assert.equal(stepsOf(message), 2)
  for (const version of VERSIONS) {
    await validateMessages(version, [userMessage(ASK), message])
    assert.deepEqual(plain((await foldAll(version, got.raw, [userMessage(ASK)])).reply.parts), plain(message.parts), `ai ${version}`)
  }
})
