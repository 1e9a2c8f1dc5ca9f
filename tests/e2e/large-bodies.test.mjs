// A refusal arrives, however much the client still has to send: what nobody reads is taken while it comes, within bounds.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import http from 'node:http'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { assertRefused } from './harness/assertions.mjs'
import { rawCall } from './harness/raw.mjs'
import { call } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const LARGE = 100e6
const set = stage()
const run = promisify(execFile)
const bytes = Buffer.alloc(LARGE, 'x')
const json = { 'content-type': 'application/json' }
const hasCurl = await run('curl', ['--version']).then(() => true, () => false)

/** Sends it all, in the way of node:http; the answer's status, or the code of the error that cut it off. */
const send = (path, { method = 'POST', declared = true, headers = json, size = LARGE } = {}) =>
  new Promise((resolve) => {
    const request = http.request({ host: '127.0.0.1', port: set.server.port, path, method, agent: false, headers: { ...headers, ...(declared ? { 'content-length': size } : { 'transfer-encoding': 'chunked' }) } })
    request.on('response', (response) => response.resume().on('end', () => resolve(response.statusCode)).on('error', (error) => resolve(error.code)))
    request.on('error', (error) => resolve(error.code))
    let at = 0
    const more = () => {
      while (at < size) if (!request.write(bytes.subarray(at, Math.min(size, (at += 1 << 16))))) return void request.once('drain', more)
      request.end()
    }
    more()
  })

test('a POST of 100 MB gets its 413, from Node, declared or not', async () => {
  const statuses = []
  for (const path of ['/api/chat', `/api/chat/${set.session().id}`]) for (const declared of [true, false]) statuses.push(await send(path, { declared }))
  assert.deepEqual(statuses, Array(4).fill(413))
})

test('and from curl', { skip: !hasCurl && 'curl is not installed here' }, async () => {
  const file = join(set.server.state, 'large.json')
  writeFileSync(file, bytes)
  const statuses = []
  const ways = [[], ['-H', 'Expect:'], ['-H', 'transfer-encoding: chunked']]
  for (const way of ways) {
    const args = ['-sS', '-o', '/dev/null', '-w', '%{http_code}', ...way, '-H', 'content-type: application/json', '--data-binary', `@${file}`, `${set.server.origin}/api/chat/${set.session().id}`]
    statuses.push(await run('curl', args).then(({ stdout }) => stdout, (error) => error.stderr))
  }
  assert.deepEqual(statuses, ways.map(() => '413'))
})

test('every answer that does not read its body arrives as well', async () => {
  const s = set.session()
  const path = `/api/chat/${s.id}`
  const foreign = { ...json, origin: 'https://evil.example' }
  const cases = [
    [403, path, { headers: foreign }], [404, '/nope', {}], [405, path, { method: 'PUT' }], [405, `/sessions/${s.id}/sse`, {}], [400, '/api/chat/a%2Fb', {}],
    [404, path, { method: 'DELETE' }], [404, `/sessions/${s.id}/runs/r1/chunks`, {}], [404, `/sessions/${s.id}/runs/r1/end`, {}], [413, `${path}/stop`, {}], [413, `${path}/tool-result`, {}],
    [413, `${path}/retry`, {}], [413, `/sessions/${s.id}/runs`, {}],
  ]
  for (const [expected, at, options] of cases) {
    for (const declared of [true, false]) assert.equal(await send(at, { ...options, declared, size: 12e6 }), expected, `${options.method ?? 'POST'} ${at}, declared: ${declared}`)
  }
  const push = await call(`${s.own}/runs`, { json: { runId: 'r1', vocabulary: 'opaque' } })
  assert.equal(push.status, 201)
  assert.equal(await send(`/sessions/${s.id}/runs/r1/chunks`, { size: 9e6 }), 400, 'without an epoch')
  const lines = { 'content-type': 'application/x-ndjson', 'producer-epoch': '1', 'producer-seq': '0' }
  for (const declared of [true, false]) assert.equal(await send(`/sessions/${s.id}/runs/r1/chunks`, { headers: lines, declared, size: 12e6 }), 400, 'a line without an end')
})

test('a client that holds its body back is answered all the same', async () => {
  for (const path of ['/api/chat', `/api/chat/${set.session().id}`]) {
    assertRefused(await rawCall(set.server, path, { headers: { ...json, 'content-length': String(LARGE) }, body: 'x', hold: true }), 413, path)
  }
  assertRefused(await rawCall(set.server, '/nope', { headers: { ...json, 'content-length': String(LARGE) }, body: 'x', hold: true }), 404)
})
