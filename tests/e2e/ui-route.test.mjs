// A user's chat route behind the product: what clients fold is what they would have folded from the route itself, however often they leave.
import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, makeChat, textOf, validateMessages } from './harness/clients.mjs'
import { startRejoin } from './harness/server.mjs'
import { call, session, userMessage } from './harness/session.mjs'
import { chunksOf, isData, readSse } from './harness/sse.mjs'
import { EVERYTHING, chunkScript, reply, saying, startUiRoute } from './harness/ui-route.mjs'
import { within } from './harness/wait.mjs'

const UPSTREAMS = ['6-latest', '7-latest']
let route
let server
before(async () => {
  route = await startUiRoute()
  server = await startRejoin({
    // The product reached through a service binding to itself: its own chat route is a UI message stream, too.
    config: '[[services]]\nbinding = "SELF"\nservice = "rejoin"\n',
    agents: {
      default: { producer: 'ui', url: route.url, headers: ['Authorization', 'x-tenant'], sendHeaders: { 'x-fixed': 'f', 'X-Tenant': 'ours' } },
      binding: { producer: 'ui', binding: 'SELF', path: '/api/chat/behind?agent=demo' },
      demo: { producer: 'demo', paceMs: 1 },
    },
  })
})
after(async () => {
  await server?.close()
  await route?.close()
})
const fresh = () => session(server)
const withoutId = ({ id, ...message }) => message
/** A stored message as a route is sent it: the id of a reasoning part only describes its stream. */
const asSent = (message) => ({ ...message, parts: message.parts.map((part) => (part.type === 'reasoning' ? withoutId(part) : part)) })
const script = (text, chunks, options) => route.script(text, chunkScript(chunks, options))

/** What every version makes of the route's own answer, without the product. */
async function direct(chunks, options) {
  const text = `direct ${Math.random()}`
  script(text, chunks, options).open()
  const got = await readSse(route.url, { json: { messages: [userMessage(text)] } })
  const folded = await Promise.all(VERSIONS.map((version) => foldAll(version, got.raw, [], { as: 'send' })))
  return Object.fromEntries(VERSIONS.map((version, i) => [version, folded[i]]))
}

function assertEqualToDirect({ messages, status, error, seen }, expected, context) {
  assert.equal(status, 'ready', `${context}: ${error?.message}`)
  assert.deepEqual(messages.map((m) => m.role), ['user', 'assistant'], context)
  assert.deepEqual(withoutId(messages[1]), withoutId(expected.reply), context)
  assert.deepEqual(seen.data, expected.data, `${context}: what onData got`)
}

