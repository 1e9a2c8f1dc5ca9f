import assert from 'node:assert/strict'
import { test } from 'node:test'
import { STRICT, assertStrictBody, assertStrictChunk, objection } from './schemas.mjs'

test('the common vocabulary is accepted by both', async () => {
  const chunks = [
    { type: 'start', messageId: 'm', messageMetadata: { a: 1 } },
    { type: 'start-step' },
    { type: 'text-start', id: 't' },
    { type: 'text-delta', id: 't', delta: 'x' },
    { type: 'text-end', id: 't' },
    { type: 'tool-input-available', toolCallId: 'c', toolName: 'n', input: null },
    { type: 'data-helix-replay', data: { phase: 'begin', messageId: 'm' }, transient: true },
    { type: 'finish-step' },
    { type: 'finish', finishReason: 'stop' },
    { type: 'abort' },
    { type: 'error', errorText: 'x' },
  ]
  for (const chunk of chunks) await assertStrictChunk(chunk)
})

test('an unknown key, type or null is refused by both, with the reason', async () => {
  for (const version of STRICT) {
    assert.match(await objection(version, { type: 'text-start', id: 't', runId: 'r' }), /Unrecognized key: "runId"/)
    assert.match(await objection(version, { type: 'start', messageId: null }), /messageId: .*received null/)
    assert.match(await objection(version, { type: 'run_started' }), new RegExp(`ai ${version}`))
  }
})

test('abort with a reason and tool-approval-response are where the two differ', async () => {
  const abort = { type: 'abort', reason: 'x' }
  assert.ok(await objection('6.0.0', abort))
  assert.equal(await objection('7.0.0', abort), null)
})

test('a whole body is read by the versions’ own readers', async () => {
  await assertStrictBody(': hi\n\nid: 1\ndata: {"type":"start"}\n\ndata: [DONE]\n\n')
  await assert.rejects(assertStrictBody('data: {"type":"start","seq":1}\n\n'), /Unrecognized key: "seq"/)
  await assert.rejects(assertStrictBody('data: {"type":"data-x","data":{"__proto__":{}}}\n\n'), /ai 6.0.0 refuses/)
  await assert.rejects(assertStrictBody('data: nope\n\n'), /ai 6.0.0 refuses/)
})
