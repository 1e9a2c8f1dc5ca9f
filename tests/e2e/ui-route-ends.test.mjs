// How a chat route's answer ends is how the run ends: stopped, failed with a type, complete; and the route is asked once.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, textOf, validateMessages } from './harness/clients.mjs'
import { step } from './harness/fake-model.mjs'
import { freePort, startRejoin } from './harness/server.mjs'
import { session, userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { chunkScript, reply, saying, startUiRoute } from './harness/ui-route.mjs'
import { gate, within } from './harness/wait.mjs'

const SECRET = 'words-of-the-route'
let route
let server
before(async () => {
  route = await startUiRoute()
  server = await startRejoin({
    vars: { LEASE_MS: 1500, HEARTBEAT_MS: 300 },
    agents: {
      default: { producer: 'ui', url: route.url, silenceMs: 1500 },
      closed: { producer: 'ui', url: route.url, forwardErrors: false },
      patient: { producer: 'ui', url: route.url, silenceMs: 60_000 },
      nowhere: { producer: 'ui', url: `http://127.0.0.1:${await freePort()}/api/chat` },
    },
  })
})
after(async () => {
  await server?.close()
  await route?.close()
})

const begun = saying('Hel', 'lo').slice(0, 5)
const events = (chunks) => chunks.map((chunk) => step.event(chunk))
const partial = (...rest) => [...events(begun), ...rest]
const whole = events(saying('Hel', 'lo'))
/** Written by the `ai` package: these chunks, then what `last` does. */
const written = (chunks, last = () => {}) => reply(async (writer) => {
  chunks.forEach((chunk) => writer.write(chunk))
  await last()
})
const failing = async () => {
  throw new Error(SECRET)
}

const ends = [
  { name: 'an abort part', answer: written([...begun, { type: 'abort', reason: SECRET }]), last: 'abort', status: 'ended' },
  { name: 'an abort part and an open body', answer: partial(step.event({ type: 'abort' }), step.silence()), last: 'abort', status: 'ended' },
  { name: 'an error part', answer: written(begun, failing), code: 'provider_error', told: SECRET },
  { name: 'an error part before anything else', answer: written([], failing), said: '', code: 'provider_error', told: SECRET },
  { name: 'a cut connection', answer: partial(step.destroy()), code: 'provider_stream_ended' },
  { name: 'a body that ends early', answer: partial(step.end()), code: 'provider_stream_ended' },
  { name: 'an empty body', answer: [step.end()], said: '', code: 'provider_stream_ended' },
  { name: 'nothing but [DONE]', answer: written([]), said: '', code: 'provider_stream_ended' },
  { name: 'invalid JSON', answer: partial(step.raw(`data: {"type":"${SECRET}\n\n`)), code: 'provider_stream_invalid' },
  { name: 'an event that is no chunk', answer: partial(step.event({ choices: [SECRET] })), code: 'provider_stream_invalid' },
  { name: 'bytes that are not UTF-8', answer: partial(step.raw(Buffer.from([...Buffer.from('data: "'), 0xff, 0x0a, 0x0a]))), code: 'provider_stream_invalid' },
  { name: 'HTML with 200', answer: [step.status(200, `<html>${SECRET}`, { 'content-type': 'text/html' })], said: '', code: 'provider_stream_invalid' },
  { name: 'JSON with 200', answer: [step.status(200, { hello: SECRET })], said: '', code: 'provider_stream_invalid' },
  { name: '500', answer: [step.status(500, SECRET, { 'content-type': 'text/plain' })], said: '', code: 'provider_unavailable' },
  { name: '401', answer: [step.status(401, { error: SECRET })], said: '', code: 'provider_auth', told: SECRET },
  { name: '429', answer: [step.status(429, { error: SECRET }, { 'retry-after': '3' })], said: '', code: 'provider_rate_limited', told: SECRET },
  { name: '404', answer: [step.status(404, SECRET, { 'content-type': 'text/plain' })], said: '', code: 'provider_bad_request', told: SECRET },
  { name: '204', answer: (res) => res.writeHead(204).end(), said: '', code: 'provider_stream_invalid' },
  { name: 'a redirect', answer: (res) => res.writeHead(307, { location: '/login' }).end(), said: '', code: 'provider_bad_request' },
  { name: 'silence longer than silenceMs', answer: partial(step.silence()), code: 'provider_timeout' },
  { name: 'no answer at all', answer: () => {}, said: '', code: 'provider_timeout' },
  { name: '[DONE] without a finish', answer: written(begun), last: 'finish', status: 'ended' },
  { name: 'a finish without [DONE]', answer: whole, last: 'finish', status: 'ended' },
  { name: 'a finish and a cut connection', answer: [...whole, step.destroy()], last: 'finish', status: 'ended' },
]

describe('an answer that ends with', () => {
  for (const { name, answer, said = 'Hello', code, last = 'error', status = 'failed', told } of ends) {
    test(`${name} is ${code ?? last}`, async () => {
      const s = session(server)
      const asked = route.requests.length
      route.script(name, answer)
      const sent = await s.send(name)
      const wire = await s.sse(0)
      const got = await sent.collect()
      assert.equal(got.ended, 'clean')
      await assertChatBody(got)
      assert.equal(chunksOf(got.frames).at(-1).type, last)
      for (const version of VERSIONS) {
        const folded = await foldAll(version, got.raw, [userMessage(name)])
        assert.deepEqual([folded.status, folded.text], [code ? 'error' : 'ready', said], `ai ${version}`)
        if (told) assert.equal(folded.error.message, told, `ai ${version}`)
      }
      const { terminal } = assertWireBody(await wire.collect())
      assert.equal(terminal.event, code ? 'fail' : 'end')

      const { body } = await s.snapshot()
      assert.deepEqual([body.status, body.errorDetail?.code], [status, code])
      assert.equal(textOf(body.messages[1]), said)
      for (const version of VERSIONS) await validateMessages(version, body.messages)
      if (told) assert.equal((typeof terminal.data === "string" ? JSON.parse(terminal.data) : terminal.data).error, told)
      else for (const text of [got.text, JSON.stringify(terminal)]) assert.ok(!text.includes(SECRET), text)
      assert.ok(!JSON.stringify(body).includes(SECRET), 'the snapshot has no free text')
      assert.equal(route.requests.length, asked + 1, 'asked once, and nowhere else')
    })
  }

  test('nothing, because nobody listens, is provider_unavailable', async () => {
    const s = session(server)
    const got = await s.ask('nobody', { agent: 'nowhere' })
    await assertChatBody(got)
    assert.equal((await s.snapshot()).body.errorDetail.code, 'provider_unavailable')
  })
})

test('after a failure the next send is answered', async () => {
  const s = session(server)
  route.script('fails', partial(step.end()))
  await s.ask('fails')
  route.script('works', chunkScript(saying('better'))).open()
  await assertChatBody(await s.ask('works'))
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'better')
  assert.deepEqual(route.to('works')[0].body.messages.map((m) => [m.role, textOf(m)]), [['user', 'fails'], ['assistant', 'Hello'], ['user', 'works']])
})

