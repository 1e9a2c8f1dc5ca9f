// A page of another origin reaches the service with its visitor's cookies: what acts is refused before anything happens.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { assertRefused } from './harness/assertions.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { rawCall } from './harness/raw.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { upstream } from './harness/upstream.mjs'

const EVIL = 'https://evil.example'
const APP = 'https://app.example'
const json = { 'content-type': 'application/json' }
const body = (id) => JSON.stringify({ id, messages: [userMessage('hi', 'u1')] })
const RUN = JSON.stringify({ runId: 'r1', vocabulary: 'ui' })
const push = { ...json, 'producer-epoch': '1', 'producer-seq': '0' }

/** Every acting route: `[name, method, path, headers, body]`. */
const acting = (id) => [
  ['send', 'POST', `/api/chat/${id}`, json, body(id)],
  ['send by the body', 'POST', '/api/chat', json, body(id)],
  ['send as text', 'POST', `/api/chat/${id}`, { 'content-type': 'text/plain' }, body(id)],
  ['send as a form', 'POST', `/api/chat/${id}`, { 'content-type': 'application/x-www-form-urlencoded' }, body(id)],
  ['send without a type', 'POST', `/api/chat/${id}`, {}, body(id)],
  ['stop', 'POST', `/api/chat/${id}/stop`, {}, ''],
  ['tool result', 'POST', `/api/chat/${id}/tool-result`, json, '{"toolCallId":"c","output":1}'],
  ['retry', 'POST', `/api/chat/${id}/retry`, json, '{}'],
  ['delete', 'DELETE', `/api/chat/${id}`, {}, undefined],
  ['an upgrade', 'GET', `/api/chat/${id}`, { connection: 'upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==' }, undefined],
  ['open a run', 'POST', `/sessions/${id}/runs`, json, RUN],
  ...['chunks', 'commit', 'renew', 'end', 'fail', 'pause'].map((deed) => [deed, 'POST', `/sessions/${id}/runs/r1/${deed}`, push, deed === 'chunks' ? '[]' : '{}']),
  ['an unknown route', 'POST', '/nope', json, '{}'],
]
const JSON_ROUTES = ['send', 'send by the body', 'tool result', 'retry', 'open a run', 'chunks', 'commit', 'renew', 'end', 'fail', 'pause']
const reading = (id) => [`/api/chat/${id}`, `/api/chat/${id}/stream`, `/api/chat/${id}/snapshot`, `/sessions/${id}/info`, `/sessions/${id}/chunks`, `/health`, '/']

describe('with no origin named', () => {
  const set = stage()
  const ask = ([, method, path, headers, payload], more) => rawCall(set.server, path, { method, headers: { ...headers, ...more }, body: payload })

  test('a foreign page is refused on every acting route, and nothing has happened', async () => {
    const s = set.session()
    const held = gate()
    set.model.script('live', textScript(['a', held]))
    const live = set.session()
    const sent = await live.send('live')
    await sent.until((frame) => frame.data?.includes('"a"'))
    for (const [origin, site] of [[EVIL, 'cross-site'], [EVIL, undefined], ['null', 'cross-site'], ['http://127.0.0.1:1', 'same-site']]) {
      for (const route of [...acting(s.id), ...acting(live.id)]) {
        const answer = await ask(route, { origin, ...(site ? { 'sec-fetch-site': site } : {}), cookie: 'session=visitor' })
        assertRefused(answer, 403, `${route[0]} of ${origin}`)
        assert.equal(answer.body.code, 'validation_origin_not_allowed')
        assert.ok(answer.body.error.includes(origin) && answer.body.error.includes('ALLOWED_ORIGINS'), answer.body.error)
        assert.equal(answer.headers['access-control-allow-origin'], undefined)
      }
      for (const path of reading(live.id).filter((path) => !path.endsWith('/stream') && path !== `/api/chat/${live.id}`)) {
        assert.notEqual((await rawCall(set.server, path, { headers: { origin } })).status, 403, path)
      }
    }
    assert.deepEqual(await s.info(), { exists: false })
    assert.equal((await live.info()).status, 'active')
    assert.equal(set.model.requests.length, 1)
    held.open()
    await sent.collect()
    assert.equal((await live.snapshot()).body.messages.length, 2)
  })

  test('the service’s own pages and programs that are no pages may act', async () => {
    const own = { origin: `http://127.0.0.1:${set.server.port}` }
    for (const more of [{}, own, { origin: 'https://front.example', 'sec-fetch-site': 'same-origin' }, { 'sec-fetch-site': 'cross-site' }]) {
      const s = set.session()
      set.model.script('hi', textScript(['a']))
      for (const route of acting(s.id)) assert.notEqual((await ask(route, more)).status, 403, `${route[0]} with ${JSON.stringify(more)}`)
    }
  })

  test('a host that is not the request’s own is foreign, whatever it looks like', async () => {
    const { port } = set.server
    for (const origin of [`http://127.0.0.1`, `http://127.0.0.1:${port}.evil.example`, `http://localhost:${port}`]) {
      assertRefused(await ask(acting(set.session().id)[0], { origin }), 403, origin)
    }
  })
})

