// Several agents: a request chooses one, the session keeps it, and a configuration that cannot be used says which field.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { assertChatBody, assertRefused } from './harness/assertions.mjs'
import { startRejoin } from './harness/server.mjs'
import { call, session, userMessage } from './harness/session.mjs'
import { readSse } from './harness/sse.mjs'
import { chunkScript, saying, startUiRoute } from './harness/ui-route.mjs'
import { within } from './harness/wait.mjs'

let route
before(async () => (route = await startUiRoute()))
after(() => route?.close())

/** An agent whose requests say its name. */
const agent = (name) => ({ producer: 'ui', url: route.url, sendHeaders: { 'x-agent': name } })

describe('a deployment with several agents', () => {
  let server
  before(async () => (server = await startRejoin({ agents: { a: agent('a'), default: agent('default'), 'b c': agent('b c') } })))
  after(() => server?.close())

  /** Sends one message; answers the name of the agent that answered. */
  async function ask(s, { query = '', ...keys } = {}) {
    const text = `ask ${Math.random()}`
    route.script(text, chunkScript(saying('yes'))).open()
    await assertChatBody(await readSse(`${s.chat}${query}`, { json: { messages: [userMessage(text)], ...keys } }))
    return route.to(text)[0].headers['x-agent']
  }

  test('chooses by query, by body, and else the default', async () => {
    assert.equal(await ask(session(server)), 'default')
    assert.equal(await ask(session(server), { query: '?agent=a' }), 'a')
    assert.equal(await ask(session(server), { query: '?agent=b%20c' }), 'b c')
    assert.equal(await ask(session(server), { agent: 'a' }), 'a')
    assert.equal(await ask(session(server), { query: '?agent=a', agent: 'b c' }), 'a', 'the query wins')
    assert.equal(await ask(session(server), { query: '?agent=', agent: '' }), 'default', 'an empty name names none')
  })

  test('chooses on the route without an id as well', async () => {
    const text = 'by body id'
    route.script(text, chunkScript(saying('yes'))).open()
    await readSse(`${server.origin}/api/chat?agent=a`, { json: { id: `s-${Math.random()}`, messages: [userMessage(text)] } })
    assert.equal(route.to(text)[0].headers['x-agent'], 'a')
  })

  test('a session keeps the last one that it used', async () => {
    const s = session(server)
    const answered = []
    for (const how of [{ query: '?agent=a' }, {}, { agent: 'b c' }, {}, {}]) answered.push(await ask(s, how))
    assert.deepEqual(answered, ['a', 'a', 'b c', 'b c', 'b c'])
    assert.equal(await ask(session(server)), 'default', 'another session does not')
  })

  test('refuses a name that nobody has, stores nothing, and does not repeat it', async () => {
    for (const name of ['nobody', '__proto__', 'sk-do-not-tell', 'A']) {
      const s = session(server)
      for (const [query, more] of [[`?agent=${name}`, {}], ['', { agent: name }]]) {
        const refused = await call(`${s.chat}${query}`, { json: { messages: [userMessage('x')], ...more } })
        assertRefused(refused, 400)
        assert.match(refused.body.error, /agent is unknown/)
        assert.ok(name === 'A' || !refused.text.includes(name), refused.text)
      }
      assert.deepEqual(await s.info(), { exists: false })
    }
  })

  test('a refused name leaves the session its agent', async () => {
    const s = session(server)
    await ask(s, { agent: 'a' })
    assertRefused(await call(`${s.chat}?agent=nobody`, { json: { messages: [userMessage('x')] } }), 400)
    assert.equal(await ask(s), 'a')
  })

  test('reading needs no agent', async () => {
    const s = session(server)
    await ask(s, { agent: 'a' })
    for (const path of ['', '/snapshot', '/stream']) assert.ok((await call(`${s.chat}${path}?agent=nobody`)).status < 300, path)
  })

  test('survives a restart; an agent that is gone gives way to the default', async () => {
    const [kept, lost] = [session(server), session(server)]
    await ask(kept, { agent: 'a' })
    await ask(lost, { agent: 'b c' })
    await server.restart({ AGENTS: { default: agent('default'), a: agent('a') } })
    assert.equal(await ask(kept), 'a')
    assert.equal(await ask(lost), 'default')
    await server.restart({ AGENTS: { a: agent('a'), d: agent('d') } })
    const s = session(server)
    const unnamed = await call(s.chat, { json: { messages: [userMessage('x')] } })
    assertRefused(unnamed, 400)
    assert.match(unnamed.body.error, /names no agent/)
    assert.equal(await ask(kept), 'a')
    assert.equal(await ask(s, { agent: 'd' }), 'd')
  })
})

const faults = {
  'no JSON': ['{', /AGENTS is not JSON/],
  'a misspelt field': [{ x: { producer: 'ui', url: 'https://example.org', header: ['cookie'] } }, /agent "x": header is not known/],
  'a secret that is not set': [{ default: { producer: 'openai', model: 'm', apiKey: 'NOT_SET' } }, /agent "default": apiKey names a secret that is not set/],
  'a binding that does not exist': [{ default: { producer: 'ui', binding: 'NO_SUCH' } }, /agent "default": binding names a service binding/],
  'a binding that is no service': [{ default: { producer: 'ui', binding: 'LEASE_MS' } }, /agent "default": binding names a service binding/],
}
describe('a configuration with', () => {
  for (const [name, [agents, words]] of Object.entries(faults)) {
    test(`${name} is one clear error at the first request and in the log`, async () => {
      let log = ''
      const logged = Promise.withResolvers()
      const onOutput = (text) => {
        log += text
        if (words.test(log)) logged.resolve()
      }
      const server = await startRejoin({ agents, logLevel: 'log', onOutput })
      try {
        const s = session(server)
        const answer = await call(s.chat, { json: { messages: [userMessage('x')] } })
        assert.deepEqual([answer.status, answer.body?.code], [500, 'configuration_invalid'], answer.text)
        assert.match(answer.body.error, words)
        await within(logged.promise, 5_000, 'the line in the log')
        assert.equal((await call(`${server.origin}/health`)).status, 200)
      } finally {
        await server.close()
      }
    })
  }
})
