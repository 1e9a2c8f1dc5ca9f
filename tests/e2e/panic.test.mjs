// A panic costs its own request a typed 500 and nobody else anything: not the readers, not the run, not the next request.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { openSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { TEST_SEAMS: '1' } })

async function panic(s) {
  const answer = await s.seam('panic')
  assert.deepEqual([answer.status, answer.body?.code], [500, 'framework_internal_error'], answer.text)
  assert.equal(typeof answer.body.error, 'string')
  assert.doesNotMatch(answer.text, /panicked|asked for|\.rs|wasm/)
}

/** A session whose run has said 'one ' and waits, with three readers. */
async function followed() {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['one ', held, 'two ', 'three']))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('one '))
  const [chat, wire] = [await s.reconnect(), await s.sse(0)]
  await chat.until((f) => f.data?.includes('one '))
  await wire.until((f) => f.event === 'caught-up')
  return { s, held, sent, chat, wire }
}

async function assertWhole({ s, sent, chat, wire }, text = 'one two three') {
  const [own, other, raw] = await Promise.all([sent, chat, wire].map((r) => r.collect()))
  for (const got of [own, other]) {
    assert.equal(got.ended, 'clean')
    await assertChatBody(got)
    assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, text)
  }
  const { chunks, terminal } = assertWireBody(raw)
  assert.equal(terminal.data.status, 'completed')
  assert.deepEqual(chunks, await s.log(), 'what was followed live is what is stored')
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), text)
}

async function assertGoesOn(s) {
  set.model.script(`next ${s.id}`, textScript(['next']))
  await assertChatBody(await s.ask(`next ${s.id}`))
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'next')
}

test('the readers and the run of the same session and of others go on to the end', async () => {
  const [hit, neighbour] = [await followed(), await followed()]
  for (let i = 0; i < 3; i++) await panic(hit.s)
  assert.equal((await hit.s.info()).status, 'active')
  const late = await hit.s.sse(0)
  await late.until((f) => f.event === 'caught-up')
  for (const { held } of [hit, neighbour]) held.open()
  await assertWhole(hit)
  await assertWhole(neighbour)
  assert.deepEqual(assertWireBody(await late.collect()).chunks, await hit.s.log())
  await assertGoesOn(hit.s)
})

test('nothing is lost or doubled when it happens again and again in mid-stream', async () => {
  const s = set.session()
  const words = Array.from({ length: 200 }, (_, i) => `w${i} `)
  set.model.script(s.id, [step.mode({ paceMs: 4 }), ...textScript(words)])
  const sent = await s.send(s.id)
  const [chat, wire] = [await s.reconnect(), await s.sse(0)]
  const over = sent.collect()
  for (let i = 0; i < 40 && !sent.ended; i++) await panic(s)
  await over
  await assertWhole({ s, sent, chat, wire }, words.join(''))
  await assertGoesOn(s)
})

test('other requests that are in flight in the same object are answered', async () => {
  const { s, held, sent, chat, wire } = await followed()
  const asked = Array.from({ length: 12 }, (_, i) => [s.snapshot, () => s.page(0), () => s.seam('panic'), () => s.seam('counts')][i % 4]())
  const statuses = (await Promise.all(asked)).map((a) => a.status)
  assert.deepEqual(statuses, Array.from({ length: 12 }, (_, i) => (i % 4 === 2 ? 500 : 200)))
  held.open()
  await assertWhole({ s, sent, chat, wire })
})

test('a send whose body is still on its way is taken', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['taken']))
  const body = Buffer.from(JSON.stringify({ messages: [userMessage(s.id)] }))
  const half = body.length >> 1
  const rest = gate()
  const answered = openSse(s.chat, { headers: { 'content-type': 'application/json' }, body: [body.subarray(0, half), rest, body.subarray(half)] })
  await panic(s)
  rest.open()
  const got = await (await answered).collect()
  await assertChatBody(got)
  assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, 'taken')
})

test('in a session that does not exist it creates nothing', async () => {
  const s = set.session()
  await panic(s)
  assert.deepEqual((await s.seam('counts')).body, {})
  assert.deepEqual(await s.info(), { exists: false })
})