for (const ai of UPSTREAMS) {
  describe(`a route of ai ${ai}`, () => {
    test('reloaded at every frame, every client folds the route’s own message, once', async () => {
      const expected = await direct(EVERYTHING, { ai })
      for (let at = 1; at <= EVERYTHING.length; at++) {
        const text = `reload ${ai} ${at}`
        const s = fresh()
        const said = script(text, EVERYTHING, { ai })
        const first = await s.send(text)
        said.open(at)
        // A finish is held until the route has ended; the frame before it is the last one here.
        await first.take(Math.min(at, EVERYTHING.length - 1))
        first.cut()
        const { body } = await s.snapshot('?seed=1')
        assert.equal(body.status, 'active')
        const chats = await Promise.all(VERSIONS.map((v) => makeChat(v, { id: s.id, origin: server.origin, messages: body.messages })))
        const resumed = chats.map((chat) => chat.resumeStream())
        await Promise.all(chats.map((chat) => chat.answered()))
        said.open()
        await within(Promise.all(resumed))
        chats.forEach((chat, i) => assertEqualToDirect(chat, expected[VERSIONS[i]], `ai ${VERSIONS[i]}, reload at ${at}`))
        assert.equal(route.to(text).length, 1, 'the route was asked once')
      }
    })

    test('a resume by cursor at every frame brings exactly the rest', async () => {
      const s = fresh()
      const text = `cursor ${ai}`
      const said = script(text, EVERYTHING, { ai })
      const first = await s.send(text)
      said.open(EVERYTHING.length)
      await first.until((f) => f.data?.includes('tool-approval-request'))
      const seen = first.frames.filter((f) => f.id !== undefined)
      assert.ok(seen.length >= EVERYTHING.length - 2)
      const readers = await Promise.all(seen.map((frame) => s.resume(frame.id)))
      said.open()
      const whole = await first.collect()
      await assertChatBody(whole)
      for (const [index, reader] of readers.entries()) {
        const got = await reader.collect()
        await assertChatBody(got)
        const behind = (frames) => frames.filter((f) => Number(f.id) > Number(seen[index].id)).map((f) => f.data)
        assert.deepEqual(behind(got.frames), behind(whole.frames), `cursor ${seen[index].id}`)
        for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, [userMessage('x')])).status, 'ready', `ai ${version}`)
      }
    })

    test('the stored message is the route’s, and every version accepts it', async () => {
      const s = fresh()
      script(`stored ${ai}`, EVERYTHING, { ai }).open()
      const got = await s.ask(`stored ${ai}`)
      await assertChatBody(got)
      const { body } = await s.snapshot()
      const expected = await direct(EVERYTHING, { ai })
      assert.deepEqual(withoutId(body.messages[1]), JSON.parse(JSON.stringify(withoutId(expected['7-latest'].reply))))
      for (const version of VERSIONS) await validateMessages(version, body.messages)
    })

    test('data before the first step, streams merged into one with a finish each, and data behind them are one reply', async () => {
      const late = [{ type: 'data-late', data: 1 }, { type: 'message-metadata', messageMetadata: { a: 2 } }, { type: 'data-later', data: 2 }]
      const finish = (a) => ({ type: 'finish', finishReason: 'stop', messageMetadata: { a, [`at${a}`]: true } })
      const one = saying('one ', 'two').with(-1, finish(1))
      const chunks = [{ type: 'data-early', id: 'e', data: 0 }, ...one, ...saying('three').with(-1, finish(3)), ...late]
      const expected = await direct(chunks, { ai })
      const s = fresh()
      script(`merged ${ai}`, chunks, { ai }).open()
      const got = await s.ask(`merged ${ai}`)
      await assertChatBody(got)
      // Everything stands in a step here: the marks of steps may stand elsewhere, nothing else.
      const said = ({ metadata, parts }) => ({ metadata, parts: parts.filter((p) => p.type !== 'step-start') })
      for (const version of VERSIONS) {
        const { reply: folded } = await foldAll(version, got.raw, [userMessage('merged')])
        assert.deepEqual(said(folded), said(expected[version].reply), `ai ${version}`)
        assert.deepEqual(folded.metadata, { a: 2, at1: true, at3: true })
      }
    })
  })
}

