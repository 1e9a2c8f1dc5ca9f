// Edits, retries and regenerates: what is cut, what the model is asked then, and who is told (`spec/helix.md` 1.6, 1.9 and test 26).
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody, idsOf } from './harness/assertions.mjs'
import { AWARE, asked, chunksIn, contract, deltasIn, eventsIn, typesIn } from './harness/contract.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
const open = () => contract(set)

/** One resync in the body, before any content, that names this run and the snapshot's cut; answers its data. */
async function assertResync(s, got, reason, { messageCount, runId } = {}) {
  const events = eventsIn(got, 'stream-resync')
  assert.equal(events.length, 1, `one resync: ${got.text.slice(0, 2000)}`)
  const [event] = events
  const { latestTruncateCheckpointId } = (await s.snapshot()).body
  assert.deepEqual(Object.keys(event).sort(), ['checkpointId', 'fromSequence', 'messageCount', 'reason', 'runId', 'stepCount', 'truncateCheckpointId'])
  assert.deepEqual([event.reason, event.truncateCheckpointId], [reason, latestTruncateCheckpointId])
  assert.ok(latestTruncateCheckpointId)
  if (messageCount !== undefined) assert.equal(event.messageCount, messageCount)
  if (runId !== undefined) assert.equal(event.runId, runId)
  return event
}

