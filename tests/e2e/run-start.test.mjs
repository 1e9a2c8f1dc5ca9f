// The time between a run's commit and its first chunk (`spec/helix.md` 1.5, tests 21 and 22), and snapshots under load (test 30).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody, assertWireBody, idsOf } from './harness/assertions.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { AWARE, chunksIn, contract, deltasIn, eventsIn, keyed } from './harness/contract.mjs'
import { textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const LIVE_WAIT_MS = 2500
const set = stage({ vars: { TEST_SEAMS: 1, LIVE_WAIT_MS } })
const open = () => contract(set)
const HOLD = { 'x-test-hold': '1' }

/** A session whose second run is committed and has not said a word. */
async function held(headers = {}) {
  const s = open()
  const first = await s.told('the first turn', 'OLD WORDS')
  const { head } = await s.info()
  set.model.script(`held ${s.id}`, textScript(['new ', 'words']))
  const message = userMessage(`held ${s.id}`)
  const sent = await s.post({ messages: [message] }, { ...HOLD, ...headers })
  return { s, first, head, sent, message }
}

test('21 in the window the snapshot is active before the run’s first chunk, and a resume waits for that and brings nothing older', async () => {
  const { s, head, sent, message } = await held()
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.streamSequence, body.messages.map(textOf).at(-1)], ['active', head, textOf(message)])
  assert.ok(!body.messages.some((m) => m.id === body.resumeMessageId))
  assert.equal((await s.info()).status, 'active')
  const resumes = [
    s.resume(body.streamSequence, { messageId: body.resumeMessageId, prefix: true }),
    s.resume(body.streamSequence, { messageId: body.resumeMessageId }),
    s.resume(0),
    s.resume(undefined),
    s.reconnect(),
  ]
  let answered = 0
  for (const resume of resumes) resume.then(() => (answered += 1))
  assert.equal((await s.snapshot('?seed=1')).body.messages.length, 3, 'other requests are answered meanwhile')
  assert.equal(answered, 0, 'parked')
  await s.seam('release')
  for (const reader of [sent, ...(await Promise.all(resumes))]) {
    const got = await reader.collect()
    await assertChatBody(got)
    assert.doesNotMatch(got.text, /OLD WORDS/)
    assert.equal(deltasIn(got), 'new words')
    assert.equal(chunksIn(got)[0].messageId, body.resumeMessageId)
    assert.ok(idsOf(got.frames).every((id) => id > head))
  }
})

test('21 on the wire as well: the rest from the cursor, and no end of the earlier run', async () => {
  const { s, head, sent } = await held()
  const readers = [await s.sse(head, { waitForLive: 1 }), await s.sse(head)]
  await s.seam('release')
  for (const reader of readers) assert.equal(assertWireBody(await reader.collect(), head).terminal.data.status, 'completed')
  await sent.collect()
})

test('22 a run that stays silent is answered by 503 in time, and can be resumed later', async () => {
  const { s, sent } = await held()
  const begun = performance.now()
  const { status, headers, body } = await call(s.chat)
  assert.ok(performance.now() - begun >= LIVE_WAIT_MS - 50)
  const { error, ...facts } = body
  assert.deepEqual([status, headers.get('retry-after'), facts], [503, '1', { code: 'transport_stream_drop', cause: 'run_not_live', retryable: true }])
  const resumed = s.resume(0)
  await s.seam('release')
  assert.equal(deltasIn(await (await resumed).collect()), 'new words')
  await sent.collect()
})

test('in the window a repeat of the send, keyed or not, is that run, and another send is refused', async () => {
  const { s, sent, message } = await held(keyed('k'))
  const again = [s.post({ messages: [message] }, keyed('k')), s.post({ messages: [message] })]
  assert.equal((await s.refused({ messages: [userMessage('other')] })).body.code, 'state_already_running')
  await s.seam('release')
  for (const reader of [sent, ...(await Promise.all(again))]) assert.equal(deltasIn(await reader.collect()), 'new words')
  assert.equal((await s.said()).length, 4)
})

test('a stop in the window ends the wait', async () => {
  const { s, sent } = await held()
  const parked = s.reconnect()
  assert.equal((await s.stop()).body.stopped, true)
  assert.equal((await parked).status, 204)
  assert.equal((await sent.collect()).ended, 'clean')
  assert.deepEqual([(await s.snapshot()).body.status, (await s.said()).length], ['ended', 3])
  assert.equal((await s.told('after the stop', 'fine')).got.ended, 'clean')
})

test('a retry in the window takes its place, and who waits gets the retry', async () => {
  const { s, sent } = await held(AWARE)
  const parked = s.resume(0)
  const retried = await s.retry({}, AWARE)
  for (const reader of [retried, await parked, sent]) {
    const got = await reader.collect()
    await assertChatBody(got)
    assert.equal(deltasIn(got), 'new words')
    assert.equal(eventsIn(got, 'stream-resync').length, 1)
  }
  assert.equal((await s.said()).length, 4)
})

test('30 under load each snapshot and what follows its cursor make the final transcript', async () => {
  const s = open()
  const turns = 100
  const replies = Array.from({ length: turns }, (_, i) => `[${i} said]`)
  const snapshots = []
  let over = false
  const strange = []
  const hammer = async () => {
    while (!over) {
      const answer = await s.snapshot()
      if (answer.status === 200) snapshots.push(answer.body)
      else if (answer.status !== 404 && answer.body?.cause !== 'snapshot_unstable') strange.push(answer)
    }
  }
  const resume = async () => {
    while (!over) {
      const { body } = await s.snapshot()
      if (body?.code) continue
      const headers = body.resumeMessageId ? { messageId: body.resumeMessageId, prefix: true } : {}
      const reader = await s.resume(body.streamSequence, headers)
      const got = await reader.collect()
      if (reader.status === 200) {
        await foldAll('7-latest', got.raw, [])
        if (got.ended !== 'clean' || /"type":"error"/.test(got.text)) strange.push(got.text)
      } else if (reader.status !== 409) strange.push([reader.status, got.text])
    }
  }
  const workers = [hammer(), hammer(), resume(), resume()]
  for (const [i, reply] of replies.entries()) {
    set.model.script(`turn ${i}`, textScript([reply.slice(0, 3), reply.slice(3)]))
    const got = await (await s.post({ messages: [userMessage(`turn ${i}`)] })).collect()
    assert.equal(deltasIn(got), reply)
  }
  over = true
  await Promise.all(workers)
  assert.deepEqual(strange, [])
  const final = (await s.snapshot()).body
  assert.deepEqual(final.messages.map(textOf), replies.flatMap((reply, i) => [`turn ${i}`, reply]))
  const log = await s.log()
  const replyAfter = (cursor) => log.filter((c) => c.sequence > cursor && c.chunk.type === 'text-delta').map((c) => c.chunk.delta).join('')
  assert.ok(snapshots.length > turns, `${snapshots.length} snapshots`)
  for (const { messages, streamSequence, status, resumeMessageId } of snapshots) {
    assert.deepEqual(messages.map((m) => [m.id, textOf(m)]), final.messages.slice(0, messages.length).map((m) => [m.id, textOf(m)]))
    const committed = messages.filter((m) => m.role === 'assistant').map(textOf).join('')
    assert.equal(committed + replyAfter(streamSequence), replies.join(''))
    assert.equal(status === 'active', resumeMessageId !== undefined)
    if (status === 'ended') assert.equal(messages.length % 2, 0)
  }
  await eventually(async () => (await s.info()).readers === 0)
})
