// The product and an app as two Workers in one local runtime, joined by service bindings in both directions, as `wrangler dev -c … -c …`
// runs them: the app's chat route behind a `ui` agent, and the app as a producer that is told of its runs and writes them.
import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { after, before, describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { makeChat, textOf } from './harness/clients.mjs'
import { startRejoin } from './harness/server.mjs'
import { call, session } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'

let server
before(async () => {
  server = await startRejoin({
    config: '[[services]]\nbinding = "APP"\nservice = "chat-app"\n',
    beside: [fileURLToPath(new URL('workers/chat-app/wrangler.toml', import.meta.url))],
    agents: {
      route: { producer: 'ui', binding: 'APP', path: '/v2/chat?x=1', headers: ['cookie'], sendHeaders: { 'x-app': 'ours' } },
      lost: { producer: 'ui', binding: 'APP', path: '/nowhere' },
      absent: { producer: 'ui', binding: 'NOBODY' },
      push: { producer: 'push', binding: 'APP', path: '/agent/runs' },
      network: { producer: 'push', binding: 'APP', path: '/agent/runs?via=network' },
      full: { producer: 'push', binding: 'APP', path: '/agent/runs?refuses' },
      nowhere: { producer: 'push', binding: 'APP', path: '/nowhere' },
    },
  })
})
after(() => server?.close())

const errorOf = (got) => chunksOf(got.frames).find((chunk) => chunk.type === 'error')?.errorText
const parts = async (s, at) => (await s.snapshot()).body.messages[at]
/** What the app has seen, told by the app. */
const seen = async () => {
  const s = session(server)
  await s.ask('what was seen', { agent: 'route' })
  return JSON.parse(textOf(await parts(s, 1)))
}

describe('a chat route behind a binding', () => {
  test('is asked at its path with the stored conversation, and its answer is the reply', async () => {
    const s = session(server)
    for (const [turn, text] of ['one', 'two'].entries()) {
      const got = await s.ask(text, { agent: 'route', headers: { cookie: 'sid=1', 'x-other': 'o' }, own: turn })
      await assertChatBody(got)
      assert.equal(textOf(await parts(s, turn * 2 + 1)), `You said ${text}, message ${turn * 2 + 1}`)
    }
    const asked = (await seen()).requests.filter(({ id }) => id === s.id)
    assert.equal(asked.length, 2)
    const [, { headers, search, trigger, own, messages }] = asked
    assert.deepEqual([headers.cookie, headers['x-app'], headers['x-other'], search, trigger, own], ['sid=1', 'ours', undefined, 'x=1', 'submit-message', 1])
    assert.equal(headers['x-response-message-id'], (await parts(s, 3)).id)
    assert.deepEqual(messages, (await s.snapshot()).body.messages.slice(0, 3))
  })

  test('fails in its own words', async () => {
    for (const [text, words] of [['refuse', 'Not in this app'], ['fail', 'The app failed']]) {
      const s = session(server)
      const got = await s.ask(text, { agent: 'route' })
      await assertChatBody(got)
      assert.equal(errorOf(got), words)
      const wire = assertWireBody(await (await s.sse(0)).collect())
      assert.equal(wire.terminal.data.error, words)
    }
    assert.equal(errorOf(await session(server).ask('x', { agent: 'lost' })), 'no such path')
  })

  test('hears of a stop', async () => {
    const s = session(server)
    const before = (await seen()).aborted
    const sent = await s.send('wait for ever', { agent: 'route' })
    await sent.until((frame) => frame.data?.includes('I think'))
    assert.equal((await s.stop()).body.stopped, true)
    assert.equal(chunksOf((await sent.collect()).frames).at(-1).type, 'abort')
    for (let left = 100; (await seen()).aborted === before; left -= 1) assert.ok(left > 0, 'the app never heard of it')
  })

  test('that the deployment does not have is refused before anything is stored', async () => {
    const s = session(server)
    const got = await call(s.chat, { json: { id: s.id, messages: [{ id: 'u', role: 'user', parts: [{ type: 'text', text: 'x' }] }], agent: 'absent' } })
    assert.deepEqual([got.status, got.body.code], [500, 'configuration_invalid'])
    assert.deepEqual(await s.info(), { exists: false })
  })
})

describe('a producer behind a binding', () => {
  for (const agent of ['push', 'network']) {
    test(`is told of its run and writes it back (${agent === 'push' ? 'through a binding of its own' : 'over the network'})`, async () => {
      const s = session(server)
      const got = await s.ask('hello', { agent })
      await assertChatBody(got)
      assert.equal(textOf(await parts(s, 1)), 'send of 1')
      const { terminal } = assertWireBody(await (await s.sse(0)).collect())
      assert.deepEqual([terminal.event, terminal.data.status], ['end', 'completed'])
      await assertChatBody(await s.ask('again', { agent }))
      assert.equal(textOf(await parts(s, 3)), 'send of 3')
    })
  }

  test('is told the result of the call that it paused for', async () => {
    const s = session(server)
    const transport = { prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({ body: { id, messages, trigger, messageId, agent: 'push' } }) }
    const chat = await makeChat('7-latest', { id: s.id, origin: server.origin, transport })
    await chat.sendMessage({ text: 'call' })
    assert.equal(chat.lastMessage.parts.at(-1).state, 'input-available')
    const { body } = await call(`${s.chat}/tool-result`, { json: { toolCallId: 'c1', output: 42 } })
    assert.deepEqual([body.status, body.continues], ['accepted', true])
    await (await s.reconnect()).collect()
    assert.match(textOf(await parts(s, 1)), /tool-result of \[\{"toolCallId":"c1","output":42\}\]/)
  })

  test('that refuses fails the run, with the wait that it asks for', async () => {
    for (const [agent, wait] of [['full', 5000], ['nowhere', undefined]]) {
      const s = session(server)
      assert.equal(errorOf(await s.ask('hello', { agent })), 'The producer could not be reached; try again')
      const { errorDetail } = (await s.snapshot()).body
      assert.deepEqual([errorDetail.code, errorDetail.retryAfterMs], ['producer_unreachable', wait])
    }
  })
})