/** No event of responses in what is committed, nor in what the model was last asked. */
async function assertNoTrace(s) {
  const traces = /data-stream-resync|data-attempt-superseded|data-tool-output-elsewhere|checkpointId":"[^"]*","from/
  assert.doesNotMatch(JSON.stringify((await s.snapshot()).body.messages), traces)
  assert.doesNotMatch(JSON.stringify(set.model.requests.at(-1).body), traces)
}

describe('an edit', () => {
  for (const [name, named] of [['of the message in its place', false], ['that names the message and has an id of its own', true]]) {
    test(`${name} cuts the conversation before it`, async () => {
      const s = open()
      const kept = await s.told(`kept ${name}`)
      const old = await s.told(`old ${name}`)
      await s.told(`later ${name}`)
      const text = `new ${name}`
      const message = userMessage(text, named ? undefined : old.message.id)
      const { got, runId } = await s.told(text, 'new reply', { message, headers: AWARE, ...(named ? { messageId: old.message.id } : {}) })
      await assertChatBody(got)
      const event = await assertResync(s, got, 'rollback', { messageCount: 2, runId })
      assert.equal(event.stepCount, 0)
      assert.equal(typesIn(got).indexOf('data-stream-resync'), 1, 'right behind the start')
      assert.deepEqual(await s.said(), [`kept ${name}`, `re kept ${name}`, text, 'new reply'])
      assert.deepEqual((await s.snapshot()).body.messages.map((m) => m.id).filter((_, i) => i % 2 === 0), [kept.message.id, message.id])
      assert.deepEqual(asked(set.model.requests.at(-1)), [`user: kept ${name}`, `assistant: re kept ${name}`, `user: ${text}`])
      await assertNoTrace(s)
      const next = await s.told(`next ${name}`)
      assert.deepEqual(eventsIn(next.got, 'stream-resync'), [])
      assert.equal(asked(set.model.requests.at(-1)).length, 5)
      await assertNoTrace(s)
    })
  }

  test('by a stock client is the new reply and nothing else', async () => {
    const s = open()
    const { message } = await s.told('stock edit')
    const { got } = await s.told('stock edited', 'new', { message: userMessage('stock edited', message.id) })
    await assertChatBody(got)
    assert.deepEqual(typesIn(got).filter((t) => t.startsWith('data-')), [])
    assert.deepEqual(await s.said(), ['stock edited', 'new'])
  })

  test('to the same words in the middle of the conversation asks for another answer', async () => {
    const s = open()
    const { message } = await s.told('same words', 'first')
    await s.told('more words')
    set.model.script('same words', textScript(['second']))
    const got = await (await s.post({ messages: [message], messageId: message.id })).collect()
    assert.equal(deltasIn(got), 'second')
    assert.deepEqual(await s.said(), ['same words', 'second'])
  })

  test('while a run is live supersedes it; the aware go on, the stock that have content break', async () => {
    const s = open()
    await s.told('before')
    const { message, sent, held } = await s.held('edited while live')
    const aware = await s.resume(0, { headers: AWARE })
    await aware.until((f) => f.data?.includes('part of'))
    const edit = userMessage('the edit of a live one', message.id)
    const { got, runId } = await s.told('the edit of a live one', 'edited', { message: edit })
    await assertChatBody(got)
    held.open()
    const told = await aware.collect()
    await assertChatBody(told)
    await assertResync(s, told, 'rollback', { messageCount: 2, runId })
    assert.equal(deltasIn(told), 'part of edited while liveedited')
    assert.equal((await sent.collect()).ended, 'broken')
    assert.deepEqual(await s.said(), ['before', 're before', 'the edit of a live one', 'edited'])
    assert.equal((await s.log()).filter(({ chunk }) => chunk.delta === ' rest').length, 0, 'the late words of the superseded run are nowhere')
  })

  test('of an earlier message does not answer a stock client’s later one, though that has no content yet', async () => {
    const s = open()
    const { message } = await s.told('earlier')
    set.model.script('later, unanswered', [step.silence()])
    const later = await s.post({ messages: [userMessage('later, unanswered')] })
    await later.until((f) => f.data?.includes('"start"'))
    await s.told('earlier, edited', 'for the edit', { message: userMessage('earlier, edited', message.id) })
    const got = await later.collect()
    assert.deepEqual([got.ended, deltasIn(got)], ['broken', ''])
  })
})

describe('26 a retry', () => {
  test('while the run is live: exactly one resync, before content, and then the new run, for every aware client', async () => {
    const s = open()
    const { sent, held, runId: old } = await s.held('retried live', { headers: AWARE })
    const other = await s.resume(0)
    const late = await s.resume((await s.info()).head)
    await other.until((f) => f.data?.includes('part of'))
    const wire = await s.sse(0)
    const again = gate()
    set.model.script('retried live', textScript(['second ', again, 'try']))
    const retried = await s.retry({}, AWARE)
    assert.equal(retried.status, 200)
    await retried.until((f) => f.data?.includes('second '))
    const { runId } = await s.info()
    const during = (await s.snapshot()).body
    assert.deepEqual([during.status, during.messages.length], ['active', 1])
    held.open()
    again.open()
    for (const reader of [sent, other, late, retried]) {
      const got = await reader.collect()
      await assertChatBody(got)
      const event = await assertResync(s, got, 'retry', { messageCount: 1, runId })
      assert.equal(event.truncateCheckpointId, during.latestTruncateCheckpointId)
      const types = typesIn(got)
      assert.ok(types.indexOf('data-stream-resync') < chunksIn(got).findIndex((c) => c.delta === 'second '))
      assert.ok(deltasIn(got).endsWith('second try'))
    }
    const { chunks } = assertWireBody(await wire.collect())
    const from = chunks.findIndex(({ chunk }) => chunk.type === 'run_started' && chunk.runId === runId)
    assert.ok(chunks.slice(from).every(({ chunk }) => chunk.runId === runId), `no late chunk of ${old}`)
    assert.equal(chunks.filter(({ chunk }) => chunk.type === 'data-stream-resync').length, 1)
    assert.deepEqual(await s.said(), ['retried live', 'second try'])
    await assertNoTrace(s)
  })

  test('while the run is live: a stock response with content breaks, one without goes on', async () => {
    const s = open()
    const { sent } = await s.held('retried, stock')
    set.model.script('retried, stock', textScript(['second']))
    await (await s.retry()).collect()
    assert.equal((await sent.collect()).ended, 'broken')

    const silent = open()
    set.model.script('retried, silent', [step.silence()])
    const waiting = await silent.post({ messages: [userMessage('retried, silent')] })
    await waiting.until((f) => f.data?.includes('"start"'))
    set.model.script('retried, silent', textScript(['second']))
    await (await silent.retry()).collect()
    const got = await waiting.collect()
    await assertChatBody(got)
    assert.deepEqual([deltasIn(got), typesIn(got).filter((t) => t.startsWith('data-'))], ['second', []])
  })

  test('of a finished run answers the last message once more', async () => {
    const s = open()
    await s.told('first turn')
    await s.told('finished', 'one')
    set.model.script('finished', textScript(['two']))
    const got = await (await s.retry({}, AWARE)).collect()
    await assertChatBody(got)
    await assertResync(s, got, 'retry', { messageCount: 3 })
    assert.deepEqual(await s.said(), ['first turn', 're first turn', 'finished', 'two'])
    assert.deepEqual(asked(set.model.requests.at(-1)), ['user: first turn', 'assistant: re first turn', 'user: finished'])
    const again = await (await s.resume(0)).collect()
    assert.equal(eventsIn(again, 'stream-resync').length, 1, 'a later reader is told as well')
    assert.equal(deltasIn(again), 'two')
  })

  test('of a failed run', async () => {
    const s = open()
    set.model.script('fails first', textScript(['half', step.error(), step.destroy()]))
    await (await s.post({ messages: [userMessage('fails first')] })).collect()
    assert.equal((await s.snapshot()).body.status, 'failed')
    set.model.script('fails first', textScript(['whole']))
    const got = await (await s.retry()).collect()
    await assertChatBody(got)
    assert.deepEqual([await s.said(), (await s.snapshot()).body.status], [['fails first', 'whole'], 'ended'])
  })

  test('of a run that waits for the client: its calls are gone, and a late result is refused', async () => {
    const s = open()
    const { runId, message, reply } = await s.suspended('waits', ['c1'])
    set.model.script('waits', textScript(['without tools']))
    await (await s.retry()).collect()
    assert.deepEqual(await s.said(), ['waits', 'without tools'])
    const late = await s.toolResult({ toolCallId: 'c1', result: 1, runId })
    assert.deepEqual([late.status, late.body.code], [409, 'state_run_superseded'])
    const before = set.model.requests.length
    const answer = { ...reply, parts: reply.parts.map((p) => (p.toolCallId ? { ...p, state: 'output-available', output: 1 } : p)) }
    await (await s.post({ messages: [message, answer] })).collect()
    assert.deepEqual([await s.said(), set.model.requests.length], [['waits', 'without tools'], before])
  })

  test('twice at one instant is two runs, one after the other, and the last one stays', async () => {
    const s = open()
    await s.told('retried twice', 'zero')
    set.model.script('retried twice', textScript(['again']), { times: 2 })
    const bodies = await Promise.all([s.retry({}, AWARE), s.retry({}, AWARE)].map(async (r) => (await r).collect()))
    for (const got of bodies) {
      await assertChatBody(got)
      assert.ok(deltasIn(got).endsWith('again'))
    }
    assert.deepEqual(await s.said(), ['retried twice', 'again'])
  })

  test('of nothing is refused', async () => {
    const s = open()
    assert.equal((await s.retry()).status, 404)
    assert.equal((await s.snapshot()).status, 404)
  })

  test('outlives a restart: the snapshot still names the cut', async () => {
    const s = open()
    await s.told('retried, restarted', 'one')
    set.model.script('retried, restarted', textScript(['two']))
    await (await s.retry()).collect()
    const before = (await s.snapshot()).body
    await set.server.kill()
    await set.server.start()
    assert.deepEqual((await s.snapshot()).body, before)
    const got = await (await s.resume(0)).collect()
    await assertResync(s, got, 'retry')
  })
})

describe('a retry from a checkpoint', () => {
  test('that began a turn rolls back to it', async () => {
    const s = open()
    const held = gate()
    set.model.script('turn one', textScript([held, 'one']))
    const sent = await s.post({ messages: [userMessage('turn one')] })
    await sent.until((f) => f.data?.includes('"start"'))
    const { checkpointId } = (await s.snapshot()).body
    held.open()
    await sent.collect()
    await s.told('turn two')
    set.model.script('turn one', textScript(['one, again']))
    const got = await (await s.retry({ checkpointId }, AWARE)).collect()
    await assertChatBody(got)
    await assertResync(s, got, 'rollback', { messageCount: 1 })
    assert.deepEqual(await s.said(), ['turn one', 'one, again'])
    assert.deepEqual(asked(set.model.requests.at(-1)), ['user: turn one'])
  })

  test('that nobody knows, that ends a reply, or that an edit has cut away is refused, and nothing changes', async () => {
    const s = open()
    const held = gate()
    set.model.script('to be cut', textScript([held, 'x']))
    await s.told('stays')
    const sent = await s.post({ messages: [userMessage('to be cut')] })
    await sent.until((f) => f.data?.includes('"start"'))
    const cut = (await s.snapshot()).body.checkpointId
    held.open()
    await sent.collect()
    const ofReply = (await s.snapshot()).body.checkpointId
    const first = (await s.snapshot()).body.messages[0].id
    await s.told('edited away', 'y', { message: userMessage('edited away', first) })
    await s.told('and more')
    const before = [await s.said(), (await s.info()).head, set.model.requests.length]
    for (const checkpointId of ['nobody', cut, ofReply]) {
      const answer = await s.retry({ checkpointId })
      const { error, ...facts } = JSON.parse((await answer.collect()).text)
      assert.deepEqual([answer.status, facts], [409, { code: 'state_run_start_conflict', cause: 'checkpoint_unknown' }], checkpointId)
    }
    assert.deepEqual([await s.said(), (await s.info()).head, set.model.requests.length], before)
  })
})

describe('a regenerate', () => {
  const regenerate = (s, messages, headers, more = {}) => s.post({ messages, trigger: 'regenerate-message', ...more }, headers)

  test('answers the last message once more, told as a retry', async () => {
    const s = open()
    const { message, got: old } = await s.told('regenerated', 'one')
    set.model.script('regenerated', textScript(['two']))
    const got = await (await regenerate(s, [message], AWARE, { messageId: chunksIn(old)[0].messageId })).collect()
    await assertChatBody(got)
    await assertResync(s, got, 'retry', { messageCount: 1 })
    assert.deepEqual(await s.said(), ['regenerated', 'two'])
  })

  test('of an earlier reply cuts what came after it', async () => {
    const s = open()
    const { message, got: old } = await s.told('regenerated early', 'one')
    await s.told('cut by it')
    set.model.script('regenerated early', textScript(['two']))
    await (await regenerate(s, [message], {}, { messageId: chunksIn(old)[0].messageId })).collect()
    assert.deepEqual(await s.said(), ['regenerated early', 'two'])
    assert.deepEqual(asked(set.model.requests.at(-1)), ['user: regenerated early'])
  })

  test('while the run is live, suspended or failed starts anew, once', async () => {
    const s = open()
    const { message, sent } = await s.held('regenerated live', { headers: AWARE })
    set.model.script('regenerated live', textScript(['two']))
    await assertChatBody(await (await regenerate(s, [message])).collect())
    assert.ok(deltasIn(await sent.collect()).endsWith('two'))
    const waits = await s.suspended('regenerated, waiting', ['c1'])
    set.model.script('regenerated, waiting', textScript(['half', step.error(), step.destroy()]))
    await (await regenerate(s, [waits.message])).collect()
    assert.equal((await s.snapshot()).body.status, 'failed')
    set.model.script('regenerated, waiting', textScript(['three']))
    await (await regenerate(s, [waits.message])).collect()
    assert.deepEqual(await s.said(), ['regenerated live', 'two', 'regenerated, waiting', 'three'])
  })

  test('of a message that the client has changed is an edit of it', async () => {
    const s = open()
    const { message } = await s.told('as it was')
    await s.told('cut by the edit')
    const { got } = await s.told('as it is now', 'new', { message: userMessage('as it is now', message.id), headers: AWARE, trigger: 'regenerate-message' })
    await assertChatBody(got)
    await assertResync(s, got, 'rollback', { messageCount: 0 })
    assert.deepEqual(await s.said(), ['as it is now', 'new'])
    assert.deepEqual(asked(set.model.requests.at(-1)), ['user: as it is now'])
  })

  test('under a key is made once, however often it is sent', async () => {
    const s = open()
    const { message } = await s.told('keyed regenerate', 'one')
    set.model.script('keyed regenerate', textScript(['two']))
    const key = { 'x-helix-request-key': 'r' }
    const bodies = [await (await regenerate(s, [message], key)).collect(), await (await regenerate(s, [message], key)).collect()]
    for (const got of bodies) assert.equal(deltasIn(got), 'two')
    const other = await regenerate(s, [userMessage('other words', message.id)], key)
    assert.equal(JSON.parse((await other.collect()).text).code, 'state_request_key_conflict')
    assert.deepEqual(await s.said(), ['keyed regenerate', 'two'])
  })

  test('of a message that was never stored is a send', async () => {
    const s = open()
    set.model.script('lost', textScript(['found']))
    const got = await (await regenerate(s, [userMessage('lost')], AWARE)).collect()
    assert.deepEqual([deltasIn(got), eventsIn(got, 'stream-resync')], ['found', []])
    assert.deepEqual(await s.said(), ['lost', 'found'])
  })

  test('of nothing is refused', async () => {
    const s = open()
    const { status, body } = await s.refused({ messages: [], trigger: 'regenerate-message' })
    assert.deepEqual([status, body.code, body.cause], [409, 'state_not_resumable', 'nothing_to_answer'])
  })
})

describe('a send while calls wait', () => {
  test('gives the calls up, tells the aware where their end is, and goes on', async () => {
    const s = open()
    const { reply, runId: old } = await s.suspended('gives up', ['c1', 'c2'])
    const { got } = await s.told('never mind', 'fine', { headers: AWARE })
    await assertChatBody(got)
    const elsewhere = eventsIn(got, 'tool-output-elsewhere')
    assert.deepEqual(elsewhere.map((e) => [e.reason, e.toolCallId, e.toolName]), [['tool_output_elsewhere', 'c1', 'ask'], ['tool_output_elsewhere', 'c2', 'ask']])
    assert.deepEqual([eventsIn(got, 'stream-resync'), deltasIn(got)], [[], 'fine'])
    const { messages } = (await s.snapshot()).body
    assert.deepEqual(messages.map((m) => m.id).indexOf(reply.id), 1)
    assert.deepEqual(messages[1].parts.filter((p) => p.toolCallId).map((p) => p.state), ['output-error', 'output-error'])
    await assertNoTrace(s)
    const late = await s.toolResult({ toolCallId: 'c1', result: 1, runId: old })
    assert.deepEqual([late.status, late.body.code], [409, 'state_run_superseded'])
    const stock = await (await s.reconnect()).status
    assert.equal(stock, 204)
    assert.deepEqual(typesIn(await (await s.resume(undefined)).collect()).filter((t) => t.startsWith('data-') || t.startsWith('tool-')), [])
  })
})

test('sequences of a rewound session go on; nothing is taken out of the log', async () => {
  const s = open()
  const { message } = await s.told('log one')
  const { head } = await s.info()
  await s.told('log two', 'x', { message: userMessage('log two', message.id) })
  const log = await s.log()
  assert.deepEqual(log.map((c) => c.sequence), log.map((_, i) => i + 1))
  assert.ok(log.length > head)
  assert.ok(idsOf((await (await s.resume(0)).collect()).frames).every((id) => id > head))
})
