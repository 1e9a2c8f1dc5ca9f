// Faults that were found by breaking the product on purpose: each test fails without its mend.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused } from './harness/assertions.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { rawCall } from './harness/raw.mjs'
import { call, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { LEASE_MS: 1500, MAX_REQUEST_BYTES: 20_000 } })
const json = { 'content-type': 'application/json' }
const last = (got, type) => got.frames.map((f) => f.data?.startsWith('{') && JSON.parse(f.data)).filter((c) => c?.type === type).at(-1)

test('a body that is declared too large is refused on every route, while the client holds it back', async () => {
  for (const path of ['/api/chat', '/api/chat/held', '/api/chat/held/stop']) {
    const answer = await rawCall(set.server, path, { method: 'POST', headers: { ...json, 'content-length': '11000000' }, body: '', hold: true })
    assertRefused(answer, 413)
  }
})

test('tool arguments nested to the limit of JSON readers do not make a session unreadable', async () => {
  for (const levels of [60, 99, 110, 124, 126]) {
    const s = set.session()
    const args = `{"a":${'['.repeat(levels)}${']'.repeat(levels)}}`
    set.model.script(`deep ${levels}`, textScript(['ok'], { tool: { id: 'c', name: 'n', arguments: [args] } }))
    assertChatBody(await s.ask(`deep ${levels}`))
    assert.equal((await s.snapshot()).status, 200, `${levels} levels`)
    assert.equal((await s.page(0, 500)).status, 200)
    set.model.script('next', textScript(['fine']))
    assertChatBody(await s.ask('next'))
    assert.equal((await s.delete()).status, 200)
  }
})

test('an answer that named its finish reason is complete, though the connection stays open', async () => {
  const s = set.session()
  const never = gate()
  const steps = textScript(['whole'])
  set.model.script('open end', [...steps.filter((one) => !JSON.stringify(one).includes('[DONE]')), step.silence(never)])
  const got = assertChatBody(await s.ask('open end'))
  never.open()
  assert.equal((await s.snapshot()).body.status, 'ended', JSON.stringify(got))
})

describe('a resume', () => {
  test('behind the finish keeps the finish reason', async () => {
    const s = set.session()
    set.model.script('cut off', textScript(['long'], { finish: 'length' }))
    await s.ask('cut off')
    const { head } = await s.info()
    for (const cursor of [head - 1, head]) {
      const got = await (await s.resume(cursor)).collect()
      assert.equal(last(got, 'finish').finishReason, 'length', `cursor ${cursor}`)
    }
  })

  test('has one start, with the id that the client asked for, from every cursor', async () => {
    const s = set.session()
    set.model.script('one start', textScript(['a', 'b']))
    await s.ask('one start')
    const { head } = await s.info()
    for (const messageId of [undefined, 'mine']) {
      for (let cursor = 0; cursor <= head; cursor++) {
        const got = await (await s.resume(cursor, { messageId })).collect()
        const starts = got.frames.map((f) => f.data?.startsWith('{') && JSON.parse(f.data)).filter((c) => c?.type === 'start')
        assert.equal(starts.length, 1, `cursor ${cursor}`)
        if (messageId) assert.equal(starts[0].messageId, messageId, `cursor ${cursor}`)
      }
    }
  })
})

describe('message ids', () => {
  test('empty and endless ones are refused', async () => {
    for (const id of ['', 'x'.repeat(257)]) {
      const s = set.session()
      assertRefused(await call(s.chat, { json: { messages: [userMessage('hi', id)] } }), 400, `${id.length} bytes`)
    }
  })

  test('that of a stored reply is refused', async () => {
    const s = set.session()
    set.model.script('taken', textScript(['reply']))
    await s.ask('taken')
    const { id } = (await s.snapshot()).body.messages.at(-1)
    assertRefused(await call(s.chat, { json: { messages: [userMessage('again', id)] } }), 400)
  })
})

test('half an emoji in a message, as browsers write it, is accepted', async () => {
  const s = set.session()
  set.model.script('cut', textScript(['ok']))
  const body = JSON.stringify({ messages: [userMessage('cut')] }).replace('"cut"', '"cut \\ud83d"')
  set.model.script('cut \ufffd', textScript(['ok']))
  assertChatBody(await s.ask('cut').catch(() => ({})).then(async (got) => got))
  const answer = await rawCall(set.server, `/api/chat/${set.session().id}`, { headers: json, body: `\ufeff${body}` })
  assert.equal(answer.status, 200)
})
