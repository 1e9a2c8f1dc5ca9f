// A chat route's failures in its own words, its silence, and what it is told of the reply: what a stock client sees behind the product is
// what it would have seen from the route itself. And what the operator reads of it holds no secret.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { VERSIONS, foldAll, load, textOf } from './harness/clients.mjs'
import { startFakeModel, step } from './harness/fake-model.mjs'
import { startRejoin } from './harness/server.mjs'
import { call, session, userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { chunkScript, reply, saying, startUiRoute } from './harness/ui-route.mjs'
import { LONG, within } from './harness/wait.mjs'

const LEASE = 1000
const KEY = 'correct-horse-battery-staple'
let route
let model
let server
let output = ''
let spoke = Promise.withResolvers()
/** Resolves once the operator's log has a line with all of these texts. */
async function logged(...texts) {
  const has = () => output.split('\n').some((line) => texts.every((text) => line.includes(text)))
  while (!has()) await within(spoke.promise, LONG, `a log line with ${texts.join(' and ')}`)
}
before(async () => {
  route = await startUiRoute()
  model = await startFakeModel()
  server = await startRejoin({
    vars: { LEASE_MS: LEASE, HEARTBEAT_MS: 300, MODEL_KEY: KEY },
    logLevel: 'log',
    onOutput(text) {
      output += text
      spoke.resolve()
      spoke = Promise.withResolvers()
    },
    agents: {
      default: { producer: 'ui', url: route.url, headers: ['authorization'], silenceMs: 60_000 },
      closed: { producer: 'ui', url: route.url, forwardErrors: false },
      model: { producer: 'openai', baseUrl: model.baseUrl, model: 'm', apiKey: 'MODEL_KEY' },
    },
  })
})
after(async () => {
  await server?.close()
  await route?.close()
  await model?.close()
})

const errorOf = (got) => chunksOf(got.frames).find((chunk) => chunk.type === 'error')?.errorText
const failOf = (got) => {
  const { event, data } = got.frames.findLast((frame) => frame.event === 'fail')
  return { event, ...JSON.parse(data) }
}
const failing = (words) => reply(() => {
  throw new Error(words)
})

describe('the words of a refusal', () => {
  const json = (status, body) => step.status(status, body)
  const plain = (status, body, type = 'text/plain') => step.status(status, body, { 'content-type': type })
  for (const [name, answer, words] of [
    ['error', json(403, { error: 'This chat is not yours' }), 'This chat is not yours'],
    ['message', json(400, { message: 'Pick a model first' }), 'Pick a model first'],
    ['detail', json(422, { detail: 'Too many files' }), 'Too many files'],
    ['error.message', json(429, { error: { message: 'Daily limit reached', code: 'limit' } }), 'Daily limit reached'],
    ['a list of details', json(422, { detail: [{ loc: ['body'], msg: 'Field required' }] }), 'Field required'],
    ['plain text', plain(401, 'Unauthorized'), 'Unauthorized'],
    ['a page', plain(404, '<!doctype html><p>Not found', 'text/html'), 'The model did not accept the request'],
    ['a fault', json(500, { error: 'at handler (route.ts:3)' }), 'The model could not be reached; try again'],
    ['far too much', plain(400, 'no '.repeat(10_000)), null],
  ]) {
    test(name, async () => {
      const s = session(server)
      route.script(name, [answer])
      const got = await s.ask(name)
      const told = errorOf(got)
      if (words) assert.equal(told, words)
      else assert.ok(told.length > 1000 && Buffer.byteLength(told) <= 8192 && told.startsWith('no no'))
      for (const version of VERSIONS) {
        const { status, error } = await foldAll(version, got.raw, [userMessage(name)])
        assert.deepEqual([status, error.message], ['error', told], `ai ${version}`)
      }
      assert.equal(failOf(await (await s.sse(0)).collect()).error, told)
      const again = await call(s.chat, { headers: { 'x-resume-from-sequence': '0' } })
      assert.deepEqual([again.status, again.body.message], [409, told])
    })
  }

  test('stay in the log with forwardErrors: false, as do those of an error part', async () => {
    for (const [text, answer, words] of [
      ['closed refusal', [json(403, { error: 'inner words' })], "The model refused the service's credentials"],
      ['closed part', failing('inner words'), 'The model reported an error; try again'],
    ]) {
      route.script(text, answer)
      const got = await session(server).ask(text, { agent: 'closed' })
      assert.deepEqual([errorOf(got), got.text.includes('inner words')], [words, false])
    }
    await logged('provider_auth: the route answered 403: ', 'inner words')
    await logged('provider_error: the route reported in its stream: inner words')
  })
})

test('a wait that is asked for stands in the live fail frame as in the snapshot', async () => {
  const s = session(server)
  route.script('slow down', [step.status(429, { error: 'Slow down' }, { 'retry-after': '7' })])
  const sent = await s.send('slow down')
  const [wire] = await Promise.all([s.sse(0).then((open) => open.collect()), sent.collect()])
  const { errorDetail } = (await s.snapshot()).body
  assert.equal(errorDetail.retryAfterMs, 7000)
  assert.deepEqual(failOf(wire).errorDetail, errorDetail)
})

test('a route that says nothing for longer than the lease is not dead while its connection stands', async () => {
  for (const text of ['silent before its headers', 'silent behind its first words']) {
    const s = session(server)
    const said = chunkScript(saying('Hel', 'lo'))
    const gone = Promise.withResolvers()
    const late = async (res, request) => {
      if (text.includes('headers')) await gone.promise
      await said.answer(res, request)
    }
    route.script(text, late)
    const sent = await s.send(text)
    said.open(4)
    const began = Date.now()
    // Our own heartbeats, 300 ms apart: the time passes in events.
    while (Date.now() - began < 3 * LEASE) await sent.until((frame) => frame.comment !== undefined)
    assert.equal((await s.info()).status, 'active', text)
    gone.resolve()
    said.open()
    await sent.collect()
    assert.deepEqual([(await s.snapshot()).body.status, textOf((await s.snapshot()).body.messages[1])], ['ended', 'Hello'], text)
  }
})

test('the route is told the id under which clients see its reply', async () => {
  const s = session(server)
  route.script('name it', chunkScript(saying('named'))).open()
  const got = await s.ask('name it')
  const named = route.to('name it')[0].headers['x-response-message-id']
  assert.equal(chunksOf(got.frames).find((chunk) => chunk.type === 'start').messageId, named)
  assert.equal((await s.snapshot()).body.messages[1].id, named)
})

test('a body without id and trigger is completed', async () => {
  const s = session(server)
  route.script('bare', chunkScript(saying('fine'))).open()
  const response = await fetch(s.chat, { method: 'POST', body: JSON.stringify({ messages: [userMessage('bare')] }), headers: { 'content-type': 'application/json' } })
  await response.text()
  const { id, trigger } = route.to('bare')[0].body
  assert.deepEqual([id, trigger], [s.id, 'submit-message'])
})

test('after a stop inside a tool input a strict route answers the next turn', async () => {
  for (const version of VERSIONS) {
    const s = session(server)
    const first = `input ${version}`
    const said = chunkScript([
      { type: 'start' },
      { type: 'start-step' },
      { type: 'tool-input-start', toolCallId: 'c', toolName: 'pay' },
      { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: '{"amount": 5, "to": "B' },
    ])
    route.script(first, said)
    const sent = await s.send(first)
    said.open(4)
    await sent.until((frame) => frame.data?.includes('inputTextDelta'))
    await s.stop()
    await sent.collect()
    assert.equal((await s.snapshot()).body.messages[1].parts.at(-1).state, 'input-streaming', 'clients keep what they saw')

    const { convertToModelMessages, validateUIMessages } = await load(version)
    let converted
    const strict = async (res, request) => {
      try {
        const { messages } = request.body
        const unknown = messages.flatMap(({ parts }) => parts).flatMap(Object.keys).filter((key) => key === 'rawInput')
        if (unknown.length) throw new Error('an unknown key')
        converted = await convertToModelMessages(await validateUIMessages({ messages }))
        const accepted = chunkScript(saying('accepted'))
        accepted.open()
        await accepted.answer(res, request)
      } catch (error) {
        if (!res.headersSent) res.writeHead(422, { 'content-type': 'application/json' }).end(JSON.stringify({ detail: String(error) }))
      }
    }
    const next = `next ${version}`
    route.script(next, { answer: strict })
    const got = await s.ask(next)
    assert.equal(errorOf(got), undefined, `ai ${version}`)
    const results = converted.flatMap(({ content }) => content).filter(({ type }) => type === 'tool-result')
    assert.deepEqual(results.map(({ toolCallId }) => toolCallId), ['c'], 'the model knows that it was not executed')
  }
})

test('the log shows the code and the cause, and no secret that the other side quotes', async () => {
  const token = 'tok-from-the-page-77'
  const echo = (secret) => ({ error: { message: `no: Authorization: Bearer ${secret} and plainly ${secret}; url https://u:${secret}@a.test/x?key=${secret}` } })
  const s = session(server)
  route.script('echo', (res, request) => res.writeHead(400, { 'content-type': 'application/json' }).end(JSON.stringify(echo(request.headers.authorization.split(' ')[1]))))
  await s.ask('echo', { headers: { authorization: `Bearer ${token}` } })
  model.script('echo', [step.status(401, echo(KEY))])
  await session(server).ask('echo', { agent: 'model' })
  for (const [code, secret] of [['provider_bad_request', token], ['provider_auth', KEY]]) {
    await logged(code, '[removed]')
    assert.ok(!output.includes(secret), `${secret} is in the log`)
  }
})
