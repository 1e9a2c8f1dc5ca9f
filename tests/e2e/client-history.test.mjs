// Clients whose list is the truth about which messages stay (`history: "client"`, `X-Rejoin-History`): what it does not hold is cut as by an edit.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { openSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const CLIENT = { 'x-rejoin-history': 'client' }
const SERVER = { 'x-rejoin-history': 'server' }
const TOOLS = [{ name: 'weather', description: 'The weather.', inputSchema: { type: 'object' } }]
const set = stage({
  agents: (model) => {
    const agent = { producer: 'openai', baseUrl: model.baseUrl, model: 'm', tools: TOOLS }
    return { default: agent, trusting: { ...agent, history: 'client' } }
  },
})

const post = (s, messages, { headers, agent, ...more } = {}) =>
  openSse(`${s.chat}${agent ? `?agent=${agent}` : ''}`, { headers, json: { id: s.id, trigger: 'submit-message', messages, ...more } })

/** Says `text` to the model and reads the whole reply, which is "to <text>". */
async function say(s, text, { list = [], id, ...options } = {}) {
  set.model.script(text, textScript([`to ${text}`]))
  const got = await (await post(s, [...list, userMessage(text, id)], options)).collect()
  await assertChatBody(got)
  return got
}

const stored = async (s) => (await s.snapshot()).body.messages
const said = (messages) => messages.map(textOf)
const asked = () => set.model.requests.at(-1).body.messages.filter((m) => m.role !== 'system').map((m) => m.content)

/** A session of two turns: `one`, `to one`, `two`, `to two`. Answers its stored messages too. */
async function conversation() {
  const s = set.session()
  await say(s, 'one', { id: 'u1' })
  await say(s, 'two', { id: 'u2', list: await stored(s) })
  return { s, messages: await stored(s) }
}

const WAYS = [
  ['by the header', { headers: CLIENT }],
  ['by the agent', { agent: 'trusting' }],
]

for (const [name, way] of WAYS) {
  describe(name, () => {
    test('a shorter list with a new message is an edit', async () => {
      const { s, messages } = await conversation()
      await say(s, 'two, edited', { ...way, list: messages.slice(0, 2), id: 'u2-edited' })
      assert.deepEqual(said(await stored(s)), ['one', 'to one', 'two, edited', 'to two, edited'])
      assert.deepEqual(asked(), ['one', 'to one', 'two, edited'])
      assert.equal((await s.snapshot()).body.latestTruncateCheckpointId?.length > 0, true)
    })

    test('a list that shares nothing replaces the conversation', async () => {
      const { s } = await conversation()
      await say(s, 'one, edited', { ...way, id: 'u1-edited' })
      assert.deepEqual(said(await stored(s)), ['one, edited', 'to one, edited'])
      assert.deepEqual(asked(), ['one, edited'])
    })

    test('a branch of the reply that only the client holds takes the stored one away', async () => {
      const { s, messages } = await conversation()
      const branch = { id: 'another', role: 'assistant', parts: [{ type: 'text', text: 'kept by the page' }] }
      await say(s, 'on the branch', { ...way, list: [...messages.slice(0, 3), branch] })
      assert.deepEqual(said(await stored(s)), ['one', 'to one', 'two', 'on the branch', 'to on the branch'])
    })

    test('the whole list cuts nothing, and a repeat runs nothing again', async () => {
      const { s, messages } = await conversation()
      const third = userMessage('three')
      set.model.script('three', textScript(['to three']))
      await assertChatBody(await (await post(s, [...messages, third], way)).collect())
      assert.deepEqual(said(await stored(s)), ['one', 'to one', 'two', 'to two', 'three', 'to three'])
      const calls = set.model.requests.length
      for (const list of [[...messages, third], [third]]) await assertChatBody(await (await post(s, list, way)).collect())
      assert.equal(set.model.requests.length, calls)
      assert.equal((await stored(s)).length, 6)
    })

    test('an edit by name or by its own id also cuts what the list lacks', async () => {
      for (const more of [{ messageId: 'u2' }, {}]) {
        const { s, messages } = await conversation()
        await say(s, 'two again', { ...way, ...more, id: 'u2', list: messages.slice(0, 1) })
        assert.deepEqual(said(await stored(s)), ['one', 'two again', 'to two again'])
      }
    })

    test('a regenerate keeps the list it is given; a question never stored is sent behind it', async () => {
      const { s, messages } = await conversation()
      set.model.script('one', textScript(['to one again']))
      await assertChatBody(await (await post(s, messages.slice(0, 1), { ...way, trigger: 'regenerate-message' })).collect())
      assert.deepEqual(said(await stored(s)), ['one', 'to one again'])
      set.model.script('unheard', textScript(['to unheard']))
      const list = [messages[0], userMessage('unheard')]
      await assertChatBody(await (await post(s, list, { ...way, trigger: 'regenerate-message' })).collect())
      assert.deepEqual(said(await stored(s)), ['one', 'unheard', 'to unheard'])
    })
  })
}

