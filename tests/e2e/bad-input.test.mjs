// Bad input is a typed 4xx, stores nothing and disturbs nobody: all of it runs while twenty readers follow another session.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { before, describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { BAD_BODIES, BAD_BODY_IDS, BAD_CURSORS, BAD_IDS, BAD_LIMITS, GOOD_IDS, LIMIT } from './harness/bad-input.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { rawCall } from './harness/raw.mjs'
import { call, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const json = { 'content-type': 'application/json' }
const held = gate()
let followed
let readers

const set = stage({
  // The held reply is silent for as long as all the others take.
  vars: { MAX_REQUEST_BYTES: LIMIT, LEASE_MS: 600_000 },
  async ready({ model, session }) {
    followed = session()
    model.script('followed', textScript(['before ', held, 'after']))
    const sent = await followed.send('followed')
    await sent.until((f) => f.data?.includes('before '))
    readers = [sent, ...(await Promise.all(Array.from({ length: 19 }, (_, i) => (i % 2 ? followed.sse(0) : followed.reconnect()))))]
    for (const reader of readers.slice(1)) await reader.until((f) => f.data?.includes('before '))
  },
})

const nothingStored = async (s) => assert.deepEqual(await s.info(), { exists: false })

describe('session ids', () => {
  for (const [name, id] of Object.entries(BAD_IDS)) {
    test(`${name} is refused on every route`, async () => {
      const body = JSON.stringify({ messages: [userMessage('hi')] })
      const calls = [
        [`/sessions/${id}/info`], [`/sessions/${id}/chunks`], [`/sessions/${id}/sse`], [`/sessions/${id}/snapshot`],
        [`/api/chat/${id}`], [`/api/chat/${id}/stream`], [`/api/chat/${id}/snapshot`],
        [`/api/chat/${id}`, { method: 'DELETE' }],
        [`/api/chat/${id}/stop`, { headers: json, body: '{}' }],
        [`/api/chat/${id}`, { headers: json, body }],
      ]
      for (const [path, options] of calls) assertRefused(await rawCall(set.server, path, options), undefined, `${options?.method ?? ''} ${path}`)
    })
  }

  test('an empty id is refused', async () => {
    for (const path of ['/sessions//info', '/sessions//sse', '/api/chat//stream', '/api/chat//snapshot']) assertRefused(await rawCall(set.server, path), undefined, path)
  })

  test('the ids that are allowed are sessions of their own', async () => {
    for (const [index, id] of GOOD_IDS.entries()) {
      set.model.script(`good ${index}`, textScript([`reply ${index}`]))
      await assertChatBody(await set.session(id).ask(`good ${index}`))
    }
    for (const [index, id] of GOOD_IDS.entries()) {
      const { body } = await set.session(id).snapshot()
      assert.equal(body.sessionId, id)
      assert.deepEqual(body.messages.map(textOf), [`good ${index}`, `reply ${index}`], id)
    }
  })

  test('an allowed id in the body is the same session as in the path', async () => {
    set.model.script('by body', textScript(['x']))
    const id = `会 話 ${randomUUID()}`
    assert.equal((await call(`${set.server.origin}/api/chat`, { json: { id, messages: [userMessage('by body')] } })).status, 200)
    assert.equal((await set.session(id).snapshot()).body.messages.length, 2)
  })

  test('a bad id in the body is refused', async () => {
    for (const id of BAD_BODY_IDS) {
      const answer = await call(`${set.server.origin}/api/chat`, { json: { id, messages: [userMessage('hi')] } })
      assertRefused(answer, 400, `id ${JSON.stringify(id)}`)
    }
  })
})

describe('bodies', () => {
  for (const [name, { body, headers }] of Object.entries(BAD_BODIES)) {
    test(`${name} is refused and stores nothing`, async () => {
      const s = set.session()
      const answer = await rawCall(set.server, `/api/chat/${s.id}`, { body, headers: { ...json, 'content-length': Buffer.byteLength(body), ...headers } })
      assertRefused(answer, undefined, name)
      await nothingStored(s)
    })
  }

  // What a client holds of earlier turns is not used, so one odd part in it must not lock the client out.
  test('a part of unknown type in an earlier message does no harm', async () => {
    const s = set.session()
    set.model.script('later', textScript(['fine']))
    const history = [{ id: 'odd', role: 'user', parts: [{ type: 'hologram' }] }]
    assertChatBody(await s.ask('later', { history }))
    assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['later', 'fine'])
  })

  test('a body that says it is too large is refused before it comes', async () => {
    const s = set.session()
    const answer = await rawCall(set.server, `/api/chat/${s.id}`, { method: 'POST', headers: { ...json, 'content-length': String(LIMIT * 100) }, body: '{"messages":', hold: true })
    assertRefused(answer, 413)
    const { code, retryable, cause, limitBytes, sizeBytes } = answer.body
    assert.deepEqual([code, retryable, cause, limitBytes, sizeBytes], ['validation_payload_too_large', false, 'request_body', LIMIT, LIMIT * 100])
    await nothingStored(s)
  })

  test('a body that turns out too large is refused', async () => {
    const s = set.session()
    const piece = 'x'.repeat(16 * 1024)
    const answer = await rawCall(set.server, `/api/chat/${s.id}`, { headers: json, body: ['{"messages":"', ...Array(8).fill(piece), '"}'] })
    assertRefused(answer, 413)
    assert.equal(answer.body.code, 'validation_payload_too_large')
    await nothingStored(s)
  })

  test('a bad body in a session that exists changes nothing in it', async () => {
    const s = set.session()
    set.model.script('kept', textScript(['reply']))
    await s.ask('kept')
    /** All but the responses that were opened: a body without messages attaches. */
    const kept = async () => {
      const { counters: { appended, flushes, rowsWritten }, ...info } = await s.info()
      return [(await s.snapshot()).body, info, { appended, flushes, rowsWritten }]
    }
    const before = await kept()
    for (const { body, headers } of Object.values(BAD_BODIES)) {
      await rawCall(set.server, `/api/chat/${s.id}`, { body, headers: { ...json, 'content-length': Buffer.byteLength(body), ...headers } })
    }
    assert.deepEqual(await kept(), before)
  })

  test('a bad body of a stop is refused and stops nothing', async () => {
    for (const body of ['nope', '[]', '{"runId":7}', '{"__proto__":{}}']) {
      assertRefused(await rawCall(set.server, `/api/chat/${followed.id}/stop`, { body, headers: json }), undefined, body)
    }
    assert.equal((await followed.info()).status, 'active')
  })
})

