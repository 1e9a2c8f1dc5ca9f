// A step that is tried again (`spec/helix.md` 1.8 and 5.9): only the surviving attempt is shown, stored and told to the model.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody, idsOf } from './harness/assertions.mjs'
import { VERSIONS, foldAll } from './harness/clients.mjs'
import { AWARE, asked, contract, deltasIn, eventsIn, keyed, typesIn } from './harness/contract.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { MAX_ATTEMPTS: 3 } })
const open = () => contract(set)
const breaks = () => [step.error(), step.destroy()]

/** A run whose first attempt has said 'lost words' and fails when told; the second says 'kept ' and waits, then 'words'. */
async function retried(headers = {}) {
  const s = open()
  const [fails, ends] = [gate(), gate()]
  set.model.script(s.id, textScript(['lost words', fails, ...breaks()]))
  set.model.script(s.id, textScript(['kept ', ends, 'words']))
  const message = userMessage(s.id)
  const sent = await s.post({ messages: [message] }, headers)
  await sent.until((f) => f.data?.includes('lost words'))
  return { s, sent, fails, ends, message, runId: (await s.info()).runId }
}

/** What the event of the switch must say, held against the wire. */
async function assertSwitch(s, got, runId) {
  const { chunks } = assertWireBody(await (await s.sse(0)).collect())
  const attempts = chunks.filter(({ chunk }) => chunk.type === 'step_start').map(({ chunk }) => chunk.attemptId)
  assert.equal(attempts.length, 2)
  const [event, ...more] = eventsIn(got, 'attempt-superseded')
  assert.deepEqual([event, more], [{ reason: 'attempt_superseded', runId, agentId: 'default', step: 1, attemptId: attempts[1], supersededAttemptId: attempts[0] }, []])
  const { chunk } = chunks.find(({ chunk }) => chunk.type === 'step_committed')
  assert.equal(chunk.committedAttemptId, attempts[1])
  assert.doesNotMatch(got.text.replaceAll(/"data":\{[^}]*\}/g, ''), /attemptId/, 'only the event names attempts')
}

test('an aware client is told once, before the new attempt says anything, and goes on', async () => {
  const { s, sent, fails, ends, runId } = await retried(AWARE)
  fails.open()
  await sent.until((f) => f.data?.includes('kept '))
  ends.open()
  const got = await sent.collect()
  await assertChatBody(got)
  assert.equal(deltasIn(got), 'lost wordskept words')
  const types = typesIn(got)
  assert.ok(types.indexOf('data-attempt-superseded') < types.lastIndexOf('start-step'))
  await assertSwitch(s, got, runId)
})

test('a stock client that was shown something breaks, and its reconnect holds the surviving attempt alone, for every version', async () => {
  const { s, sent, fails, ends, message } = await retried()
  fails.open()
  assert.equal((await sent.collect()).ended, 'broken')
  const again = await s.reconnect()
  ends.open()
  const got = await again.collect()
  await assertChatBody(got)
  assert.deepEqual([deltasIn(got), typesIn(got).filter((t) => t.startsWith('data-'))], ['kept words', []])
  for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, [message])).text, 'kept words', `ai ${version}`)
})

test('a stock client that was shown nothing goes on as if there had been one attempt', async () => {
  const s = open()
  set.model.script(s.id, [step.status(503)])
  set.model.script(s.id, textScript(['kept words']))
  const got = await (await s.post({ messages: [userMessage(s.id)] })).collect()
  await assertChatBody(got)
  assert.deepEqual([deltasIn(got), typesIn(got).filter((t) => t.startsWith('data-'))], ['kept words', []])
})

test('what is stored, what a later model call is told, and what later readers see, is the surviving attempt', async () => {
  const { s, sent, fails, ends } = await retried(AWARE)
  fails.open()
  ends.open()
  await sent.collect()
  assert.deepEqual(await s.said(), [s.id, 'kept words'])
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.stepCount], ['ended', 1])
  assert.doesNotMatch(JSON.stringify(body), /lost words|attempt/)
  for (const headers of [{}, AWARE]) {
    const late = await (await s.resume(undefined, { headers })).collect()
    assert.deepEqual([deltasIn(late), eventsIn(late, 'attempt-superseded')], ['kept words', []])
  }
  const prefix = await (await s.resume(0, { messageId: body.messages[1].id, prefix: true })).collect()
  assert.equal(deltasIn(prefix), 'kept words')
  await s.told('afterwards')
  assert.deepEqual(asked(set.model.requests.at(-1)), [`user: ${s.id}`, 'assistant: kept words', 'user: afterwards'])
  assert.doesNotMatch(JSON.stringify(set.model.requests.at(-1).body), /lost words|superseded/)
})