test('a route that keeps its connection alive with comments may be silent for longer than the lease', async () => {
  const s = session(server)
  const said = route.script('comments', chunkScript(saying('Hel', 'lo'), { keepAliveMs: 200 }))
  const sent = await s.send('comments')
  said.open(4)
  await sent.until((f) => f.data?.includes('"Hel"'))
  const began = Date.now()
  // Our own heartbeats, 300 ms apart: the time passes in events.
  while (Date.now() - began < 2_500) await sent.until((f) => f.comment !== undefined)
  assert.equal((await s.info()).status, 'active')
  said.open()
  await assertChatBody(await sent.collect())
  assert.equal(textOf((await s.snapshot()).body.messages[1]), 'Hello')
})

const quiet = {
  'after its first words': [chunkScript(saying('Hel', 'lo')), (script) => script.open(5), 'Hello'],
  'before its first word': [written([], () => gate()), () => {}, ''],
  'before its headers': [() => {}, () => {}, ''],
}
for (const [when, [answer, begin, said]] of Object.entries(quiet)) {
  test(`a stop ends the request to a route that is silent ${when}, within a second`, async () => {
    const s = session(server)
    const text = `stop ${when}`
    route.script(text, answer)
    begin(answer)
    const sent = await s.send(text)
    if (said) await sent.until((f) => f.data?.includes('"lo"'))
    const [request] = await asked(text)
    const began = Date.now()
    const stopped = await s.stop()
    assert.equal(stopped.body.stopped, true)
    await within(request.aborted, 1_000, 'the end of the request')
    assert.ok(Date.now() - began < 1_000)
    const got = await sent.collect()
    await assertChatBody(got)
    assert.equal(chunksOf(got.frames).at(-1).type, 'abort')
    assert.equal(textOf((await s.snapshot()).body.messages[1]), said)
  })
}

test('a route whose object died is not asked again', async () => {
  const s = session(server)
  const said = route.script('dies', chunkScript(saying('Hel', 'lo')), 5)
  const sent = await s.send('dies')
  said.open(5)
  await sent.until((f) => f.data?.includes('"lo"'))
  await server.kill()
  await server.start()
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.errorDetail.code, body.errorDetail.retryable], ['failed', 'producer_lost', true])
  assert.equal(textOf(body.messages[1]), 'Hello')
  assert.equal(route.to('dies').length, 1)
})

async function asked(text) {
  while (!route.to(text).length) await new Promise((r) => setTimeout(r, 5))
  return route.to(text)
}
