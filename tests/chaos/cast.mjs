// The sessions of one kill, their runs, and what must be true of each once it is over.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { assertChatBody } from '../e2e/harness/assertions.mjs'
import { textOf } from '../e2e/harness/clients.mjs'
import { step, textScript } from '../e2e/harness/fake-model.mjs'
import { session } from '../e2e/harness/session.mjs'
import { chunksOf } from '../e2e/harness/sse.mjs'
import { eventually } from '../e2e/harness/wait.mjs'
import { plan, saidBy, saidIn } from './plan.mjs'
import { chatReader, wireReader } from './readers.mjs'

export const LEASE_MS = 2000
/** A run whose writer is dead must be settled so long after the restart, whether anybody asks or not. */
export const BOUND_MS = LEASE_MS + 5000

/** A session before its run; `kind`: 'model', 'slow', 'demo', 'ui', 'lines' or 'opaque'. A quiet one is asked nothing until its bound has passed. */
export function member(server, kind, random, { quiet }) {
  const s = session(server)
  const pushed = ['ui', 'lines', 'opaque'].includes(kind)
  const run = pushed ? { session: s.id, run: `run-${randomUUID().slice(0, 8)}`, vocabulary: kind === 'opaque' ? kind : 'ui', count: 12 + Math.floor(random() * 36), lines: kind === 'lines' } : null
  const words = Array.from({ length: 20 + Math.floor(random() * 60) }, (_, i) => `w${i} `)
  const me = { s, kind, quiet, pushed, run, words, readers: [], chats: [], snapshots: [] }
  const comes = !quiet

  me.look = async () => {
    const { status, body } = await s.snapshot()
    if (status === 200) me.snapshots.push(body)
    return body
  }

  /** Starts a run that lives in the object. */
  me.send = async (model) => {
    const pace = (ms) => step.mode({ paceMs: ms })
    // The attempt after a slow one is quick.
    if (kind === 'slow') model.script(s.id, [pace(150), ...textScript(words)])
    model.script(s.id, [pace(kind === 'slow' ? 1 : 3 + Math.floor(random() * 10)), ...textScript(words)], { times: Infinity })
    const first = await s.send(s.id, { agent: kind === 'demo' ? 'demo' : 'default' })
    me.chats.push(chatReader(s, { first, comes }))
    me.readers.push(wireReader(s, { comes }))
  }

  /** Joins a run that a producer outside has opened. */
  me.join = async () => {
    await eventually(async () => (await s.info()).exists !== false, { every: 10, what: 'the opened run' })
    me.readers.push(wireReader(s, { comes }))
    if (kind !== 'opaque') me.chats.push(chatReader(s, { comes }))
  }

  me.leave = () => [...me.readers, ...me.chats].forEach((reader) => reader.leave())
  return me
}

/** How the run is settled, asked again and again until `deadline`. */
export async function settled(me, deadline) {
  return eventually(async () => ((await me.look())?.status === 'active' ? null : me.snapshots.at(-1)), {
    ms: Math.max(0, deadline - Date.now()),
    every: 60,
    what: 'the end of the run',
  })
}

/** A quiet session's own clock: its run was over by the bound, though nobody asked. */
export async function settledByItself(me, restarted) {
  const { ended, status } = (await me.s.seam('storage', { json: 'load' })).body.ok.run
  assert.notEqual(status, 'running', 'nobody writes it')
  assert.ok(ended <= restarted + BOUND_MS, `settled ${ended - restarted} ms behind the restart`)
  await me.look()
}

/** All that must hold of a settled session; `expected`: 'ended', 'failed', or undefined when either may be. */
export async function assertKept(me, model, expected) {
  const { s, words } = me
  await Promise.all([...me.readers, ...me.chats].map((reader) => reader.done))
  const body = await me.look()
  const info = await s.info()
  assert.ok(['ended', 'failed'].includes(body.status), body.status)
  if (expected) assert.equal(body.status, expected, JSON.stringify(body.errorDetail))
  if (body.status === 'failed') assert.equal(body.errorDetail.retryable, true, JSON.stringify(body.errorDetail))
  assert.equal(info.runStatus, body.status === 'ended' ? 'completed' : 'failed', 'the row and the snapshot agree')

  const log = await s.log()
  assert.deepEqual(log.map((c) => c.sequence), log.map((_, i) => i + 1), 'no sequence is missing or used twice')
  for (const reader of me.readers) {
    reader.check()
    for (const seen of reader.chunks()) assert.deepEqual(log[seen.sequence - 1], seen, 'what a reader saw is in the log, unchanged')
    const { outcome } = (await reader.done) ?? {}
    if (outcome) assert.equal(outcome, info.runStatus, 'a follower was told the same end')
  }
  for (const chat of me.chats) {
    await chat.check()
    assert.ok(chat.head() <= log.length, 'what a chat client saw is in the log')
  }
  assertNeverShrank(me.snapshots)
  if (me.pushed) assertPushed(me, body, log)
  if (['model', 'slow'].includes(me.kind)) assertModelled(me, body)
  await assertGoesOn(s, model, body, words)
}

function assertPushed({ run, chats }, body, log) {
  const said = log.map(saidBy).filter((text) => text !== undefined)
  const all = saidIn(plan(run.vocabulary, run.run, run.count))
  assert.deepEqual(said, all.slice(0, said.length), 'each chunk is stored once, in order')
  if (body.status !== 'ended') return
  assert.equal(said.length, all.length, 'nothing that the producer said is missing')
  for (const chat of chats) if (chat.isWhole()) assert.equal(chat.text(), all.join(''), 'a chat client shows the reply once')
}

function assertModelled({ words, chats, quiet }, body) {
  const reply = body.messages.find((m) => m.role === 'assistant')
  const kept = reply ? textOf(reply) : ''
  if (body.status === 'ended') assert.equal(kept, words.join(''), 'the whole reply is kept')
  assert.ok(words.join('').startsWith(kept), `kept ${kept}`)
  for (const chat of chats) if (!quiet && chat.isWhole()) assert.equal(chat.text(), kept, 'a chat client shows what is kept')
}

/** Committed messages are only ever added to. */
function assertNeverShrank(snapshots) {
  for (let i = 1; i < snapshots.length; i++) {
    const [before, after] = [snapshots[i - 1], snapshots[i]]
    assert.ok(after.streamSequence >= before.streamSequence, 'the committed cursor does not go back')
    before.messages.forEach((message, at) => {
      assert.equal(after.messages[at]?.id, message.id, 'a committed message stays')
      assert.deepEqual(after.messages[at].parts.slice(0, message.parts.length), message.parts, 'what was committed of it stays')
    })
  }
}

async function assertGoesOn(s, model, { messages }) {
  model.script(`next ${s.id}`, textScript(['alive']))
  const got = await s.ask(`next ${s.id}`, { agent: 'default' })
  await assertChatBody(got)
  assert.equal(chunksOf(got.frames).at(-1)?.type, 'finish', `the next send works: ${got.text}`)
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.messages.length, textOf(body.messages.at(-1))], ['ended', messages.length + 2, 'alive'])
  assert.deepEqual(body.messages.slice(0, messages.length), messages)
}
