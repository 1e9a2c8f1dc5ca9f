// Leaving is not stopping: whoever goes away, however, the run goes on; and the object notices who has gone.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const set = stage({ vars: { HEARTBEAT_MS: 200 } })

/** A session whose run has said 'one ' and waits for `held`. */
async function waiting() {
  const s = set.session()
  const held = gate()
  const text = `held ${s.id}`
  set.model.script(text, textScript(['one ', held, 'two']))
  const sent = await s.send(text)
  await sent.until((f) => f.data?.includes('one '))
  return { s, held, sent, request: set.model.requests.find((r) => r.lastUserText === text) }
}

const readersAre = (s, count) => eventually(async () => (await s.info()).readers === count, { what: `${count} readers` })
const ended = (s) => eventually(async () => (await s.info()).status === 'ended', { what: 'the end of the run' })

describe('the run goes on to its end', () => {
  for (const leave of ['cut', 'reset']) {
    test(`when its only client leaves (${leave})`, async () => {
      const { s, held, sent, request } = await waiting()
      sent[leave]()
      await readersAre(s, 0)
      assert.equal((await s.info()).status, 'active')
      assert.equal(request.gone, false, 'the model call is still open')
      held.open()
      await ended(s)
      assert.equal(await request.over, 'complete')
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', 'one two'])
      const types = (await s.log()).map((c) => c.chunk.type)
      assert.equal(types.filter((t) => t === 'finish').length <= 1, true, 'one terminal')
    })
  }

  test('when the client leaves as soon as the headers are there', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['whole']))
    ;(await s.send('at once')).reset()
    await ended(s)
    assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'whole')
  })

  test('when clients come and go all the time', async () => {
    const { s, held, sent } = await waiting()
    for (let i = 0; i < 30; i++) {
      const reader = await (i % 2 ? s.reconnect() : s.sse(0))
      await reader.take(1)
      reader[i % 3 ? 'cut' : 'reset']()
    }
    await readersAre(s, 1)
    held.open()
    await assertChatBody(await sent.collect())
  })
})

describe('the reader gauge falls', () => {
  for (const leave of ['reset', 'cut']) {
    for (const kind of ['reconnect', 'sse']) {
      test(`after a ${leave === 'cut' ? 'FIN' : 'reset'} on ${kind}`, async () => {
        const { s, held, sent } = await waiting()
        const reader = await s[kind](kind === 'sse' ? 0 : undefined)
        await reader.take(1)
        await readersAre(s, 2)
        reader[leave]()
        await readersAre(s, 1)
        held.open()
        await assertChatBody(await sent.collect())
        await readersAre(s, 0)
      })
    }
  }
})

describe('a half-closed client that still reads', () => {
  test('is served to the end of the chat response', async () => {
    const { held, sent } = await waiting()
    sent.halfClose()
    await sent.until((f) => f.comment !== undefined)
    await sent.until((f) => f.comment !== undefined)
    held.open()
    const got = await sent.collect()
    assert.equal(got.ended, 'clean')
    await assertChatBody(got)
    assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, 'one two')
  })

  test('is served to the end of /sse', async () => {
    const { s, held, sent } = await waiting()
    const reader = await s.sse(0)
    await reader.until((f) => f.event === 'caught-up')
    reader.halfClose()
    await reader.until((f) => f.comment !== undefined)
    held.open()
    assertWireBody(await reader.collect())
    await sent.collect()
  })
})

test('a reader that stops reading holds nobody up', async () => {
  const s = set.session()
  const big = 'x'.repeat(16 * 1024)
  const held = gate()
  set.model.enqueue(textScript(['first', held, ...Array(400).fill(big)]))
  const sent = await s.send('flood')
  const stalled = await s.sse(0)
  await stalled.take(1)
  stalled.stall()
  held.open()
  const got = await sent.collect()
  await assertChatBody(got)
  assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text.length, 5 + 400 * big.length)
  stalled.unstall()
  const late = await stalled.collect()
  if (late.ended === 'clean') assertWireBody(late)
})

test('a silent response has heartbeats', async () => {
  const { held, sent } = await waiting()
  for (let i = 0; i < 3; i++) await sent.until((f) => f.comment !== undefined)
  held.open()
  await assertChatBody(await sent.collect())
})

test('stopping is something else: it ends every follower and the model call', async () => {
  const { s, sent, request } = await waiting()
  const followers = await Promise.all([s.reconnect(), s.reconnect(), s.sse(0)])
  await s.stop()
  const [one, two, wire] = await Promise.all(followers.map((f) => f.collect(10_000)))
  for (const got of [one, two, await sent.collect()]) {
    await assertChatBody(got)
    assert.match(got.text, /"type":"abort"\}\n\ndata: \[DONE\]\n\n$/)
  }
  assert.equal(assertWireBody(wire).terminal.data.status, 'interrupted')
  await request.aborted
  const again = await s.stop()
  assert.equal(again.status, 200, 'a second stop changes nothing')
})
