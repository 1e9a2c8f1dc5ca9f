// Conversations of several turns against servers that refuse whatever their vendor does not document.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { makeChat, textOf } from './harness/clients.mjs'
import { startFakeModel, textScript } from './harness/fake-model.mjs'
import { blockScript, messageOf, replayMessages } from './harness/messages-api.mjs'
import { messagesRecordings } from './harness/recordings.mjs'
import { startRejoin } from './harness/server.mjs'
import { session } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { chunkScript, saying, startUiRoute } from './harness/ui-route.mjs'
import { checkCompletionRequest, checkMessagesRequest } from './harness/vendor-requests.mjs'

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const TOOLS = [{ name: 'weather', description: 'Tells the weather.', inputSchema: { type: 'object', properties: { city: { type: 'string' } } } }]
const SYSTEM = 'You are kind.'
const shared = { apiKey: 'KEY', model: 'm', system: SYSTEM, tools: TOOLS, toolChoice: 'auto' }

let model
let route
let server
before(async () => {
  const check = (request) =>
    request.path.endsWith('/messages') ? checkMessagesRequest(request) : checkCompletionRequest(request, { reasoning: request.body.model === 'thinker' })
  model = await startFakeModel({ check })
  route = await startUiRoute()
  const { baseUrl } = model
  const agents = {
    completions: { producer: 'openai', baseUrl, ...shared, temperature: 0.5, topP: 0.9, maxTokens: 99, stop: ['END'], seed: 7 },
    thinker: { producer: 'openai', baseUrl, ...shared, model: 'thinker', sendReasoning: true },
    messages: { producer: 'anthropic', baseUrl, ...shared, temperature: 0.5, topP: 0.9, topK: 5, maxTokens: 99, stop: ['END'] },
    thinking: { producer: 'anthropic', baseUrl, ...shared, maxTokens: 4000, thinking: { budgetTokens: 2000 } },
    forgetful: { producer: 'anthropic', baseUrl, ...shared, sendReasoning: false },
    searching: { producer: 'anthropic', baseUrl, apiKey: 'KEY', model: 'm', tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    route: { producer: 'ui', url: route.url },
    bare: { producer: 'anthropic', baseUrl, apiKey: 'KEY', model: 'm' },
    plain: { producer: 'openai', baseUrl, apiKey: 'KEY', model: 'm', toolChoice: 'auto' },
  }
  server = await startRejoin({ agents, vars: { KEY: 'sk-key' } })
})
after(async () => {
  await server?.close()
  await model?.close()
  await route?.close()
})

const isMessages = (agent) => ['messages', 'thinking', 'forgetful', 'searching', 'bare'].includes(agent)

/** An answer in the API of that agent. */
function says(agent, { text, thinks, calls = [] }) {
  const stop = calls.length ? 'tool_use' : 'end_turn'
  if (!isMessages(agent)) {
    const tool = calls.map(({ id, input }) => ({ id, name: 'weather', arguments: JSON.stringify(input) }))
    return textScript(text ? [text] : [], { reasoning: thinks ? [thinks] : [], tool: tool.length ? tool : undefined })
  }
  const blocks = [
    ...(thinks ? [{ type: 'thinking', thinking: thinks, signature: `sig-${thinks}` }] : []),
    ...(text ? [{ type: 'text', text }] : []),
    ...calls.map(({ id, input }) => ({ type: 'tool_use', id, name: 'weather', input })),
  ]
  return blockScript(blocks, { stop })
}

const FILES = [
  { type: 'file', mediaType: 'image/png', url: `data:image/png;base64,${PIXEL}` },
  { type: 'file', mediaType: 'image/jpeg', url: 'https://pictures.test/a.jpg' },
  { type: 'file', mediaType: 'application/pdf', filename: 'a.pdf', url: 'data:application/pdf;base64,JVBERi0xLjQK' },
  { type: 'file', mediaType: 'text/csv', filename: 'a.csv', url: `data:text/csv;base64,${Buffer.from('ä,b').toString('base64')}` },
]

/** What a route of the user's own answers in between: two steps, and calls with every end that a call may have. */
const BETWEEN = [
  { type: 'start' },
  { type: 'start-step' },
  { type: 'reasoning-start', id: 'r' },
  { type: 'reasoning-delta', id: 'r', delta: 'of another model' },
  { type: 'reasoning-end', id: 'r' },
  { type: 'source-url', sourceId: 's', url: 'https://source.test' },
  { type: 'data-note', data: { a: 1 } },
  ...['a', 'b', 'c', 'd', 'e'].map((toolCallId) => ({ type: 'tool-input-available', toolCallId, toolName: 'weather', input: { city: toolCallId } })),
  { type: 'tool-output-available', toolCallId: 'a', output: { sky: 'clear' } },
  { type: 'tool-output-error', toolCallId: 'b', errorText: 'broken' },
  { type: 'tool-approval-request', approvalId: 'x', toolCallId: 'c' },
  { type: 'tool-output-denied', toolCallId: 'c' },
  { type: 'tool-approval-request', approvalId: 'y', toolCallId: 'd' },
  { type: 'tool-input-available', toolCallId: 'f.1', toolName: 'other tool', input: {}, dynamic: true },
  { type: 'tool-output-available', toolCallId: 'f.1', output: 'plain', dynamic: true },
  { type: 'finish-step' },
  { type: 'start-step' },
  ...saying('Sunny.').slice(2),
]

/** Three turns: files, and calls that nobody answers; a turn of the user's own route; a word more. Answers the bodies of the model's requests. */
async function converse(version, agent) {
  const s = session(server)
  const from = model.requests.length
  const chat = await makeChat(version, { id: s.id, origin: server.origin })
  const send = async (parts, by) => {
    await chat.sendMessage({ parts }, { body: { agent: by } })
    assert.equal(chat.status, 'ready', chat.error?.message ?? model.refused.at(-1)?.message)
  }
  model.enqueue(says(agent, { thinks: 'hm', text: 'I ask.', calls: [{ id: 'call_1', input: { city: 'Ulm' } }, { id: 'call_2', input: {} }] }))
  await send([{ type: 'text', text: 'Look.' }, ...FILES], agent)
  route.script('And there?', chunkScript(BETWEEN)).open()
  await send([{ type: 'text', text: 'And there?' }], 'route')
  model.enqueue(says(agent, { text: 'Fine.' }))
  await send([{ type: 'text', text: 'Never mind.' }], agent)
  assert.equal(textOf(chat.lastMessage), 'Fine.')
  assert.deepEqual(model.refused, [])
  const requests = model.requests.slice(from)
  assert.equal(requests.length, 2)
  return requests.map((r) => r.body)
}

const text = (words) => ({ type: 'text', text: words })
const completionCall = (id, input, name = 'weather') => ({ id, type: 'function', function: { name, arguments: JSON.stringify(input) } })
const use = (id, input, name = 'weather') => ({ type: 'tool_use', id, name, input })
const result = (tool_use_id, content, failed) => ({ type: 'tool_result', tool_use_id, content, ...(failed ? { is_error: true } : {}) })
const thought = (words) => ({ type: 'thinking', thinking: words, signature: `sig-${words}` })
const LOST = 'Not executed: the user went on without answering this call'

for (const version of ['6.0.0', '7-latest']) {
  describe(`three turns with ai ${version}`, () => {
    for (const [agent, thought] of [['completions', () => ({})], ['thinker', (words) => ({ reasoning_content: words })]]) {
      test(`chat completions, ${agent}`, async () => {
        const bodies = await converse(version, agent)
        const { messages, tools, model: _, ...rest } = bodies.at(-1)
        assert.deepEqual(messages, [
          { role: 'system', content: SYSTEM },
          {
            role: 'user',
            content: [
              text('Look.'),
              { type: 'image_url', image_url: { url: FILES[0].url } },
              { type: 'image_url', image_url: { url: FILES[1].url } },
              { type: 'file', file: { filename: 'a.pdf', file_data: FILES[2].url } },
              text('File a.csv:\nä,b'),
            ],
          },
          { role: 'assistant', content: 'I ask.', ...thought('hm'), tool_calls: [completionCall('call_1', { city: 'Ulm' }), completionCall('call_2', {})] },
          { role: 'tool', tool_call_id: 'call_1', content: `Error: ${LOST}` },
          { role: 'tool', tool_call_id: 'call_2', content: `Error: ${LOST}` },
          { role: 'assistant', content: '(interrupted)', ...thought('') },
          { role: 'user', content: 'And there?' },
          {
            role: 'assistant',
            content: null,
            ...thought('of another model'),
            tool_calls: [...'abcde'].map((id) => completionCall(id, { city: id })).concat(completionCall('f.1', {}, 'other_tool')),
          },
          { role: 'tool', tool_call_id: 'a', content: '{"sky":"clear"}' },
          { role: 'tool', tool_call_id: 'b', content: 'Error: broken' },
          { role: 'tool', tool_call_id: 'c', content: 'Error: the user denied this call' },
          { role: 'tool', tool_call_id: 'd', content: `Error: ${LOST}` },
          { role: 'tool', tool_call_id: 'e', content: `Error: ${LOST}` },
          { role: 'tool', tool_call_id: 'f.1', content: 'plain' },
          { role: 'assistant', content: 'Sunny.', ...thought('') },
          { role: 'user', content: 'Never mind.' },
        ])
        assert.equal(tools[0].function.name, 'weather')
        const settings = agent === 'completions' ? { temperature: 0.5, top_p: 0.9, max_tokens: 99, stop: ['END'], seed: 7 } : {}
        assert.deepEqual(rest, { ...settings, tool_choice: 'auto', stream: true, stream_options: { include_usage: true } })
        assert.deepEqual(bodies[0].messages, messages.slice(0, 2), 'the first request has the first message alone')
      })
    }

    for (const agent of ['messages', 'thinking', 'forgetful']) {
      test(`messages, ${agent}`, async () => {
        const bodies = await converse(version, agent)
        const { messages, tools, system, model: _, ...rest } = bodies.at(-1)
        const uses = [use('call_1', { city: 'Ulm' }), use('call_2', {})]
        assert.deepEqual(messages, [
          {
            role: 'user',
            content: [
              text('Look.'),
              { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } },
              { type: 'image', source: { type: 'url', url: FILES[1].url } },
              { type: 'document', title: 'a.pdf', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0xLjQK' } },
              { type: 'document', title: 'a.csv', source: { type: 'text', media_type: 'text/plain', data: 'ä,b' } },
            ],
          },
          { role: 'assistant', content: [...(agent === 'forgetful' ? [] : [thought('hm')]), text('I ask.'), ...uses] },
          { role: 'user', content: [result('call_1', LOST, true), result('call_2', LOST, true), text('And there?')] },
          { role: 'assistant', content: [...'abcde'].map((id) => use(id, { city: id })).concat(use('f_1', {}, 'other_tool')) },
          {
            role: 'user',
            content: [
              result('a', '{"sky":"clear"}'),
              result('b', 'broken', true),
              result('c', 'the user denied this call', true),
              result('d', LOST, true),
              result('e', LOST, true),
              result('f_1', 'plain'),
            ],
          },
          { role: 'assistant', content: [text('Sunny.')] },
          { role: 'user', content: [text('Never mind.')] },
        ])
        assert.deepEqual([system, tools[0].name], [SYSTEM, 'weather'])
        const settings = {
          messages: { temperature: 0.5, top_p: 0.9, top_k: 5, stop_sequences: ['END'], max_tokens: 99 },
          thinking: { max_tokens: 4000, thinking: { type: 'enabled', budget_tokens: 2000 } },
          forgetful: { max_tokens: 4096 },
        }
        assert.deepEqual(rest, { ...settings[agent], tool_choice: { type: 'auto' }, stream: true })
        assert.deepEqual(bodies[0].messages, messages.slice(0, 1))
      })
    }
  })
}

const searched = messagesRecordings().find((r) => r.name === 'web-search-tool')
test('a search that the API made goes back to it as it came', { skip: !searched && 'the recordings are not at hand' }, async () => {
  const s = session(server)
  model.enqueue(replayMessages(searched.lines))
  await assertChatBody(await s.ask('search', { agent: 'searching' }))
  model.enqueue(says('searching', { text: 'ok' }))
  await assertChatBody(await s.ask('more', { agent: 'searching' }))
  assert.deepEqual(model.refused, [])
  const blocks = searched.lines.map((line) => JSON.parse(line).content_block).filter(Boolean)
  const sent = model.requests.at(-1).body.messages.find((m) => m.role === 'assistant').content
  const [call] = messageOf(searched.lines).tools
  assert.deepEqual(sent[0].input, call.input)
  assert.deepEqual(sent[1].content, blocks.find((b) => b.type === 'web_search_tool_result').content)
  for (const agent of ['plain', 'bare']) {
    model.enqueue(says(agent, { text: 'ok' }))
    const got = await s.ask('with another agent', { agent })
    await assertChatBody(got)
    assert.deepEqual([chunksOf(got.frames).at(-1).type, model.refused], ['finish', []])
  }
})

describe('the checkers refuse', () => {
  const headers = { 'content-type': 'application/json', authorization: 'Bearer k', 'x-api-key': 'k', 'anthropic-version': '2023-06-01' }
  const user = { role: 'user', content: [text('a')] }
  const completions = {
    'an unanswered call': [user, { role: 'assistant', content: null, tool_calls: [completionCall('a', {})] }],
    'an answer to nothing': [user, { role: 'tool', tool_call_id: 'a', content: '' }],
    'a blank text': [{ role: 'user', content: '' }],
    'roles that do not alternate': [user, user],
    'an end with the assistant': [user, { role: 'assistant', content: 'a' }],
    'an unknown key': [{ ...user, id: 'x' }],
    'reasoning': [user, { role: 'assistant', content: 'a', reasoning_content: 'b' }],
  }
  for (const [name, messages] of Object.entries(completions)) {
    test(name, () => assert.throws(() => checkCompletionRequest({ headers, body: { model: 'm', stream: true, messages } }), assert.AssertionError))
  }
  const messages = {
    'roles that do not alternate': [user, user],
    'an unanswered use': [user, { role: 'assistant', content: [use('a', {})] }, user],
    'an end with the assistant': [user, { role: 'assistant', content: [text('a')] }],
    'thinking without its signature': [user, { role: 'assistant', content: [{ type: 'thinking', thinking: 'a' }, text('b')] }, user],
    'a data URL as base64': [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: FILES[0].url } }] }],
  }
  for (const [name, list] of Object.entries(messages)) {
    test(name, () => assert.throws(() => checkMessagesRequest({ headers, body: { model: 'm', max_tokens: 9, stream: true, messages: list } }), assert.AssertionError))
  }
})
