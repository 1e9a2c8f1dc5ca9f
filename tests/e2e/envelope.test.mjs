// What surrounds the chunks: headers, the first byte, heartbeats; and that no client minds any of it.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { after, describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, makeChat, reasoningOf, textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { openaiAgent } from './harness/server.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const HEARTBEAT_MS = 300
// A model API that takes the connection and never answers: no status, no header.
const sockets = new Set()
const mute = createServer((socket) => sockets.add(socket.on('error', () => {}))).listen(0, '127.0.0.1')
await once(mute, 'listening')
const muteAgent = () => ({ producer: 'openai', baseUrl: `http://127.0.0.1:${mute.address().port}/v1`, model: 'm' })
const set = stage({ vars: { HEARTBEAT_MS }, agents: (model) => ({ ...openaiAgent(model), mute: muteAgent() }) })
after(() => {
  for (const socket of sockets) socket.destroy()
  mute.close()
})

function assertHead(reader, chat) {
  assert.equal(reader.status, 200)
  assert.match(reader.headers['content-type'], /^text\/event-stream/)
  assert.match(reader.headers['cache-control'], /no-cache/)
  assert.match(reader.headers['cache-control'], /no-transform/)
  assert.equal(reader.headers['x-accel-buffering'], 'no')
  assert.equal(reader.headers['content-encoding'], undefined)
  assert.equal(reader.headers['content-length'], undefined)
  assert.equal(reader.headers['x-vercel-ai-ui-message-stream'], chat ? 'v1' : undefined)
}

test('every streaming route has the same headers, and compresses for nobody', async () => {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['a', held]))
  const headers = { 'accept-encoding': 'gzip, deflate, br, zstd' }
  const sent = await s.send(s.id, { headers })
  const chats = [sent, await s.reconnect({ headers }), await s.resume(0, { headers })]
  const wire = await s.sse(0, { headers })
  for (const reader of chats) assertHead(reader, true)
  assertHead(wire, false)
  held.open()
  for (const reader of chats) await assertChatBody(await reader.collect())
  assertWireBody(await wire.collect())
})

test('the first byte comes at once, though the model has not even answered', async () => {
  const s = set.session()
  const sent = await s.send('are you there', { agent: 'mute', ms: 5000 })
  const readers = [sent, await s.reconnect({ ms: 5000 }), await s.sse(0, { ms: 5000 })]
  for (const reader of readers) assert.notEqual((await reader.next(5000)).comment, undefined, 'a comment')
  assert.equal((await s.info()).status, 'active')
  await s.stop()
  for (const reader of readers) assert.equal((await reader.collect(5000)).ended, 'clean')
})

describe('heartbeats', () => {
  test('come whenever a response has been silent for so long, on every kind of it', async () => {
    const s = set.session()
    const held = gate()
    set.model.script(s.id, textScript(['a', held, 'b']))
    const sent = await s.send(s.id)
    const readers = [sent, await s.reconnect(), await s.sse(0)]
    for (const reader of readers.slice(1)) await reader.until((f) => f.data?.includes('"a"'))
    const begun = performance.now()
    await Promise.all(readers.map(async (reader) => {
      const isComment = (f) => f.comment !== undefined
      for (let beat = 0; beat < 4; beat++) await reader.until(isComment, HEARTBEAT_MS * 5)
    }))
    assert.ok(performance.now() - begun < HEARTBEAT_MS * 10)
    held.open()
    const [own, other, wire] = await Promise.all(readers.map((r) => r.collect()))
    for (const got of [own, other]) await assertChatBody(got)
    assertWireBody(wire)
    for (const got of [own, other, wire]) {
      const beats = got.frames.filter((f) => f.comment !== undefined)
      for (const beat of beats) assert.deepEqual([beat.id, beat.event, beat.data], [undefined, undefined, undefined], 'a heartbeat moves no cursor')
    }
  })

  for (const version of VERSIONS) {
    test(`and everything else around the chunks does no harm to ai ${version}`, async () => {
      const s = set.session()
      const gates = Array.from({ length: 3 }, gate)
      set.model.script(s.id, textScript(['Hel', gates[1], 'lo', gates[2]], { reasoning: [gates[0], 'hm'] }))
      const chat = await makeChat(version, { id: s.id, origin: set.server.origin })
      const watcher = await (async () => {
        const sent = chat.sendMessage({ text: s.id })
        await chat.answered()
        return { sent, reader: await s.reconnect() }
      })()
      for (const next of gates) {
        await watcher.reader.until((f) => f.comment !== undefined && f.comment !== 'open')
        next.open()
      }
      await within(watcher.sent)
      assert.deepEqual([chat.status, reasoningOf(chat.lastMessage), textOf(chat.lastMessage)], ['ready', 'hm', 'Hello'], chat.error?.message)
      const got = await watcher.reader.collect()
      assert.ok(got.frames.filter((f) => f.comment !== undefined).length >= 4)
      const folded = await foldAll(version, got.raw, [userMessage(s.id)])
      assert.deepEqual([folded.status, folded.text], ['ready', 'Hello'])
    })
  }
})

test('/health answers with version and build', async () => {
  const { status, body } = await call(`${set.server.origin}/health`)
  assert.equal(status, 200)
  assert.match(body.version, /^\d+\.\d+\.\d+/)
  assert.ok(typeof body.build === 'string' && body.build.length > 0)
})

test('a JSON answer is kept by no cache', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['x']))
  await s.ask(s.id)
  for (const url of [`${s.chat}/snapshot`, `${s.own}/snapshot`, `${s.own}/info`, `${s.own}/chunks`]) {
    const { headers } = await call(url)
    assert.match(headers.get('content-type'), /^application\/json/)
    assert.match(headers.get('cache-control'), /no-store/)
  }
})