describe('cursors', () => {
  let s
  before(async () => {
    s = set.session()
    set.model.script('cursors', textScript(['a', 'b']))
    await s.ask('cursors')
  })

  for (const cursor of BAD_CURSORS) {
    test(`${cursor.slice(0, 32)} is refused wherever a cursor is taken`, async () => {
      const query = encodeURIComponent(cursor)
      assertRefused(await call(`${s.own}/sse?fromSequence=${query}`), undefined, 'sse')
      assertRefused(await call(`${s.own}/chunks?fromSequence=${query}`), undefined, 'chunks')
      if (!/^[\x20-\x7e]+$/.test(cursor)) return
      for (const header of ['x-resume-from-sequence', 'last-event-id']) {
        assertRefused(await call(s.chat, { headers: { [header]: cursor } }), undefined, header)
        assertRefused(await call(`${followed.chat}`, { headers: { [header]: cursor } }), undefined, `${header} on a live run`)
      }
      assertRefused(await call(`${s.own}/sse`, { headers: { 'last-event-id': cursor } }), undefined, 'last-event-id on sse')
    })
  }

  test('a cursor beyond the head is answered with the head and a pointer to the snapshot', async () => {
    const { head } = await s.info()
    for (const answer of [await call(`${s.own}/sse?fromSequence=${head + 1}`), await call(s.chat, { headers: { 'x-resume-from-sequence': String(head + 1) } })]) {
      assertRefused(answer)
      assert.equal(answer.body.head, head)
      assert.match(answer.text, /snapshot/)
    }
  })

  for (const limit of BAD_LIMITS) {
    test(`a limit of ${limit.slice(0, 32)} is refused`, async () => assertRefused(await s.page(0, limit)))
  }
})

describe('routes and methods', () => {
  test('what does not exist is a typed 404', async () => {
    for (const path of ['/nope', '/api', '/api/chats', '/sessions', '/sessions/x', '/sessions/x/nope', '/api/chat/x/nope', '/api/chat/x/y/stream/z', '//', '/api/chat/x/../../nope']) {
      assertRefused(await rawCall(set.server, path), undefined, path)
    }
  })

  test('the handles of tests do not exist', async () => {
    const s = set.session()
    for (const name of ['panic', 'counts', 'append', 'storage']) {
      assertRefused(await s.seam(name), 404, name)
      assertRefused(await s.seam(name, { json: 'load' }), 404, `POST ${name}`)
      assertRefused(await followed.seam(name), 404, `${name} on a live session`)
    }
    await nothingStored(s)
  })

  test('a wrong method is refused', async () => {
    const s = set.session()
    for (const [method, url] of [['PUT', s.chat], ['PATCH', s.chat], ['POST', `${s.own}/sse`], ['POST', `${s.own}/info`], ['GET', `${s.chat}/stop`], ['DELETE', `${s.own}/chunks`]]) {
      assertRefused(await call(url, { method }), undefined, `${method} ${url}`)
    }
    await nothingStored(s)
  })
})

test('probing a hundred unknown ids leaves nothing behind', async () => {
  const probed = Array.from({ length: 100 }, () => set.session())
  await Promise.all(
    probed.map(async (s, index) => {
      const routes = [`${s.own}/info`, `${s.own}/chunks`, `${s.own}/sse`, `${s.own}/snapshot`, s.chat, `${s.chat}/stream`, `${s.chat}/snapshot`]
      for (const url of routes) assert.ok((await call(url)).status < 500)
      if (index % 2) assert.ok((await s.stop()).status < 500)
      if (index % 5 === 0) assert.ok((await s.delete()).status < 500)
    }),
  )
  for (const s of probed) await nothingStored(s)
})

test('the model heard of none of it', () => {
  assert.deepEqual(set.model.unexpected.map((r) => r.body), [])
})

test('the twenty readers were not disturbed', async () => {
  held.open()
  const bodies = await Promise.all(readers.map((r) => r.collect()))
  const log = await followed.log()
  for (const got of bodies) {
    assert.equal(got.ended, 'clean', 'no reader was cut')
    if (got.text.includes('event: chunk')) assert.deepEqual(assertWireBody(got).chunks, log)
    else {
      await assertChatBody(got)
      assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, 'before after')
    }
  }
})
