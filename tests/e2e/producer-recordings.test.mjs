// What real model APIs sent, replayed through the product: the reply is what the recording says, however its bytes arrive.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, reasoningOf, textOf, validateMessages } from './harness/clients.mjs'
import { replayScript, step, textScript } from './harness/fake-model.mjs'
import { chatRecordings, contentOf } from './harness/recordings.mjs'
import { userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
const FINISH = { stop: 'stop', length: 'length', tool_calls: 'tool-calls', content_filter: 'content-filter' }
const finishOf = ({ finish, tools }) => (finish === 'stop' && tools.length > 0 ? 'tool-calls' : FINISH[finish] ?? 'other')
const sourcesOf = (message) => message.parts.filter((p) => p.type === 'source-url').map((p) => p.url)
const toolsOf = (message) => message.parts.filter((p) => p.toolCallId).map((p) => ({ name: p.toolName ?? p.type.slice(5), input: p.input }))

describe('recordings', () => {
  for (const { name, lines } of chatRecordings()) {
    test(name, async () => {
      const said = contentOf(lines)
      const s = set.session()
      set.model.enqueue(replayScript(lines))
      const got = await s.ask(name)
      await assertChatBody(got)
      for (const version of VERSIONS) {
        const { reply, status, error, finishes } = await foldAll(version, got.raw, [userMessage(name)])
        assert.equal(status, 'ready', error?.message)
        assert.equal(finishes.at(-1).finishReason, finishOf(said))
        assert.deepEqual(sourcesOf(reply).sort(), said.sources.toSorted())
        assert.equal(textOf(reply), said.text)
        assert.equal(reasoningOf(reply), said.reasoning)
        assert.deepEqual(toolsOf(reply), said.tools.map((t) => ({ name: t.name, input: JSON.parse(t.arguments || '{}') })))
      }
      const { body } = await s.snapshot()
      assert.equal(textOf(body.messages.at(-1)), said.text)
      assert.equal(reasoningOf(body.messages.at(-1)), said.reasoning)
    })
  }
})

describe('the same reply', () => {
  const forms = {
    'written byte by byte': [step.mode({ bytes: 1 })],
    'with CRLF': [step.mode({ crlf: true })],
    'with comments': [step.comment('hello'), step.raw(':\n\n: more\n\n')],
    'behind a byte-order mark': [step.raw('\uFEFF')],
  }
  for (const [form, first] of Object.entries(forms)) {
    test(form, async () => {
      const script = textScript(['grüße ', '👋🏽', ' end'], { reasoning: ['ünd'] })
      set.model.enqueue([...first, ...script])
      const got = await set.session().ask(form)
      await assertChatBody(got)
      const { reply } = await foldAll('7-latest', got.raw)
      assert.deepEqual([textOf(reply), reasoningOf(reply)], [script.text, script.reasoning])
    })
  }
})

test('an emoji that the model cut in two between deltas is one emoji', async () => {
  const s = set.session()
  const emoji = '👋'
  set.model.enqueue(textScript([`a${emoji[0]}`, `${emoji[1]}b`]))
  const got = await s.ask('half an emoji')
  await assertChatBody(got)
  for (const version of VERSIONS) {
    const { text, status } = await foldAll(version, got.raw, [userMessage('x')])
    assert.equal(status, 'ready', got.text.slice(-300))
    assert.equal(text, `a${emoji}b`)
  }
})

test('an exotic finish reason becomes one that every client knows', async () => {
  set.model.enqueue(textScript(['x'], { finish: 'galaxy_collapsed' }))
  const got = await set.session().ask('reason')
  await assertChatBody(got)
  assert.equal(chunksOf(got.frames).at(-1).finishReason, 'other')
})

describe('hostile keys in a tool call', () => {
  const inputs = {
    '__proto__ and constructor.prototype': '{"__proto__":{"admin":true},"constructor":{"prototype":{"x":1}},"a":1}',
    'an escaped __proto__': '{"\\u005f_proto__":{"admin":true},"a":1}',
    '__proto__ deep inside': '{"list":[{"deep":{"__proto__":null}}],"a":1}',
    'constructor deep inside': '{"list":[{"constructor":{"prototype":{}}}],"a":1}',
    '__proto__ as a value': '{"key":"__proto__","a":1}',
  }
  for (const [name, input] of Object.entries(inputs)) {
    test(`${name}: every version renders the reply, live and from the snapshot`, async () => {
      const s = set.session()
      // Streamed in pieces that cut the keys.
      set.model.enqueue(textScript(['look'], { tool: { id: 'c', name: 'hostile', arguments: input.match(/.{1,5}/gs) } }))
      const got = await s.ask('proto')
      await assertChatBody(got)
      const { status, body } = await s.snapshot()
      assert.equal(status, 200)
      for (const version of VERSIONS) {
        const { reply, status, error } = await foldAll(version, got.raw, [userMessage('proto')])
        assert.equal(status, 'ready', `ai ${version}: ${error?.message}`)
        assert.equal(textOf(reply), 'look')
        for (const shown of [reply, body.messages.at(-1)]) assert.equal(toolsOf(shown)[0].input.a, 1)
        await validateMessages(version, body.messages)
      }
      assert.equal({}.admin, undefined, 'nobody’s prototype was changed')
      for (const text of [got.text, JSON.stringify(body)]) {
        for (const key of ['"__proto__":', '"\\u005f_proto__":']) assert.ok(!text.includes(key), `${key} in ${text.slice(0, 300)}`)
      }

      set.model.enqueue(textScript(['fine']))
      const next = await s.ask('and again', { history: body.messages })
      await assertChatBody(next)
      assert.equal((await foldAll('7-latest', next.raw, [userMessage('x')])).text, 'fine', 'what the client was given, it may send back')
    })
  }
})

describe('how a reply ended', () => {
  const USAGE = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18, prompt_tokens_details: { cached_tokens: 3 }, completion_tokens_details: { reasoning_tokens: 2 } }

  test('usage is in the message’s metadata, for every version and in the snapshot', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['x'], { usage: USAGE }))
    const got = await s.ask('usage')
    await assertChatBody(got)
    const { body } = await s.snapshot()
    const { usage } = body.messages.at(-1).metadata
    assert.deepEqual([usage.inputTokens, usage.outputTokens, usage.totalTokens], [11, 7, 18], JSON.stringify(usage))
    for (const version of VERSIONS) {
      const { reply } = await foldAll(version, got.raw, [userMessage('usage')])
      assert.deepEqual(reply.metadata, body.messages.at(-1).metadata, `ai ${version}`)
    }
  })

  test('without usage there is none', async () => {
    const s = set.session()
    set.model.enqueue(textScript(['x']))
    await s.ask('no usage')
    assert.equal((await s.snapshot()).body.messages.at(-1).metadata?.usage, undefined)
  })

  for (const [said, expected] of Object.entries({ stop: 'stop', length: 'length', content_filter: 'content-filter', tool_calls: 'tool-calls' })) {
    test(`${said} becomes ${expected}`, async () => {
      const tool = said === 'tool_calls' ? { id: 'c', name: 't', arguments: '{}' } : undefined
      set.model.enqueue(textScript(['x'], { finish: said, tool }))
      const got = await set.session().ask(said)
      await assertChatBody(got)
      assert.equal(chunksOf(got.frames).at(-1).finishReason, expected)
      const seen = (await foldAll('7-latest', got.raw, [userMessage('x')])).finishes.at(-1)
      assert.equal(seen.finishReason, expected)
    })
  }
})

test('a reply that talks about __proto__ is left alone', async () => {
  const text = 'set obj["__proto__"] = {"__proto__": 1}'
  set.model.enqueue(textScript([text]))
  const got = await set.session().ask('talk')
  await assertChatBody(got)
  for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, [userMessage('talk')])).text, text, `ai ${version}`)
})
