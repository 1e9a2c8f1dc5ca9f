// What must hold of every answer, whatever the test is about.
import assert from 'node:assert/strict'
import { assertStrictBody } from './schemas.mjs'
import { chunksOf, isData, isDone } from './sse.mjs'

/** A typed refusal: a 4xx with `{error, code}` in JSON and nothing of the server's insides. */
export function assertRefused(answer, status, what = 'the request') {
  const shown = `${what}: ${answer.status} ${answer.text?.slice(0, 300)}`
  if (status) assert.equal(answer.status, status, shown)
  assert.ok(answer.status >= 400 && answer.status < 500, shown)
  assert.equal(typeof answer.body?.error, 'string', shown)
  assert.ok(answer.body.error.length > 0 && typeof answer.body.code === 'string' && answer.body.code.length > 0, shown)
  assert.doesNotMatch(answer.text, /panicked|\.rs:\d|\n\s+at |wasm/i, shown)
}

/** The sequences of the frames that carry one. */
export const idsOf = (frames) => frames.filter((f) => f.id !== undefined).map((f) => Number(f.id))

/** A chat body: ids strictly increase, every chunk is strictly valid, and it ends with its terminal and `[DONE]`, or breaks. */
export async function assertChatBody(got) {
  const ids = idsOf(got.frames)
  assert.deepEqual(ids, [...new Set(ids)].sort((a, b) => a - b), 'ids strictly increase')
  await assertStrictBody(got.raw)
  if (got.ended !== 'clean') return
  assert.equal(got.rest, null, 'no unfinished frame at the end')
  const data = got.frames.filter(isData)
  assert.ok(isDone(data.at(-1)), `a clean end follows [DONE]: ${got.text.slice(-300)}`)
  assert.equal(data.filter(isDone).length, 1)
  const chunks = chunksOf(data)
  const types = chunks.map((c) => c.type)
  assert.ok(['finish', 'abort', 'error'].includes(types.at(-1)), `[DONE] follows a terminal, not ${types.at(-1)}`)
  // Behind a chat route a reply that never began has no opening: only its end is said, and what is about the response.
  if (['abort', 'error'].includes(types.at(-1)) && chunks.slice(0, -1).every((c) => c.transient)) return
  assert.equal(types.filter((t) => t === 'start').length, 1, 'one start')
  assert.equal(chunks.find((c) => !c.transient).type, 'start')
}

const TERMINAL = ['end', 'fail']

/** A wire body read to its end from `from`: contiguous, one caught-up before everything live, one terminal, last. Answers `{chunks, head, terminal}`. */
export function assertWireBody(got, from = 0) {
  assert.equal(got.ended, 'clean')
  assert.equal(got.rest, null)
  const frames = got.frames.filter(isData).map((f) => ({ ...f, data: JSON.parse(f.data) }))
  const chunks = frames.filter((f) => f.event === 'chunk')
  chunks.forEach((f, i) => {
    assert.equal(f.data.sequence, from + i + 1, 'sequences are contiguous from the cursor')
    assert.equal(f.id, String(f.data.sequence), 'the id is the sequence')
    assert.equal(typeof f.data.chunk.runId, 'string', `a chunk names its run: ${JSON.stringify(f.data)}`)
  })
  const caughtUp = frames.filter((f) => f.event === 'caught-up')
  assert.equal(caughtUp.length, 1, 'one caught-up')
  const terminals = frames.filter((f) => TERMINAL.includes(f.event))
  assert.equal(terminals.length, 1, 'one terminal')
  assert.equal(frames.at(-1), terminals[0], 'the terminal is last')
  const historyLength = frames.indexOf(caughtUp[0])
  const { head } = caughtUp[0].data
  if (head !== undefined) assert.equal(head, from + historyLength, 'caught-up stands at the head that history was read to')
  return { chunks: chunks.map((f) => f.data), historyLength, terminal: terminals[0] }
}