test('without a word of it a shorter list cuts nothing', async () => {
  const { s, messages } = await conversation()
  await say(s, 'two, edited', { list: messages.slice(0, 2) })
  assert.deepEqual(said(await stored(s)), ['one', 'to one', 'two', 'to two', 'two, edited', 'to two, edited'])
  await say(s, 'and on', { agent: 'trusting', headers: SERVER })
  assert.equal((await stored(s)).length, 8, 'the request overrules the agent')
})

test('one message, or an empty list, says nothing of the others', async () => {
  const { s } = await conversation()
  set.model.script('three', textScript(['to three']))
  await assertChatBody(await (await openSse(s.chat, { headers: CLIENT, json: { id: s.id, message: userMessage('three') } })).collect())
  assert.equal((await stored(s)).length, 6)
  await assertChatBody(await (await post(s, [], { headers: CLIENT })).collect())
  set.model.script('three', textScript(['to three again']))
  await assertChatBody(await (await post(s, [], { headers: CLIENT, trigger: 'regenerate-message' })).collect())
  assert.deepEqual(said(await stored(s)).slice(4), ['three', 'to three again'])
})

test('the reply of a running run is not missed; what lies before it is', async () => {
  const { s, messages } = await conversation()
  const held = gate()
  set.model.script('three', textScript(['to ', held, 'three']))
  const third = userMessage('three', 'u3')
  const live = await post(s, [...messages, third], { headers: CLIENT })
  await live.until((f) => f.data?.includes('to '))
  const refused = await post(s, [...messages, third, userMessage('four')], { headers: { ...CLIENT, 'x-helix-request-key': 'k1' } })
  assert.deepEqual([refused.status, JSON.parse((await refused.collect()).text).code], [409, 'state_already_running'])
  await say(s, 'two, edited', { headers: CLIENT, list: messages.slice(0, 2) })
  assert.equal((await live.collect()).ended, 'broken')
  assert.deepEqual(said(await stored(s)), ['one', 'to one', 'two, edited', 'to two, edited'])
})

describe('a suspended run', () => {
  const ask = async () => {
    const s = set.session()
    set.model.script('look', textScript(['Let me see. '], { tool: { id: 'c1', name: 'weather', arguments: '{}' } }))
    await assertChatBody(await (await post(s, [userMessage('look', 'u1')])).collect())
    return { s, messages: await stored(s) }
  }

  test('is cut away with its message, and its answer comes too late', async () => {
    const { s, messages } = await ask()
    await say(s, 'never mind', { headers: CLIENT, list: messages.slice(0, 1) })
    assert.deepEqual(said(await stored(s)), ['look', 'never mind', 'to never mind'])
    const { status } = await call(`${s.chat}/tool-result`, { json: { runId: messages[1].parts.find((p) => p.toolCallId)?.runId, toolCallId: 'c1', output: 1 } })
    assert.ok([400, 409].includes(status), String(status))
  })

  test('that the list holds is given up as ever', async () => {
    const { s, messages } = await ask()
    await say(s, 'never mind', { headers: CLIENT, list: messages })
    const now = await stored(s)
    assert.deepEqual(said(now), ['look', 'Let me see. ', 'never mind', 'to never mind'])
    assert.equal(now[1].parts.find((p) => p.toolCallId === 'c1').state, 'output-error')
  })

  test('takes the answer in a list of any length', async () => {
    const { s, messages } = await ask()
    const parts = messages[1].parts.map((p) => (p.toolCallId ? { ...p, state: 'output-available', output: 1 } : p))
    set.model.script('look', textScript(['Sunny.']))
    await assertChatBody(await (await post(s, [{ ...messages[1], parts }], { headers: CLIENT, messageId: messages[1].id })).collect())
    assert.deepEqual(said(await stored(s)), ['look', 'Let me see. Sunny.'])
  })
})

test('another word is refused, and nothing is stored', async () => {
  const s = set.session()
  for (const word of ['mine', 'CLIENT']) {
    const refused = await post(s, [userMessage('hi')], { headers: { 'x-rejoin-history': word } })
    const { code, error } = JSON.parse((await refused.collect()).text)
    assert.deepEqual([refused.status, code, error], [400, 'validation_error', 'X-Rejoin-History must be client or server'])
  }
  assert.deepEqual(await s.info(), { exists: false })
})
