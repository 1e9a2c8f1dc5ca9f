// A chat route that fails or is stopped before its first word: a stock client shows the error and no empty reply, as it does when it calls
// the route itself; and nothing is stored.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, makeChat, textOf } from './harness/clients.mjs'
import { step } from './harness/fake-model.mjs'
import { startRejoin } from './harness/server.mjs'
import { session, userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { chunkScript, reply, saying, startUiRoute } from './harness/ui-route.mjs'
import { gate } from './harness/wait.mjs'

let route
let server
before(async () => {
  route = await startUiRoute()
  server = await startRejoin({ agents: { default: { producer: 'ui', url: route.url } } })
})
after(async () => {
  await server?.close()
  await route?.close()
})

const status = { type: 'data-status', data: 'thinking', transient: true }
const failing = (...chunks) => reply((writer) => {
  chunks.forEach((chunk) => writer.write(chunk))
  throw new Error('mid boom')
})
const types = (got) => chunksOf(got.frames).map(({ type }) => type)

for (const [name, answer, words, passed] of [
  ['a refusal', [step.status(403, { error: 'Not yours' })], 'Not yours', []],
  ['an error part alone', failing(), 'mid boom', []],
  ['an error part behind start', failing({ type: 'start' }), 'mid boom', []],
  ['an error part behind a step’s beginning', failing({ type: 'start' }, { type: 'start-step' }), 'mid boom', []],
  ['an error part behind transient data', failing({ type: 'start' }, status), 'mid boom', ['data-status']],
]) {
  test(`${name}: the error, and no reply`, async () => {
    for (const version of VERSIONS) {
      const s = session(server)
      const text = `${name} ${version}`
      route.script(text, answer)
      const chat = await makeChat(version, { id: s.id, origin: server.origin })
      await chat.sendMessage({ text })
      assert.deepEqual([chat.status, chat.error?.message], ['error', words], `ai ${version}`)
      assert.deepEqual(chat.messages.map(({ role }) => role), ['user'], `ai ${version}`)
      assert.deepEqual(chat.seen.data.map(({ type }) => type), passed)
      assert.equal((await s.snapshot()).body.messages.length, 1)
    }
  })
}

test('what was held is said with the first part, in order, once, for everybody who follows', async () => {
  const s = session(server)
  const chunks = [{ type: 'start' }, status, { type: 'start-step' }, ...saying('Hel', 'lo').slice(2)]
  const said = route.script('late', chunkScript(chunks))
  const sent = await s.send('late')
  said.open(3)
  await sent.until((frame) => frame.data?.includes('thinking'))
  const second = await s.reconnect()
  await second.until((frame) => frame.data?.includes('thinking'))
  said.open()
  for (const open of [sent, second]) {
    const got = await open.collect()
    await assertChatBody(got)
    assert.deepEqual(types(got).slice(0, 4), ['data-status', 'start', 'start-step', 'text-start'])
    for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, [userMessage('late')])).text, 'Hello', `ai ${version}`)
  }
  assert.equal(textOf((await s.snapshot()).body.messages[1]), 'Hello')
})

test('a reply without a word is complete, and said to be', async () => {
  const s = session(server)
  route.script('nothing', chunkScript([{ type: 'start' }, { type: 'finish' }])).open()
  assert.deepEqual(types(await s.ask('nothing')), ['start', 'finish'])
})

test('a stop before the first word is a stop, and no reply', async () => {
  const s = session(server)
  route.script('stop me', reply(async (writer) => {
    writer.write({ type: 'start' })
    await gate()
  }))
  const sent = await s.send('stop me')
  while (!route.to('stop me').length) await sent.until((frame) => frame.comment !== undefined)
  await s.stop()
  const got = await sent.collect()
  assert.deepEqual(types(got), ['abort'])
  for (const version of VERSIONS) {
    const { messages } = await foldAll(version, got.raw, [userMessage('stop me')])
    assert.deepEqual(messages.map(({ role }) => role), ['user'], `ai ${version}`)
  }
})

test('a client that understands events is told of the reply’s message at once', async () => {
  const s = session(server)
  const said = route.script('aware', chunkScript(saying('Hi')))
  const sent = await s.send('aware', { headers: { 'x-helix-request-key': 'k1' } })
  await sent.until((frame) => frame.data?.includes('"start"'))
  said.open()
  await assertChatBody(await sent.collect())
})
