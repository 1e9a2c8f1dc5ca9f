// U+2028, U+2029 and U+0085 end a line for some readers: they leave as JSON escapes, and mean the same.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { VERSIONS, foldAll, textOf } from './harness/clients.mjs'
import { textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { openSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
const TEXT = 'a\u2028b\u2029c\u0085d — “é”'
const MARKS = /[\u0085\u2028\u2029]/

test('in every frame of chat and wire, live and replayed', async () => {
  const s = set.session()
  const tool = { id: 'c1', name: 'n\u2028', arguments: JSON.stringify({ 'k\u2029': TEXT }) }
  set.model.script(TEXT, textScript([TEXT, TEXT], { reasoning: [TEXT], tool }))
  const sent = await (await s.send(TEXT)).collect()
  const { body } = await s.snapshot()
  const messageId = body.messages.at(-1).id
  const replays = {
    sent, whole: await (await openSse(`${s.chat}/stream?since=0`)).collect(), attached: await (await s.resume(undefined)).collect(), wire: await (await s.sse(0)).collect(),
    prefix: await (await s.resume(0, { messageId, prefix: true })).collect(), cursor: await (await s.resume(9)).collect(),
  }
  for (const [name, got] of Object.entries(replays)) {
    assert.ok(got.frames.length > 2, name)
    assert.doesNotMatch(got.text, MARKS, name)
  }
  assert.equal(textOf(body.messages.at(-1)), TEXT + TEXT, 'what is stored is what was said')
  for (const version of VERSIONS) {
    const folded = await foldAll(version, sent.raw, [userMessage(TEXT)])
    assert.equal(textOf(folded.reply), TEXT + TEXT, `ai ${version}`)
  }
})

test('in a pushed run’s chunks, result and state', async () => {
  const s = set.session()
  await call(`${s.own}/runs`, { json: { runId: 'r1', vocabulary: 'opaque', state: { s: TEXT } } })
  const headers = { 'producer-epoch': '1', 'producer-seq': '0' }
  const end = await call(`${s.own}/runs/r1/chunks`, { headers, json: { chunks: [{ type: 'x', said: TEXT }], end: { status: 'completed', output: TEXT } } })
  assert.equal(end.status, 200, end.text)
  const got = await (await s.sse(0)).collect()
  assert.doesNotMatch(got.text, MARKS)
  const [said, last] = [got.frames.find((f) => f.data?.includes('"said"')), got.frames.at(-1)].map((f) => JSON.parse(f.data))
  assert.deepEqual([said.chunk.said, last.output, last.state], [TEXT, TEXT, { s: TEXT }])
})
