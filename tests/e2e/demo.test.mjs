// The producer that needs no key: what a fresh deployment says, in steps, with reasoning, with a tool when asked, at its own pace.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused } from './harness/assertions.mjs'
import { VERSIONS, foldAll, makeChat, reasoningOf, textOf, validateMessages } from './harness/clients.mjs'
import { call, userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const demo = (more) => ({ producer: 'demo', ...more })
const set = stage({
  agents: () => ({
    default: demo({ paceMs: 0 }),
    quick: demo({ paceMs: 1 }),
    slow: demo({ paceMs: 12 }),
    numbered: demo({ paceMs: 0, deltas: 3000, deltaBytes: 40 }),
  }),
})

describe('a reply', () => {
  test('quotes the message, thinks first, has several steps, and finishes', async () => {
    const got = await set.session().ask('Where is the harbour?')
    await assertChatBody(got)
    const chunks = chunksOf(got.frames)
    const types = chunks.map((c) => c.type)
    assert.ok(types.filter((t) => t === 'start-step').length >= 2)
    assert.equal(types.filter((t) => t === 'finish-step').length, types.filter((t) => t === 'start-step').length)
    assert.ok(types.filter((t) => t === 'text-delta').length > 20, 'it streams')
    assert.ok(!types.some((t) => t.startsWith('tool-')))
    assert.deepEqual([chunks.at(-1).type, chunks.at(-1).finishReason], ['finish', 'stop'])
    for (const version of VERSIONS) {
      const { reply, status } = await foldAll(version, got.raw, [userMessage('Where is the harbour?')])
      assert.equal(status, 'ready')
      assert.match(textOf(reply), /Where is the harbour\?/)
      assert.ok(reasoningOf(reply).length > 0)
      assert.equal(reply.parts.find((p) => p.type !== 'step-start').type, 'reasoning')
      await validateMessages(version, [userMessage('x'), reply])
    }
  })

  for (const version of VERSIONS) {
    test(`with a tool call, when asked for one, renders in ai ${version}`, async () => {
      const s = set.session()
      const chat = await makeChat(version, { id: s.id, origin: set.server.origin })
      await chat.sendMessage({ text: 'please use a tool now' })
      assert.equal(chat.status, 'ready', chat.error?.message)
      const part = chat.lastMessage.parts.find((p) => p.toolCallId)
      assert.deepEqual([part.state, part.input, part.output.words], ['output-available', { text: 'please use a tool now' }, 5])
      assert.deepEqual(chat.seen.toolCalls, [], 'the client is not asked to run it')
      await validateMessages(version, chat.messages)
      const { body } = await s.snapshot()
      await validateMessages(version, body.messages)
      assert.deepEqual(body.messages.at(-1).parts.find((p) => p.toolCallId).output, part.output)
    })
  }
})

test('its pace is a setting', async () => {
  const took = async (agent) => {
    const begun = performance.now()
    await assertChatBody(await set.session().ask('how fast', { agent }))
    return performance.now() - begun
  }
  const [fast, slow] = [await took('quick'), await took('slow')]
  assert.ok(slow > 1000 && slow > fast, `${Math.round(fast)} ms at a pace of 1, ${Math.round(slow)} ms at 12`)
})

test('numbered deltas come all and in order, at once', async () => {
  const got = await set.session().ask('count', { agent: 'numbered' })
  const deltas = chunksOf(got.frames).filter((c) => c.type === 'text-delta').map((c) => c.delta)
  assert.deepEqual(deltas.map((d) => parseInt(d)), Array.from({ length: 3000 }, (_, i) => i + 1))
  assert.ok(deltas.every((d) => d.length === 40))
})

describe('a message', () => {
  const odd = {
    'of emoji': '👩🏽‍💻🏳️‍🌈👋🏽 e\u0301',
    'written from right to left': 'שלום עולם مرحبا\u202e',
    'of control characters': 'a\u0007b\u001b[31mc',
    'of spaces': ' \n\t ',
    'of JSON and frames': '{"type":"finish"}\n\ndata: [DONE]\n\nid: 99\n',
    'of HTML': '<script>alert(1)</script>&amp;',
    'of a lone surrogate': 'a\ud800b',
    'of a megabyte': 'ünïcödé '.repeat(80_000),
  }
  for (const [name, text] of Object.entries(odd)) {
    test(`${name} gets a whole reply, and is kept as it was`, async () => {
      const s = set.session()
      const got = await s.ask(text)
      await assertChatBody(got)
      assert.equal(chunksOf(got.frames).at(-1)?.type, 'finish', got.text.slice(0, 300))
      assert.equal((await foldAll('6.0.0', got.raw, [userMessage('x')])).status, 'ready')
      const kept = textOf((await s.snapshot()).body.messages[0])
      assert.equal(kept, text.toWellFormed())
    })
  }

  test('without text, of a file alone, gets a reply', async () => {
    const file = { type: 'file', mediaType: 'image/png', url: 'data:image/png;base64,iVBORw0KGgo=' }
    const s = set.session()
    const got = await s.ask('', { messages: [{ id: 'f', role: 'user', parts: [file] }] })
    await assertChatBody(got)
    assert.deepEqual((await s.snapshot()).body.messages[0].parts, [file])
  })
})

test('an agent that is not configured is refused and stores nothing', async () => {
  const s = set.session()
  for (const agent of ['nobody', '__proto__', 'constructor', 7, {}]) {
    const answer = await call(s.chat, { json: { agent, messages: [userMessage('hi')] } })
    assertRefused(answer, undefined, `agent ${JSON.stringify(agent)}`)
  }
  assert.deepEqual(await s.info(), { exists: false })
})