describe('a resume from a cursor', () => {
  test('past what no longer counts is told so; from before it gets the surviving attempt and no word of it', async () => {
    const { s, sent, fails, ends, runId } = await retried(AWARE)
    const [before, past] = [idsOf(sent.frames)[0], idsOf(sent.frames).at(-1)]
    fails.open()
    await sent.until((f) => f.data?.includes('kept '))
    const [early, late] = [await s.resume(before), await s.resume(past)]
    ends.open()
    await sent.collect()
    const [got, told] = [await early.collect(), await late.collect()]
    for (const body of [got, told]) {
      await assertChatBody(body)
      assert.equal(deltasIn(body), 'kept words')
    }
    assert.deepEqual(eventsIn(got, 'attempt-superseded'), [])
    await assertSwitch(s, told, runId)
  })

  test('at any place of the log, live or over, never shows what no longer counts', async () => {
    const { s, sent, fails, ends } = await retried(AWARE)
    fails.open()
    await sent.until((f) => f.data?.includes('kept '))
    const live = []
    for (let from = 0; from <= (await s.info()).head; from++) live.push(await s.resume(from))
    ends.open()
    await sent.collect()
    for (const reader of live) {
      const got = await reader.collect()
      await assertChatBody(got)
      assert.ok('kept words'.endsWith(deltasIn(got)), deltasIn(got))
      await foldAll('6.0.0', got.raw, [])
    }
    for (let from = 0; from <= (await s.info()).head; from++) {
      const got = await (await s.resume(from)).collect()
      await assertChatBody(got)
      assert.ok('kept words'.endsWith(deltasIn(got)), deltasIn(got))
    }
  })
})

test('a live snapshot between the attempts holds neither, and names the same message', async () => {
  const { s, sent, fails, ends, message } = await retried(keyed('k'))
  const one = (await s.snapshot()).body
  fails.open()
  await sent.until((f) => f.data?.includes('kept '))
  const two = (await s.snapshot()).body
  assert.deepEqual([two.messages, two.resumeMessageId, two.streamSequence, two.status], [one.messages, one.resumeMessageId, one.streamSequence, 'active'])
  const again = await s.post({ messages: [message] }, keyed('k'))
  ends.open()
  assert.deepEqual([deltasIn(await again.collect()), typesIn(await sent.collect()).at(-1)], ['kept words', 'finish'])
})

test('a stop while another attempt is waited for ends it, and no further attempt is made', async () => {
  const s = open()
  set.model.script(s.id, textScript(['lost', ...breaks()]))
  const sent = await s.post({ messages: [userMessage(s.id)] }, AWARE)
  await sent.until((f) => f.data?.includes('attempt-superseded'))
  const calls = set.model.requests.length
  assert.equal((await s.stop()).body.stopped, true)
  const got = await sent.collect()
  await assertChatBody(got)
  assert.equal(typesIn(got).at(-1), 'abort')
  assert.deepEqual(await s.said(), [s.id, 'lost'], 'nothing has taken the place of what was shown')
  await new Promise((r) => setTimeout(r, 800))
  assert.equal(set.model.requests.length, calls)
})

test('attempts have an end: the last failure is the run’s', async () => {
  const s = open()
  set.model.script(s.id, textScript(['lost', ...breaks()]), { times: 3 })
  const calls = set.model.requests.length
  const got = await (await s.post({ messages: [userMessage(s.id)] }, AWARE)).collect()
  await assertChatBody(got)
  assert.deepEqual([typesIn(got).at(-1), eventsIn(got, 'attempt-superseded').length, set.model.requests.length - calls], ['error', 2, 3])
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.errorDetail.code, await s.said()], ['failed', 'provider_error', [s.id, 'lost']])
})