describe('the request to the route', () => {
  for (const [form, sent] of [['messages', (last) => ({ messages: [last] })], ['message', (message) => ({ message })]]) {
    test(`holds the stored conversation and the client’s own keys; the client sends its last message as ${form}`, async () => {
      const s = fresh()
      const prepareSendMessagesRequest = ({ id, messages, trigger }) => ({ body: { id, trigger, custom: { a: [null, 1] }, ...sent(messages.at(-1)) } })
      const chat = await makeChat('7-latest', { id: s.id, origin: server.origin, transport: { prepareSendMessagesRequest } })
      script(`first ${form}`, EVERYTHING).open()
      await chat.sendMessage({ text: `first ${form}` })
      assert.equal((await s.snapshot()).body.messages.length, 2)
      script(`second ${form}`, saying('done')).open()
      await chat.sendMessage({ text: `second ${form}` })
      const [{ body: forwarded, path }] = route.to(`second ${form}`)
      const user = JSON.parse(JSON.stringify(chat.messages[2]))
      const { messages, ...keys } = forwarded
      assert.equal(path, '/api/chat')
      const { body } = await s.snapshot()
      assert.equal(body.messages[1].parts.find((p) => p.toolCallId === 'c3').state, 'output-error', 'the call that waited is given up')
      assert.deepEqual(messages, body.messages.slice(0, 3).map(asSent))
      assert.deepEqual(messages[2], user)
      assert.deepEqual(keys, { id: s.id, trigger: 'submit-message', custom: { a: [null, 1] }, ...(form === 'message' ? { message: user } : {}) })
      assert.equal(textOf(chat.lastMessage), 'done')
      for (const version of VERSIONS) await validateMessages(version, messages)
    })
  }

  test('carries the headers on the list and the fixed ones, no others, and nothing of it is stored', async () => {
    const s = fresh()
    script('headers', saying('heard')).open()
    const headers = { authorization: 'Bearer t0ken-for-the-route', 'x-tenant': 'theirs', cookie: 'c=cookie-of-the-client', 'x-other': 'o' }
    const got = await s.ask('headers', { headers, custom: 'custom-key-of-the-body' })
    await assertChatBody(got)
    const [request] = route.to('headers')
    assert.equal(request.body.custom, 'custom-key-of-the-body')
    assert.equal(request.headers.authorization, headers.authorization)
    assert.equal(request.headers['x-tenant'], 'ours', 'a fixed header wins')
    assert.deepEqual([request.headers['x-fixed'], request.headers['content-type']], ['f', 'application/json'])
    assert.deepEqual([request.headers.cookie, request.headers['x-other']], [undefined, undefined])
    const stored = filesOf(server.state).map((file) => readFileSync(file).toString('latin1')).join('')
    assert.ok(stored.includes('heard'), 'the storage is where this looks')
    for (const secret of ['t0ken-for-the-route', 'cookie-of-the-client', 'custom-key-of-the-body']) assert.ok(!stored.includes(secret), secret)
  })

  test('may go through a service binding', async () => {
    const s = fresh()
    const got = await readSse(`${s.chat}?agent=binding`, { json: { messages: [userMessage('through')] } })
    await assertChatBody(got)
    const inner = await session(server, 'behind').snapshot()
    const { body } = await s.snapshot()
    assert.ok(textOf(body.messages[1]).length > 0)
    assert.deepEqual(body.messages[1].parts, inner.body.messages[1].parts)
  })
})

describe('what the route says besides', () => {
  test('a chunk type that nobody knows is kept on the wire and left out of chat', async () => {
    const s = fresh()
    const unknown = { type: 'hologram', beam: { a: [1] } }
    script('unknown', saying('a', 'b').toSpliced(4, 0, unknown)).open()
    const sent = await s.send('unknown')
    const wire = assertWireBody(await (await s.sse(0)).collect())
    const got = await sent.collect()
    await assertChatBody(got)
    assert.ok(!got.text.includes('hologram'))
    for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, [userMessage('u')])).text, 'ab', `ai ${version}`)
    const kept = (chunks) => chunks.map((c) => c.chunk).filter((c) => c.type === 'hologram').map(({ type, beam }) => ({ type, beam }))
    assert.deepEqual(kept(wire.chunks), [unknown])
    assert.deepEqual(kept(await s.log()), [unknown])
  })

  test('a chunk larger than a row of storage', async () => {
    const s = fresh()
    const url = `data:image/png;base64,${'QUJD'.repeat(700_000)}`
    script('large', saying('x').toSpliced(2, 0, { type: 'file', mediaType: 'image/png', url })).open()
    const got = await s.ask('large')
    const file = chunksOf(got.frames).find((c) => c.type === 'file')
    assert.equal(file.url, url)
    assert.equal((await s.snapshot()).body.messages[1].parts.find((p) => p.type === 'file').url, url)
  })

  test('an id of its own for the message, which is ours', async () => {
    const s = fresh()
    route.script('own id', reply((writer) => saying('x').forEach((c) => writer.write(c.type === 'start' ? { ...c, messageId: 'theirs' } : c))))
    const got = await s.ask('own id')
    const { body } = await call(`${s.chat}/snapshot`)
    const start = chunksOf(got.frames.filter(isData)).find((c) => c.type === 'start')
    assert.equal(start.messageId, body.messages[1].id)
    assert.notEqual(start.messageId, 'theirs')
  })
})

function filesOf(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).filter((f) => f.isFile()).map((f) => join(f.parentPath, f.name))
}
