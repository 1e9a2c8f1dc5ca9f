// The whole process group is killed with -9 at random moments of a run, and started again on the same state.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody, assertWireBody, idsOf } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { session } from './harness/session.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const KILLS = 5
// Of the replies that each kill strikes: they are struck at different places.
const PACES = [5, 8, 13, 21]
const WORDS = Array.from({ length: 60 }, (_, i) => `w${i} `)
const seed = Number(process.env.SEED ?? Date.now() % 1_000_000)
const random = mulberry32(seed)
let model
let server
stage({ vars: { RECOVERY: 'fail' }, ready: (set) => ({ model, server } = set) })

for (let kill = 1; kill <= KILLS; kill++) {
  const frames = 1 + Math.floor(random() * (WORDS.length - 1))
  const paced = PACES[Math.floor(random() * PACES.length)]
  test(`kill ${kill} of ${KILLS}: after ${frames} frames of the reply at ${paced} ms (SEED=${seed})`, async () => {
    const running = await Promise.all(
      PACES.map(async (paceMs) => {
        const s = session(server)
        model.script(`kill ${kill} ${paceMs}`, [step.mode({ paceMs }), ...textScript([...WORDS, gate()])])
        const sent = await s.send(`kill ${kill} ${paceMs}`)
        return { s, paceMs, sent, wire: await s.sse(0) }
      }),
    )
    await running.find(({ paceMs }) => paceMs === paced).sent.take(frames)
    await server.kill()
    for (const each of running) {
      const [chat, seen] = await Promise.all([each.sent.collect(), each.wire.collect()])
      assert.deepEqual([chat.ended, seen.ended], ['broken', 'broken'], 'no clean end was written')
      await assertChatBody(chat)
      Object.assign(each, { chat, before: seen.frames.filter((f) => f.event === 'chunk').map((f) => JSON.parse(f.data)) })
    }
    await server.start()

    for (const { s, before, chat } of running) {
      await assertSettled(s, before, chat)
      await assertGoesOn(s)
    }
  })
}

/** The first request settles the dead run; nothing that a client saw is missing or changed. */
async function assertSettled(s, seen, chat) {
  const { body } = await s.snapshot()
  assert.equal(body.status, 'failed')
  assert.equal(body.errorDetail.retryable, true)
  assert.equal(typeof body.errorDetail.code, 'string')

  const log = await s.log()
  assert.deepEqual(log.map((c) => c.sequence), log.map((_, i) => i + 1), 'no sequence is missing or used twice')
  assert.deepEqual(log.slice(0, seen.length), seen, 'what the wire reader saw is in the log, unchanged')
  assert.ok(Math.max(0, ...idsOf(chat.frames)) <= log.length, 'what the chat reader saw is in the log')

  const saw = chunksOf(chat.frames.filter(isData)).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')
  const reply = body.messages.find((m) => m.role === 'assistant')
  assert.ok(reply || saw === '', 'what was said is kept')
  const kept = reply ? textOf(reply) : ''
  assert.ok(kept.startsWith(saw), `the partial reply is kept: saw ${JSON.stringify(saw)}, kept ${JSON.stringify(kept)}`)
  assert.ok(WORDS.join('').startsWith(kept))

  const { terminal } = assertWireBody(await (await s.sse(seen.length)).collect(), seen.length)
  assert.deepEqual([terminal.event, terminal.data.recoverable], ['fail', false])
  assert.equal((await s.info()).status, 'failed')
}

async function assertGoesOn(s) {
  const { head } = await s.info()
  // A run that was killed before it had said anything leaves no message of its own.
  const stored = (await s.snapshot()).body.messages.length
  model.enqueue(textScript(['alive']))
  const got = await s.ask('and now')
  await assertChatBody(got)
  assert.equal(chunksOf(got.frames).at(-1).type, 'finish')
  assert.ok(idsOf(got.frames).every((id) => id > head), 'the next run continues the numbers')
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1)), body.messages.length], ['ended', 'alive', stored + 2])
}

test('a finished session outlives the kill as it was', async () => {
  const s = session(server)
  model.enqueue(textScript(['done']))
  await s.ask('done')
  const [snapshot, log] = [(await s.snapshot()).body, await s.log()]
  await server.kill()
  await server.start()
  assert.deepEqual([(await s.snapshot()).body, await s.log()], [snapshot, log])
})

test('a clean stop breaks open responses rather than ending them', async () => {
  const s = session(server)
  model.enqueue(textScript(['part', gate()]))
  const sent = await s.send('stop')
  await sent.until((f) => f.data?.includes('part'))
  await server.restart()
  assert.equal((await sent.collect()).ended, 'broken')
  assert.equal((await s.snapshot()).body.status, 'failed')
})

function mulberry32(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}
