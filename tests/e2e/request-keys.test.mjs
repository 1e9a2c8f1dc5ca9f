// A repeated send with its key (`spec/helix.md` 5.8, tests 15 to 19): never a second run, whatever became of the first.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { plainly } from '../chaos/workerd.mjs'
import { assertChatBody } from './harness/assertions.mjs'
import { chunksIn, contract, deltasIn, eventsIn, keyed, typesIn } from './harness/contract.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const set = stage({ start: plainly })
const open = () => contract(set)
const calls = () => set.model.requests.length
const messageOf = (got) => chunksIn(got)[0].messageId

/** The send again, under its key; `words` if it now says something else. */
const repeat = (s, message, key, words) => s.post({ messages: [words ? userMessage(words, message.id) : message] }, keyed(key))
const refusalOf = async (reader) => {
  const { error, ...facts } = JSON.parse((await reader.collect()).text)
  assert.equal(typeof error, 'string')
  return [reader.status, facts]
}
const conflict = (runId) => [409, { code: 'state_request_key_conflict', runId }]
const completed = (runId) => [409, { code: 'state_request_already_completed', runId }]

test('15 while the run is live, a repeat gets its stream from the start, and nothing is stored twice', async () => {
  const s = open()
  const { message, sent, held, reply, runId } = await s.held('fifteen', { headers: keyed('k') })
  sent.cut()
  const before = calls()
  const readers = await Promise.all([repeat(s, message, 'k'), repeat(s, userMessage('fifteen'), 'k')])
  held.open()
  for (const reader of readers) {
    const got = await reader.collect()
    await assertChatBody(got)
    assert.deepEqual([reader.status, deltasIn(got), messageOf(got)], [200, reply, messageOf(sent)])
  }
  assert.deepEqual([calls(), await s.said(), (await s.info()).runId], [before, ['fifteen', reply], runId])
})

test('16 after the run, while it is the latest, a repeat is its replay', async () => {
  const s = open()
  const { message, got, runId } = await s.told('sixteen', 'once', { headers: keyed('k') })
  const before = calls()
  const again = await (await repeat(s, message, 'k')).collect()
  await assertChatBody(again)
  assert.deepEqual([deltasIn(again), messageOf(again), typesIn(again).at(-1)], ['once', messageOf(got), 'finish'])
  assert.deepEqual([calls(), await s.said(), (await s.info()).runId], [before, ['sixteen', 'once'], runId])
})

test('17 and 18 after a later turn a repeat is told so; other words under the key are a conflict in every state', async () => {
  const s = open()
  const first = await s.held('seventeen', { headers: keyed('k') })
  assert.deepEqual(await refusalOf(await repeat(s, first.message, 'k', 'other')), conflict(first.runId))
  first.held.open()
  await first.sent.collect()
  assert.deepEqual(await refusalOf(await repeat(s, first.message, 'k', 'other')), conflict(first.runId))
  await s.told('later')
  const before = [calls(), await s.said(), (await s.info()).head]
  assert.deepEqual(await refusalOf(await repeat(s, first.message, 'k')), completed(first.runId))
  assert.deepEqual(await refusalOf(await repeat(s, first.message, 'k', 'other')), conflict(first.runId))
  assert.deepEqual([calls(), await s.said(), (await s.info()).head], before)
  await set.server.kill()
  await set.server.start()
  assert.deepEqual(await refusalOf(await repeat(s, first.message, 'k')), completed(first.runId), 'after a restart, too')
  assert.deepEqual(await refusalOf(await repeat(s, first.message, 'k', 'other')), conflict(first.runId))
})

test('19 a malformed key is refused and not repeated', async () => {
  const s = open()
  for (const key of ['x'.repeat(256), 'a b', 'SECRÈT']) {
    const { status, body, text } = await s.refused({ messages: [userMessage('nineteen')] }, keyed(Buffer.from(key).toString('latin1')))
    assert.deepEqual([status, body], [400, { error: 'a request key has 1 to 255 visible ASCII characters and no spaces', code: 'validation_error' }])
    assert.ok(!text.includes('xxx') && !text.includes('SECR'))
  }
  assert.equal((await s.snapshot()).status, 404)
})

test('two sends under one key at one instant are one run, which both follow; under two keys one is refused', async () => {
  for (let round = 0; round < 10; round++) {
    const s = open()
    const text = `at once ${s.id}`
    const held = gate()
    set.model.script(text, textScript(['a', held, 'b']))
    const before = calls()
    const [one, two] = await Promise.all([repeat(s, userMessage(text), 'k'), repeat(s, userMessage(text), 'k')])
    assert.deepEqual([one.status, two.status, (await repeat(s, userMessage(text), 'k2')).status], [200, 200, 409], `round ${round}`)
    held.open()
    for (const reader of [one, two]) assert.equal(deltasIn(await reader.collect()), 'ab')
    assert.deepEqual([calls(), await s.said()], [before + 1, [text, 'ab']])
  }
})