describe('with origins named', () => {
  const set = stage({ vars: { ALLOWED_ORIGINS: `${APP}/, capacitor://localhost, null`, PUBLIC_URL: 'https://chat.example/base' } })

  test('those may act, and can read what is answered', async () => {
    for (const origin of [APP, 'capacitor://localhost', 'null']) {
      const s = set.session()
      set.model.script('hi', textScript(['a']))
      const answer = await rawCall(set.server, `/api/chat/${s.id}`, { headers: { ...json, origin }, body: body(s.id) })
      assert.deepEqual([answer.status, answer.headers['access-control-allow-origin']], [200, origin])
    }
    const own = await rawCall(set.server, '/api/chat/x/stop', { headers: { ...json, origin: 'https://chat.example' }, body: '' })
    assert.equal(own.status, 404, 'a page at PUBLIC_URL is the service’s own')
    for (const origin of [EVIL, `${APP}.evil.example`, 'ionic://localhost']) {
      assertRefused(await rawCall(set.server, '/api/chat/x', { headers: { ...json, origin }, body: body('x') }), 403, origin)
    }
  })
})

describe('a chat route of the app’s own', () => {
  const seen = []
  const route = upstream((request, response) => {
    seen.push(request.headers)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end('data: {"type":"start"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n')
  })
  before(async () => {
    route.listen(0, '127.0.0.1')
    await once(route, 'listening')
  })
  after(() => route.close())

  test('is not sent the visitor’s cookie by a foreign page', async () => {
    const { startRejoin } = await import('./harness/server.mjs')
    const agents = { default: { producer: 'ui', url: `http://127.0.0.1:${route.address().port}/`, headers: ['cookie'] } }
    const server = await startRejoin({ agents })
    try {
      const send = (more) => rawCall(server, '/api/chat/c', { headers: { 'content-type': 'text/plain', cookie: 'session=visitor', ...more }, body: body('c') })
      assertRefused(await send({ origin: EVIL, 'sec-fetch-site': 'cross-site' }), 403)
      assert.equal(seen.length, 0)
      assert.equal((await send({ 'content-type': 'application/json', 'sec-fetch-site': 'same-origin', origin: 'https://front.example' })).status, 200)
      assert.equal(seen[0].cookie, 'session=visitor')
    } finally {
      await server.close()
    }
  })
})

describe('a body that is read as JSON', () => {
  const set = stage()
  const TYPES = ['text/plain', 'text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'Text/Plain ; a=b', 'text/plain;x=ndjson']

  test('is 415 as plain text or a form on every route, when there is one', async () => {
    const s = set.session()
    const opened = await rawCall(set.server, `/sessions/${s.id}/runs`, { headers: json, body: RUN })
    assert.equal(opened.status, 201, opened.text)
    const fresh = set.session()
    for (const type of TYPES) {
      for (const [name, method, path, headers, payload] of [...acting(s.id).filter(([name]) => JSON_ROUTES.includes(name)), ...acting(fresh.id).slice(0, 2), ['stop', 'POST', `/api/chat/${s.id}/stop`, {}, '{"runId":"r1"}']]) {
        for (const form of [payload, [payload]]) {
          const answer = await rawCall(set.server, path, { method, headers: { ...headers, 'content-type': type }, body: form })
          assertRefused(answer, 415, `${name} as ${type}`)
          assert.deepEqual([answer.body.code, answer.body.error], ['validation_media_type', 'Send the body as application/json'])
        }
      }
    }
    assert.deepEqual(await fresh.info(), { exists: false })
    assert.equal((await s.info()).status, 'active')
  })

  test('passes as JSON, as anything that no page sends unasked, and without a type; an empty one passes as anything', async () => {
    for (const type of [undefined, 'application/json', 'application/json; charset=utf-8', 'text/json', 'application/octet-stream', '']) {
      const s = set.session()
      set.model.script('hi', textScript(['a']))
      const answer = await rawCall(set.server, `/api/chat/${s.id}`, { headers: type === undefined ? {} : { 'content-type': type }, body: body(s.id) })
      assert.equal(answer.status, 200, `${type}: ${answer.text}`)
      for (const empty of TYPES) assert.equal((await rawCall(set.server, `/api/chat/${s.id}/stop`, { headers: { 'content-type': empty }, body: '' })).status, 200, empty)
    }
  })
})
