// The refusals of `spec/helix.md` 7.2 by their numbers, each with its status and its whole body. Not here: E16, because a stream has any
// number of readers; E21, because a direct resume of a partly answered batch has no route: the chat route answers it with an empty stream.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { answered, contract, deltasIn, keyed } from './harness/contract.mjs'
import { step, textScript } from './harness/fake-model.mjs'
import { openaiAgent } from './harness/server.mjs'
import { call, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const LIMIT = 65_536
const LIVE_WAIT_MS = 700
const set = stage({
  vars: { TEST_SEAMS: 1, LIVE_WAIT_MS, MAX_REQUEST_BYTES: LIMIT },
  agents: (model) => ({ ...openaiAgent(model), keyless: { producer: 'openai', baseUrl: model.baseUrl, model: 'm', apiKey: 'NOT_SET' } }),
})
const open = () => contract(set)

/** `count` failures of storage: of the next `statements`, of `transactions`, or of the statements `behind-transaction` that holds. */
const fail = async (s, of, count = 1) => assert.equal((await call(`${s.own}/__seam/x?name=fail-storage&of=${of}&count=${count}`)).status, 200)
/** Until nothing fails any more; the question itself may. */
const mend = (s) => eventually(async () => (await call(`${s.own}/__seam/x?name=fail-storage&of=statements&count=0`)).status === 200)
const is = ({ status, body }, expected, fields) => assert.deepEqual([status, body], [expected, fields])
const bodyOf = async (reader) => ({ status: reader.status, body: JSON.parse((await reader.collect()).text) })
const UNREADABLE = { error: 'The conversation could not be read', code: 'state_history_incomplete' }
const resumeWith = (s, headers) => call(s.chat, { headers })

test('E1 no such session', async () => {
  const body = { error: 'Session not found', code: 'state_session_not_found' }
  const s = open()
  for (const answer of [await s.snapshot(), await call(`${s.own}/snapshot`), await resumeWith(s, {}), await s.stop(), await s.delete(), await bodyOf(await s.retry())]) {
    is(answer, 404, body)
  }
  is(await s.toolResult({ toolCallId: 'c', result: 1 }), 404, body)
})

test('E2 a snapshot that cannot be read', async () => {
  const s = open()
  await s.told('snapshot')
  await fail(s, 'statements')
  is(await s.snapshot(), 503, { ...UNREADABLE, retryable: true, cause: 'store_error' })
  const whole = await s.snapshot()
  assert.equal(whole.status, 200, 'the next one can')
  const reply = whole.body.messages[1].id
  const { runId } = await s.info()
  const damaged = { index: 1, id: 'damaged', role: 'assistant', run: runId, json: 'no json' }
  assert.deepEqual((await s.seam('storage', { json: { apply: [{ Message: damaged }] } })).body, { ok: 'applied' })
  is(await s.snapshot(), 409, { ...UNREADABLE, retryable: false, cause: 'corrupt_row' })
  is(await resumeWith(s, { 'x-helix-replay-prefix': '1', 'x-existing-message-id': reply }), 409, { ...UNREADABLE, retryable: false, cause: 'corrupt_row' })
  assert.deepEqual((await s.seam('storage', { json: { apply: [{ TruncateMessages: 1 }] } })).body, { ok: 'applied' })
  is(await s.snapshot(), 409, { ...UNREADABLE, retryable: false, cause: 'short_read' })
  assert.equal((await s.delete()).status, 200, 'and can be deleted')
})

test('E3 no such stream', async () => is(await bodyOf(await open().sse(0)), 404, { error: 'Stream not found', code: 'state_session_not_found' }))

test('E4 a run is active', async () => {
  const s = open()
  const { held, sent, runId } = await s.held('active')
  const body = { error: 'A reply is already running in this session', code: 'state_already_running', retryable: true, runId, attach: `/api/chat/${s.id}/stream` }
  is(await s.refused({ messages: [userMessage('second')] }), 409, body)
  is(await s.refused({ messages: [userMessage('second')] }, keyed('k')), 409, body)
  held.open()
  await sent.collect()
})

test('E5 a run start that cannot be', async () => {
  // A send decides and commits in one turn of the object, so nothing can come between; a rewind can name what is not there.
  const s = open()
  await s.told('start')
  is(await bodyOf(await s.retry({ checkpointId: 'gone' })), 409, {
    error: 'This checkpoint is not one to go back to',
    code: 'state_run_start_conflict',
    cause: 'checkpoint_unknown',
  })
})

test('E6 a send that fails before its run is committed stores nothing', async () => {
  const s = open()
  await s.told('kept')
  const send = (more = {}) => s.refused({ messages: [userMessage('not stored')], ...more })
  is(await send({ agent: 'nobody' }), 400, { error: (await send({ agent: 'nobody' })).body.error, code: 'validation_error' })
  is(await send({ agent: 'keyless' }), 500, { error: (await send({ agent: 'keyless' })).body.error, code: 'configuration_invalid' })
  await fail(s, 'statements')
  is(await send(), 503, { ...UNREADABLE, retryable: true, cause: 'store_error' })
  await fail(s, 'transactions')
  is(await send(), 500, { error: 'Internal error', code: 'framework_internal_error' })
  assert.deepEqual(await s.said(), ['kept', 're kept'])
  assert.equal((await s.told('stored')).got.ended, 'clean')
  assert.deepEqual(await s.said(), ['kept', 're kept', 'stored', 're stored'])
})

describe('E7 behind the commit', () => {
  test('a send whose storage fails is not told to come again, and its message is there once', async () => {
    for (let count = 1; count <= 8; count++) {
      const s = open()
      await s.told('before')
      await fail(s, 'behind-transaction', count)
      set.model.script('behind', textScript(['ok']), { times: 2 })
      const message = userMessage('behind')
      const sent = await s.post({ messages: [message] }, count % 2 ? {} : keyed('k'))
      assert.ok(sent.status === 200 || sent.status === 500 || sent.status === 409, `${count} failures: ${sent.status}`)
      const got = await sent.collect()
      if (sent.status === 200 && got.ended === 'clean') await assertChatBody(got)
      await mend(s)
      await eventually(async () => (await s.snapshot()).body.status !== 'active')
      assert.equal((await s.said()).filter((text) => text === 'behind').length, 1)
      const again = await s.post({ messages: [message] }, count % 2 ? {} : keyed('k'))
      await again.collect()
      assert.equal((await s.said()).filter((text) => text === 'behind').length, 1)
    }
  })

  test('a retry that could not be stored leaves the live run alone', async () => {
    const s = open()
    const { sent, held, reply } = await s.held('undisturbed')
    await fail(s, 'transactions')
    is(await bodyOf(await s.retry()), 500, { error: 'Internal error', code: 'framework_internal_error' })
    held.open()
    const got = await sent.collect()
    await assertChatBody(got)
    assert.deepEqual([deltasIn(got), await s.said()], [reply, ['undisturbed', reply]])
  })
})

test('E8 a malformed key', async () => {
  const body = { error: 'a request key has 1 to 255 visible ASCII characters and no spaces', code: 'validation_error' }
  is(await open().refused({ messages: [userMessage('x')] }, keyed('two words')), 400, body)
})

test('E9 and E10 keys', async () => {
  const s = open()
  const { message, runId } = await s.told('keyed', undefined, { headers: keyed('k') })
  is(await s.refused({ messages: [userMessage('other')] }, keyed('k')), 409, {
    error: 'This request key was used for another message',
    code: 'state_request_key_conflict',
    runId,
  })
  await s.told('later')
  is(await s.refused({ messages: [message] }, keyed('k')), 409, {
    error: 'The run of this request key has ended, and another one followed',
    code: 'state_request_already_completed',
    runId,
  })
})

describe('E11 results', () => {
  const INVALID = { error: 'The tool result is not valid', code: 'INVALID_RESULT' }

  test('that do not fit are refused, and none of them is stored', async () => {
    const s = open()
    const { message, reply } = await s.suspended('do not fit')
    const denial = { ...reply, parts: reply.parts.map((p) => (p.toolCallId ? { ...p, state: 'approval-responded' } : p)) }
    is(await s.refused({ messages: [message, denial] }), 400, INVALID)
    assert.equal((await s.snapshot()).body.status, 'paused')
  })

  test('that could not be read are to be sent again; behind the store they are not', async () => {
    const s = open()
    const { message, reply } = await s.suspended('stored')
    const partly = answered(reply, { c1: 1 })
    await fail(s, 'statements')
    is(await s.refused({ messages: [message, partly] }), 503, { ...UNREADABLE, retryable: true, cause: 'store_error' })
    await fail(s, 'transactions')
    is(await s.refused({ messages: [message, partly] }), 500, { error: 'Internal error', code: 'framework_internal_error' })
    assert.equal((await s.snapshot()).body.messages[1].parts.filter((p) => p.state === 'input-available').length, 2)
    await fail(s, 'behind-transaction', 5)
    const first = await s.post({ messages: [message, partly] })
    assert.notEqual(first.status, 503)
    await first.collect()
    await mend(s)
    set.model.script((r) => r.body.messages.at(-1).role === 'tool' && r.lastUserText === 'stored', textScript(['Thanks.']), { times: 2 })
    await fail(s, 'behind-transaction', 5)
    const last = await s.post({ messages: [message, answered(reply, { c1: 1, c2: 2 })] })
    assert.notEqual(last.status, 503)
    await last.collect()
    await mend(s)
    await eventually(async () => !['active', 'paused'].includes((await s.snapshot()).body.status))
    assert.deepEqual((await s.snapshot()).body.messages[1].parts.filter((p) => p.toolCallId).map((p) => p.output), [1, 2])
  })

  test('on their own route as well', async () => {
    const s = open()
    await s.suspended('own route')
    await fail(s, 'statements')
    is(await s.toolResult({ toolCallId: 'c1', result: 1 }), 503, { ...UNREADABLE, retryable: true, cause: 'store_error' })
    await fail(s, 'behind-transaction', 5)
    is(await s.toolResult({ toolCallId: 'c1', result: 1 }), 200, { success: true, status: 'accepted', continues: false, runId: (await s.info()).runId })
    await mend(s)
    is(await s.toolResult({ toolCallId: 'c1', result: 2 }), 200, { success: true, status: 'already_completed', continues: false, runId: (await s.info()).runId })
  })
})

test('E12 an unknown message', async () => {
  const s = open()
  await s.told('prefix')
  is(await resumeWith(s, { 'x-helix-replay-prefix': '1', 'x-existing-message-id': 'nobody' }), 409, {
    error: 'The message is not one that can be resumed; read the snapshot',
    code: 'state_not_resumable',
    retryable: true,
    cause: 'resume_message_unknown',
  })
})

test('E13 a run that does not go live in time', async () => {
  const s = open()
  const sent = await s.post({ messages: [userMessage('held')] }, { 'x-test-hold': '1' })
  const begun = performance.now()
  const answers = await Promise.all([resumeWith(s, {}), resumeWith(s, { 'x-resume-from-sequence': '0' }), call(`${s.chat}/stream`)])
  assert.ok(performance.now() - begun >= LIVE_WAIT_MS - 50)
  for (const answer of answers) {
    is(answer, 503, { error: 'No run has started', code: 'transport_stream_drop', retryable: true, cause: 'run_not_live' })
    assert.equal(answer.headers.get('retry-after'), '1')
  }
  set.model.script('held', textScript(['now']))
  await s.seam('release')
  assert.equal(deltasIn(await sent.collect()), 'now')
})

test('E14 a prefix that cannot be read', async () => {
  const s = open()
  const { got } = await s.told('unreadable prefix')
  const { messageId } = JSON.parse(got.frames.find((f) => f.data?.includes('"start"')).data)
  await fail(s, 'statements')
  is(await resumeWith(s, { 'x-helix-replay-prefix': '1', 'x-existing-message-id': messageId }), 503, { ...UNREADABLE, retryable: true })
})

test('E15 the run failed', async () => {
  const s = open()
  set.model.script('fails', textScript(['half', step.error(), step.destroy()]))
  await (await s.post({ messages: [userMessage('fails')] })).collect()
  const answer = await resumeWith(s, {})
  is(answer, 409, {
    error: 'stream_failed',
    code: 'provider_error',
    retryable: true,
    sessionId: s.id,
    streamId: s.id,
    message: 'The model reported an error; try again',
    errorDetail: { code: 'provider_error', category: 'provider', retryable: true },
  })
})

test('E17 a body that is too large', async () => {
  const payload = JSON.stringify({ messages: [userMessage('x'.repeat(LIMIT))] })
  const body = { error: 'The request body is too large', code: 'validation_payload_too_large', retryable: false, cause: 'request_body', limitBytes: LIMIT, sizeBytes: payload.length }
  const s = open()
  for (const path of [s.chat, `${s.chat}/tool-result`, `${s.chat}/retry`, `${set.server.origin}/api/chat`]) {
    is(await call(path, { method: 'POST', body: payload }), 413, body)
  }
})

test('E18 a result for a run that was superseded', async () => {
  const body = { error: 'This run was superseded by another one', code: 'state_run_superseded' }
  const s = open()
  const { message, reply, runId } = await s.suspended('superseded', ['c1'])
  await s.told('another message')
  is(await s.toolResult({ toolCallId: 'c1', result: 1, runId }), 409, body)
  is(await s.toolResult({ toolCallId: 'c1', result: 1 }), 409, body)
  is(await s.refused({ messages: [message, answered(reply, { c1: 1 })] }), 409, body)
})

test('E19 a result that is none', async () => {
  const s = open()
  await s.suspended('invalid', ['c1'])
  const body = { error: 'The tool result is not valid', code: 'INVALID_RESULT' }
  for (const json of [{}, [], { toolCallId: 'c1' }, { toolCallId: 7, result: 1 }, { toolCallId: 'nobody', result: 1 }, { toolCallId: 'c1', result: 1, error: 'e' }, { toolCallId: 'c1', error: 'e'.repeat(9000) }, { toolCallId: 'c1', result: 1, runId: 'nobody' }, { toolCallId: 'x'.repeat(257), result: 1 }]) {
    is(await s.toolResult(json), 400, body)
  }
  is(await call(`${s.chat}/tool-result`, { method: 'POST', body: 'no json' }), 400, body)
  assert.equal((await s.snapshot()).body.status, 'paused')
})

test('E20 a client that leaves while it is parked is given nothing, and holds nothing', async () => {
  const s = open()
  const sent = await s.post({ messages: [userMessage('left')] }, { 'x-test-hold': '1' })
  const before = (await s.info()).counters.opened
  const leave = new AbortController()
  const parked = [`${s.chat}/stream`, s.chat].map((url) => fetch(url, { signal: leave.signal }).then(() => 'answered', () => 'left'))
  const stays = s.resume(0)
  leave.abort()
  assert.deepEqual(await Promise.all(parked), ['left', 'left'])
  set.model.script('left', textScript(['said']))
  await s.seam('release')
  assert.equal(deltasIn(await (await stays).collect()), 'said')
  await sent.collect()
  assert.deepEqual([(await s.info()).counters.opened - before, (await s.info()).readers], [1, 0], 'only the one that stayed was opened')
})

