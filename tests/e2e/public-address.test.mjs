// Where a producer outside is told to write: at the service's own address, whatever host a client names.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import { after, before, test } from 'node:test'
import { startRejoin } from './harness/server.mjs'
import { call, userMessage } from './harness/session.mjs'
import { upstream } from './harness/upstream.mjs'

const told = []
let agent
let server
before(async () => {
  agent = upstream(async (req, res) => {
    let text = ''
    for await (const part of req.setEncoding('utf8')) text += part
    told.push(JSON.parse(text))
    res.writeHead(503, { 'retry-after': '4' }).end('not today')
  })
  agent.listen(0, '127.0.0.1')
  await once(agent, 'listening')
  server = await startRejoin({ agents: { default: { producer: 'push', url: `http://127.0.0.1:${agent.address().port}/runs` } } })
})
after(async () => {
  await server?.close()
  agent?.close()
})

/** A send that names this host; `fetch` would not let it. */
async function send(id, host) {
  const body = JSON.stringify({ id, messages: [userMessage('hello')], trigger: 'submit-message' })
  const headers = { host, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
  const request = http.request(`${server.origin}/api/chat/${id}`, { method: 'POST', headers })
  request.end(body)
  const [response] = await once(request, 'response')
  let text = ''
  for await (const part of response.setEncoding('utf8')) text += part
  return { status: response.statusCode, text }
}
const hosts = ['evil.example', 'evil.example:443', '127.0.0.1.evil.example', '10.1.2.3']
const appendUrl = async (host) => {
  const id = `s-${randomUUID()}`
  const answer = await send(id, host)
  assert.equal(answer.status, 200, answer.text)
  const { appendUrl, sessionId, runId } = told.at(-1)
  assert.equal(sessionId, id)
  return appendUrl.replace(`/sessions/${id}/runs/${runId}/chunks`, '')
}

test('a server that was started here tells its own address', async () => {
  for (const host of [...hosts, new URL(server.origin).host]) assert.equal(await appendUrl(host), server.origin, host)
})

test('the configured address is told', async () => {
  await server.restart({ PUBLIC_URL: 'https://chat.example.com/base/' })
  for (const host of [...hosts, new URL(server.origin).host]) assert.equal(await appendUrl(host), 'https://chat.example.com/base', host)
})

test('without one, a host that anybody may have named starts nothing', async () => {
  await server.restart({ PUBLIC_URL: '' })
  assert.equal(await appendUrl(new URL(server.origin).host), server.origin)
  const before = told.length
  for (const host of hosts) {
    const id = `s-${randomUUID()}`
    const answer = await send(id, host)
    assert.deepEqual([answer.status, JSON.parse(answer.text).code], [500, 'configuration_invalid'], host)
    assert.match(JSON.parse(answer.text).error, /PUBLIC_URL/)
    assert.deepEqual((await call(`${server.origin}/sessions/${id}/info`)).body, { exists: false })
  }
  assert.equal(told.length, before)
})

test('one that is no address is refused before anything is served', async () => {
  await server.stop()
  await assert.rejects(server.start({ PUBLIC_URL: 'chat.example.com' }), /PUBLIC_URL must be an address/)
  await server.start({ PUBLIC_URL: '' })
})

test('the wait that a refusal asks for is told', async () => {
  const id = `s-${randomUUID()}`
  await send(id, new URL(server.origin).host)
  const { body } = await call(`${server.origin}/api/chat/${id}/snapshot`)
  assert.deepEqual([body.errorDetail.code, body.errorDetail.retryAfterMs], ['producer_unreachable', 4000])
})
