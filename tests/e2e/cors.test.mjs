// Which pages may call: none by default, then the named ones, on every answer that a page may meet.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { gate, textScript } from './harness/fake-model.mjs'
import { rawCall } from './harness/raw.mjs'
import { stage } from './harness/stage.mjs'

const APP = 'https://app.example'
const OTHER = 'http://localhost:3000'
const EVIL = 'https://app.example.evil.example'
const ASKED = 'content-type,last-event-id,user-agent,x-existing-message-id,x-resume-from-sequence'
const set = stage()

const corsOf = (headers) => Object.keys(headers).filter((name) => name.startsWith('access-control-'))
const preflight = (path, origin, method = 'POST', asked = ASKED) =>
  rawCall(set.server, path, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': method, 'access-control-request-headers': asked } })

/** One answer of every kind: JSON, streams, nothing, errors; each read to its end or left. `acts`: also of what acts. */
async function answers(origin, { acts = true } = {}) {
  const headers = { origin }
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['a', held]))
  const sent = await s.send(s.id, acts ? { headers } : {})
  const streams = { send: sent, reconnect: await s.reconnect({ headers }), resume: await s.resume(0, { headers }), sse: await s.sse(0, { headers }) }
  held.open()
  for (const [name, stream] of Object.entries(streams)) {
    const got = await stream.collect()
    assert.deepEqual([stream.status, got.ended], [200, 'clean'], `${name} for ${origin}: ${got.text.slice(0, 200)}`)
  }
  const path = `/api/chat/${s.id}`
  const unknown = set.session().id
  const paths = {
    info: `/sessions/${s.id}/info`, chunks: `/sessions/${s.id}/chunks`, snapshot: `${path}/snapshot`, 'nothing (204)': `${path}/stream`, health: '/health',
    'an unknown session (404)': `/api/chat/${unknown}/snapshot`, 'an unknown route (404)': '/nope', 'a bad id (400)': '/api/chat/a%2Fb', 'a bad cursor (400)': `/sessions/${s.id}/sse?fromSequence=x`,
    'beyond the head': `/sessions/${s.id}/sse?fromSequence=99999`,
  }
  const plain = {}
  for (const [name, at] of Object.entries(paths)) plain[name] = await rawCall(set.server, at, { headers })
  if (!acts) {
    await s.delete()
    return Object.entries({ ...streams, ...plain })
  }
  plain['a bad body (400)'] = await rawCall(set.server, path, { headers: { ...headers, 'content-type': 'application/json' }, body: 'x' })
  plain['a wrong method (405)'] = await rawCall(set.server, path, { method: 'PUT', headers })
  plain.delete = await rawCall(set.server, path, { method: 'DELETE', headers })
  return Object.entries({ ...streams, ...plain })
}

describe('by default', () => {
  test('it is closed to every origin, and still answers what only reads', async () => {
    for (const [name, answer] of await answers(APP, { acts: false })) assert.deepEqual(corsOf(answer.headers), [], name)
    assert.deepEqual(corsOf((await preflight('/api/chat', APP)).headers), [])
    assert.deepEqual(corsOf((await preflight('/api/chat', 'null')).headers), [])
  })
})

describe('with origins named', () => {
  before(() => set.server.restart({ ALLOWED_ORIGINS: `${APP}, ${OTHER}` }))

  test('every answer is open to them, streams and errors too', async () => {
    for (const origin of [APP, OTHER]) {
      for (const [name, answer] of await answers(origin)) {
        assert.equal(answer.headers['access-control-allow-origin'], origin, name)
        assert.match(answer.headers.vary ?? '', /\borigin\b/i, `${name}: what is cached is cached per origin`)
      }
    }
  })

  test('a page of theirs can read what it needs of a stream’s headers', async () => {
    const answer = await rawCall(set.server, '/health', { headers: { origin: APP } })
    for (const name of ['x-vercel-ai-ui-message-stream', 'x-resumable-stream-id']) assert.match(answer.headers['access-control-expose-headers'], new RegExp(name, 'i'))
  })

  test('others are refused, also those that look alike', async () => {
    for (const origin of [EVIL, 'http://app.example', 'https://app.example:8443', 'https://APP.example.org', 'null']) {
      assert.deepEqual(corsOf((await rawCall(set.server, '/health', { headers: { origin } })).headers), [], origin)
      assert.deepEqual(corsOf((await preflight('/api/chat', origin)).headers), [], origin)
    }
  })

  test('a preflight reflects the headers that are asked for, and allows the methods', async () => {
    for (const path of ['/api/chat', '/api/chat/x', '/api/chat/x/stream', '/api/chat/x/x/stream', '/api/chat/x/stop', '/sessions/x/sse']) {
      const answer = await preflight(path, APP, 'DELETE')
      assert.equal(answer.status, 204, path)
      assert.equal(answer.headers['access-control-allow-origin'], APP)
      const allowed = answer.headers['access-control-allow-headers'].toLowerCase().split(/\s*,\s*/)
      for (const header of ASKED.split(',')) assert.ok(allowed.includes(header), `${path}: ${header}`)
      const methods = answer.headers['access-control-allow-methods'].split(/\s*,\s*/)
      for (const method of ['GET', 'POST', 'DELETE']) assert.ok(methods.includes(method), method)
    }
  })

  test('a preflight that names no headers gets those that clients are known to send', async () => {
    const answer = await rawCall(set.server, '/api/chat', { method: 'OPTIONS', headers: { origin: APP, 'access-control-request-method': 'POST' } })
    for (const header of ['content-type', 'user-agent', 'last-event-id', 'x-resume-from-sequence']) assert.match(answer.headers['access-control-allow-headers'], new RegExp(header))
  })

  test('a preflight creates no session', async () => {
    const s = set.session()
    await preflight(`/api/chat/${s.id}`, APP)
    assert.deepEqual(await s.info(), { exists: false })
  })
})