describe('a repeat of a send whose run', () => {
  test('waits for the client is that run, ended in its calls', async () => {
    const s = open()
    const { message, got, reply, runId } = await s.suspended('waits', ['c1'], { headers: keyed('k') })
    const before = calls()
    const again = await (await repeat(s, message, 'k')).collect()
    await assertChatBody(again)
    assert.deepEqual([messageOf(again), typesIn(again)], [reply.id, typesIn(got)])
    const { body } = await s.snapshot()
    assert.deepEqual([calls(), body.status, (await s.info()).runId], [before, 'paused', runId])
  })

  test('was stopped is what was said until then', async () => {
    const s = open()
    const { message, sent } = await s.held('stopped', { headers: keyed('k') })
    await s.stop()
    await sent.collect()
    const before = calls()
    const again = await (await repeat(s, message, 'k')).collect()
    await assertChatBody(again)
    assert.deepEqual([deltasIn(again), typesIn(again).at(-1), calls()], ['part of stopped', 'abort', before])
  })

  test('failed is its failure, as it was streamed', async () => {
    const s = open()
    const message = userMessage('fails')
    set.model.script('fails', textScript(['half', step.error(), step.destroy()]))
    const got = await (await repeat(s, message, 'k')).collect()
    const before = calls()
    const again = await (await repeat(s, message, 'k')).collect()
    await assertChatBody(again)
    assert.deepEqual([deltasIn(again), chunksIn(again).at(-1), calls()], ['half', chunksIn(got).at(-1), before])
  })

  test('was superseded by a retry is told that another run followed', async () => {
    const s = open()
    const { message, sent, runId } = await s.held('superseded', { headers: keyed('k') })
    set.model.script('superseded', textScript(['the second try']))
    const retried = await (await s.retry()).collect()
    assert.equal(deltasIn(retried), 'the second try')
    sent.cut()
    assert.deepEqual(await refusalOf(await repeat(s, message, 'k')), completed(runId))
    assert.deepEqual(await s.said(), ['superseded', 'the second try'])
  })

  test('was continued by results is told that another run followed, which the snapshot holds', async () => {
    const s = open()
    const { message, runId } = await s.suspended('continued', ['c1'], { headers: keyed('k') })
    set.model.script((r) => r.body.messages.at(-1).role === 'tool' && r.lastUserText === 'continued', textScript(['Done.']))
    assert.equal((await s.toolResult({ toolCallId: 'c1', result: 1 })).status, 200)
    await eventually(async () => (await s.snapshot()).body.status === 'ended')
    assert.deepEqual(await refusalOf(await repeat(s, message, 'k')), completed(runId))
    assert.deepEqual(await s.said(), ['continued', 'I ask. Done.'])
  })

  test('died with the server is its failure, across the restart', async () => {
    const s = open()
    const { message, held } = await s.held('died', { headers: keyed('k') })
    await set.server.kill()
    held.open()
    await set.server.start()
    const before = calls()
    const again = await (await repeat(s, message, 'k')).collect()
    await assertChatBody(again)
    assert.deepEqual([deltasIn(again), typesIn(again).at(-1), calls()], ['part of died', 'error', before])
  })
})

describe('a keyed edit', () => {
  test('is made once, repeated as its own stream, and told apart from other words', async () => {
    const s = open()
    const first = await s.told('before the edit', undefined, { headers: keyed('k1') })
    await s.told('a later turn')
    const edited = userMessage('the edit', first.message.id)
    const { sent, held, reply, runId } = await s.held('the edit', { message: edited, headers: keyed('k2'), messageId: first.message.id })
    const before = calls()
    const again = await s.post({ messages: [edited], messageId: first.message.id }, keyed('k2'))
    assert.deepEqual(await refusalOf(await s.post({ messages: [userMessage('third words', edited.id)], messageId: edited.id }, keyed('k2'))), conflict(runId))
    held.open()
    await sent.collect()
    const got = await again.collect()
    assert.equal(deltasIn(got), reply)
    assert.equal(eventsIn(got, 'stream-resync').length, 1)
    const after = await (await s.post({ messages: [edited], messageId: edited.id }, keyed('k2'))).collect()
    assert.equal(deltasIn(after), reply)
    assert.deepEqual([calls(), await s.said()], [before, ['the edit', reply]])
    assert.deepEqual(await refusalOf(await repeat(s, first.message, 'k1')), completed(first.runId), 'a send that the edit cut away')
  })
})

test('results are not keyed: the key of the send neither refuses nor repeats them', async () => {
  const s = open()
  const { message, reply } = await s.suspended('keyless results', ['c1'], { headers: keyed('k') })
  set.model.script((r) => r.body.messages.at(-1).role === 'tool' && r.lastUserText === 'keyless results', textScript(['Done.']))
  const result = { ...reply, parts: reply.parts.map((p) => (p.toolCallId ? { ...p, state: 'output-available', output: 1 } : p)) }
  const got = await (await s.post({ messages: [message, result] }, keyed('k'))).collect()
  await assertChatBody(got)
  assert.deepEqual(await s.said(), ['keyless results', 'I ask. Done.'])
})
