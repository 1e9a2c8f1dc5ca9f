// What real model APIs sent, replayed through the product: the reply is what the recording says, however its bytes arrive.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, reasoningOf, textOf } from './harness/clients.mjs'
import { replayScript, step, textScript } from './harness/fake-model.mjs'
import { chatRecordings, contentOf } from './harness/recordings.mjs'
import { userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
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
        const { reply, status, error } = await foldAll(version, got.raw, [userMessage(name)])
        assert.equal(status, 'ready', error?.message)
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

test('an exotic finish reason becomes one that every client knows', async () => {
  set.model.enqueue(textScript(['x'], { finish: 'galaxy_collapsed' }))
  const got = await set.session().ask('reason')
  await assertChatBody(got)
  assert.equal(chunksOf(got.frames).at(-1).finishReason, 'other')
})

test('a __proto__ key in a tool call does not fail the reply', async () => {
  const s = set.session()
  set.model.enqueue(textScript([], { tool: { id: 'c', name: 'hostile', arguments: '{"__proto__":{"admin":true},"constructor":{"prototype":{"x":1}},"a":1}' } }))
  const got = await s.ask('proto')
  await assertChatBody(got)
  for (const version of VERSIONS) {
    const { reply, status, error } = await foldAll(version, got.raw, [userMessage('proto')])
    assert.equal(status, 'ready', `ai ${version}: ${error?.message}`)
    assert.equal(toolsOf(reply)[0].input.a, 1)
  }
  assert.equal((await s.snapshot()).status, 200)
})

test('a reply that talks about __proto__ is left alone', async () => {
  const text = 'set obj["__proto__"] = {"__proto__": 1}'
  set.model.enqueue(textScript([text]))
  const got = await set.session().ask('talk')
  await assertChatBody(got)
  for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, [userMessage('talk')])).text, text, `ai ${version}`)
})
