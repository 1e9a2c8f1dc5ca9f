// The ways in which servers of both APIs say the same thing: every client version shows what was meant.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, reasoningOf, textOf, validateMessages } from './harness/clients.mjs'
import { startFakeModel, step, textScript } from './harness/fake-model.mjs'
import { blockScript } from './harness/messages-api.mjs'
import { startRejoin } from './harness/server.mjs'
import { session, userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'

let model
let server
before(async () => {
  model = await startFakeModel()
  const { baseUrl } = model
  const agents = {
    openai: { producer: 'openai', baseUrl, model: 'm' },
    anthropic: { producer: 'anthropic', baseUrl, model: 'm' },
    azure: { producer: 'openai', baseUrl: `${baseUrl}/deployments/d`, model: 'm', apiKey: 'KEY', keyHeader: 'api-key' },
    gateway: { producer: 'anthropic', baseUrl, model: 'm', apiKey: 'KEY', keyHeader: 'authorization', beta: ['a-1', 'b-2'], headers: { 'X-Title': 't' } },
    keyless: { producer: 'openai', baseUrl: `${baseUrl}/chat/completions`, model: 'm' },
  }
  server = await startRejoin({ agents, vars: { KEY: 'sk-key' } })
})
after(async () => {
  await server?.close()
  await model?.close()
})

const calls = (message) => message.parts.filter((p) => p.toolCallId).map((p) => ({ name: p.toolName ?? p.type.slice(5), input: p.input ?? p.rawInput, state: p.state }))
const sourcesOf = (message) => message.parts.filter((p) => p.type === 'source-url').map((p) => p.url)
const filesOf = (message) => message.parts.filter((p) => p.type === 'file').map((p) => p.url)
const whole = (name, input) => ({ name, input, state: 'input-available' })

async function shows(agent, steps, { text = '', reasoning = '', tools = [], sources = [], files = [], finish }) {
  const s = session(server)
  model.enqueue(steps)
  const got = await s.ask('ask', { agent })
  await assertChatBody(got)
  assert.equal(chunksOf(got.frames).at(-1).finishReason, finish, got.text.slice(-300))
  const { body } = await s.snapshot()
  for (const version of VERSIONS) {
    const { reply, status, error } = await foldAll(version, got.raw, [userMessage('ask')])
    assert.equal(status, 'ready', `ai ${version}: ${error?.message}`)
    for (const shown of [reply, body.messages.at(-1)]) {
      assert.deepEqual([textOf(shown), reasoningOf(shown), calls(shown), sourcesOf(shown), filesOf(shown)], [text, reasoning, tools, sources, files], `ai ${version}`)
    }
    await validateMessages(version, body.messages)
  }
  const ids = body.messages.at(-1).parts.filter((p) => p.toolCallId).map((p) => p.toolCallId)
  assert.equal(new Set(ids).size, ids.length, 'every call has an id of its own')
}

const delta = (said, finish_reason = null, more = {}) => step.event({ id: 'x', choices: [{ index: 0, delta: said, finish_reason }], ...more })
const end = (word) => [delta({}, word), step.done()]
const call = (fn, more = {}) => ({ type: 'function', function: fn, ...more })

const PICTURE = 'data:image/png;base64,iVBORw0KGgo='
const completions = {
  'reasoning under its other name': [[delta({ reasoning: 'hm' }), delta({ content: 'a' }), ...end('stop')], { text: 'a', reasoning: 'hm', finish: 'stop' }],
  'reasoning under both names, and null for what is absent': [
    [delta({ role: 'assistant', content: null, reasoning: 'hm', reasoning_content: 'hm', tool_calls: null, refusal: null, annotations: null }), delta({ content: 'a', reasoning: null, reasoning_content: null }), delta(null, 'stop', { usage: null, error: null }), step.done()],
    { text: 'a', reasoning: 'hm', finish: 'stop' },
  ],
  'Mistral’s content arrays': [
    [
      delta({ content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'hm' }] }] }),
      delta({ content: [{ type: 'thinking', thinking: [{ type: 'text', text: '.' }] }, { type: 'text', text: 'a' }] }),
      delta({ content: [{ type: 'reference', reference_ids: [1] }] }),
      delta({ content: 'b' }, 'stop'),
      step.done(),
    ],
    { text: 'ab', reasoning: 'hm.', finish: 'stop' },
  ],
  'a refusal': [[delta({ refusal: 'I can' }), delta({ refusal: 'not.' }), ...end('stop')], { text: 'I cannot.', finish: 'stop' }],
  'two whole calls in one delta, without ids and indexes': [
    [delta({ tool_calls: [call({ name: 'f', arguments: '{"x":1}' }), call({ name: 'f', arguments: '{"x":2}' })] }), ...end('tool_calls')],
    { tools: [whole('f', { x: 1 }), whole('f', { x: 2 })], finish: 'tool-calls' },
  ],
  'two calls whose pieces alternate': [
    [
      delta({ tool_calls: [{ index: 0, id: 'a', ...call({ name: 'f', arguments: '' }) }, { index: 1, id: 'b', ...call({ name: 'g', arguments: '' }) }] }),
      delta({ tool_calls: [{ index: 1, function: { arguments: '{"y":' } }, { index: 0, function: { arguments: '{"x":' } }] }),
      delta({ tool_calls: [{ index: 0, function: { arguments: '1}' } }, { index: 1, function: { arguments: '2}' } }] }),
      ...end('tool_calls'),
    ],
    { tools: [whole('f', { x: 1 }), whole('g', { y: 2 })], finish: 'tool-calls' },
  ],
  'a call with its arguments as an object, an empty call beside it, and "stop" at the end': [
    [delta({ tool_calls: [call({ name: 'f', arguments: { x: 1 } }), {}] }), ...end('stop')],
    { tools: [whole('f', { x: 1 })], finish: 'tool-calls' },
  ],
  'a call in the form before there were tools': [[delta({ function_call: { name: 'f', arguments: '{' } }), delta({ function_call: { arguments: '}' } }), ...end('function_call')], { tools: [whole('f', {})], finish: 'tool-calls' }],
  'a call whose arguments are cut': [
    [delta({ tool_calls: [{ index: 0, id: 'a', ...call({ name: 'f', arguments: '{"x":' }) }] }), ...end('length')],
    { tools: [{ name: 'f', input: '{"x":', state: 'output-error' }], finish: 'length' },
  ],
  'citations in every event': [
    [delta({ content: 'a' }, null, { citations: ['https://a.test/'], search_results: [{ url: 'https://a.test/', title: 'A' }] }), delta({ content: 'b' }, null, { citations: ['https://a.test/', 'https://b.test/'] }), ...end('stop')],
    { text: 'ab', sources: ['https://a.test/', 'https://b.test/'], finish: 'stop' },
  ],
  'annotations, and addresses that no browser should open': [
    [delta({ content: 'a', annotations: [{ type: 'url_citation', url_citation: { url: 'https://a.test/', title: 'A' } }, { type: 'url_citation', url_citation: { url: 'javascript:alert(1)' } }] }), ...end('stop')],
    { text: 'a', sources: ['https://a.test/'], finish: 'stop' },
  ],
  'usage alone at the end, filter results alone at the start': [
    [step.event({ choices: [], prompt_filter_results: [] }), delta({ content: 'a' }), delta({}, 'stop'), step.event({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 2 } }), step.done()],
    { text: 'a', finish: 'stop' },
  ],
  'an answer that was not streamed': [
    [step.status(200, { choices: [{ index: 0, message: { role: 'assistant', content: 'a', reasoning_content: 'hm' }, finish_reason: 'stop' }] })],
    { text: 'a', reasoning: 'hm', finish: 'stop' },
  ],
  'the whole behind its pieces, as a message': [
    [delta({ reasoning: 'hm' }), delta({ content: 'Hello ' }), delta({ content: 'world' }), step.event({ choices: [{ index: 0, message: { content: 'Hello world', reasoning: 'hm' }, finish_reason: 'stop' }] }), step.done()],
    { text: 'Hello world', reasoning: 'hm', finish: 'stop' },
  ],
  'the whole so far in each delta': [
    [delta({ content: 'Hello ' }), delta({ content: 'Hello wor' }), delta({ content: 'Hello world' }), ...end('stop')],
    { text: 'Hello world', finish: 'stop' },
  ],
  'the whole arguments behind their pieces': [
    [
      delta({ tool_calls: [{ index: 0, id: 'a', ...call({ name: 'f', arguments: '{"x":' }) }] }),
      delta({ tool_calls: [{ index: 0, function: { arguments: '1}' } }] }),
      delta({ tool_calls: [{ index: 0, id: 'a', ...call({ name: 'f', arguments: '{"x":1}' }) }] }, 'tool_calls'),
      step.done(),
    ],
    { tools: [whole('f', { x: 1 })], finish: 'tool-calls' },
  ],
  'a picture beside its words, and once more in a content part': [
    [delta({ content: 'Here.', images: [{ type: 'image_url', image_url: { url: PICTURE } }] }), delta({ content: [{ type: 'image_url', image_url: { url: PICTURE } }] }), ...end('stop')],
    { text: 'Here.', files: [PICTURE], finish: 'stop' },
  ],
  'unreadable words behind the finish reason': [[delta({ content: 'a' }, 'stop'), step.event('{"oops":')], { text: 'a', finish: 'stop' }],
  '[DONE] and no finish reason': [[delta({ content: 'a' }), step.done()], { text: 'a', finish: 'other' }],
  'calls, [DONE] and no finish reason': [[delta({ tool_calls: [call({ name: 'f', arguments: '{"x":1}' }, { index: 0, id: 'a' })] }), step.done()], { tools: [whole('f', { x: 1 })], finish: 'tool-calls' }],
  'a gateway’s comments in data lines': [[step.event(': PROCESSING'), step.event('ping'), delta({ content: 'a' }), step.event('ping'), ...end('stop')], { text: 'a', finish: 'stop' }],
  'a character cut between two deltas': [
    [step.raw('data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'), step.raw('data: {"choices":[{"delta":{"content":"\\ude00b"}}]}\n\n'), ...end('stop')],
    { text: 'a😀b', finish: 'stop' },
  ],
  'no [DONE]': [[delta({ content: 'a' }, 'stop'), step.end()], { text: 'a', finish: 'stop' }],
  'a connection that breaks after the finish reason': [[delta({ content: 'a' }, 'stop'), step.destroy()], { text: 'a', finish: 'stop' }],
}
const words = { STOP: 'stop', eos: 'stop', MAX_TOKENS: 'length', model_length: 'length', SAFETY: 'content-filter', 'content-filter': 'content-filter', error: 'error', unheard_of: 'other' }
describe('chat completions:', () => {
  for (const [name, [steps, expected]] of Object.entries(completions)) test(name, () => shows('openai', steps, expected))
  for (const [word, finish] of Object.entries(words)) test(`finish reason ${word}`, () => shows('openai', [delta({ content: 'a' }), ...end(word)], { text: 'a', finish }))
})

const event = (data) => step.named(data.type, data)
const block = (index, content_block, ...deltas) => [
  event({ type: 'content_block_start', index, content_block }),
  ...deltas.map((d) => event({ type: 'content_block_delta', index, delta: d })),
  event({ type: 'content_block_stop', index }),
]
const start = event({ type: 'message_start', message: { type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null, usage: {} } })
const stopped = (stop_reason) => [event({ type: 'message_delta', delta: { stop_reason }, usage: { output_tokens: 1 } }), event({ type: 'message_stop' })]
const said = (text) => block(9, { type: 'text', text: '' }, { type: 'text_delta', text })

const messages = {
  'thinking that is hidden, pings, and events and blocks of tomorrow': [
    [start, event({ type: 'ping' }), ...block(0, { type: 'redacted_thinking', data: 'x' }), event({ type: 'news' }), ...block(1, { type: 'hologram' }, { type: 'hologram_delta' }), ...said('a'), ...stopped('end_turn')],
    { text: 'a', finish: 'stop' },
  ],
  'several calls, one of them without arguments': [
    [start, ...block(0, { type: 'tool_use', id: 'a', name: 'f', input: {} }), ...block(1, { type: 'tool_use', id: 'b', name: 'g', input: {} }, { type: 'input_json_delta', partial_json: '{"x":' }, { type: 'input_json_delta', partial_json: '1}' }), ...stopped('tool_use')],
    { tools: [whole('f', {}), whole('g', { x: 1 })], finish: 'tool-calls' },
  ],
  'a call that was cut': [
    [start, ...block(0, { type: 'tool_use', id: 'a', name: 'f', input: {} }, { type: 'input_json_delta', partial_json: '{"x":' }), ...stopped('max_tokens')],
    { tools: [{ name: 'f', input: '{"x":', state: 'output-error' }], finish: 'length' },
  ],
  'a search that found pages, and one that failed': [
    [
      start,
      ...block(0, { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: {} }, { type: 'input_json_delta', partial_json: '{"query":"q"}' }),
      ...block(1, { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [{ type: 'web_search_result', url: 'https://a.test/', title: 'A', encrypted_content: 'x' }] }),
      ...block(2, { type: 'server_tool_use', id: 'srvtoolu_2', name: 'web_search', input: { query: 'r' } }),
      ...block(3, { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_2', content: { type: 'web_search_tool_result_error', error_code: 'max_uses_exceeded' } }),
      ...block(4, { type: 'text', text: '', citations: [] }, { type: 'citations_delta', citation: { type: 'web_search_result_location', url: 'https://a.test/', title: 'A' } }, { type: 'text_delta', text: 'a' }),
      ...stopped('end_turn'),
    ],
    { text: 'a', tools: [{ name: 'web_search', input: { query: 'q' }, state: 'output-available' }, { name: 'web_search', input: { query: 'r' }, state: 'output-error' }], sources: ['https://a.test/'], finish: 'stop' },
  ],
  'an answer that was not streamed': [[step.status(200, { type: 'message', role: 'assistant', content: [{ type: 'text', text: 'a' }], stop_reason: 'end_turn' })], { text: 'a', finish: 'stop' }],
  'no message_stop': [[start, ...said('a'), stopped('end_turn')[0], step.end()], { text: 'a', finish: 'stop' }],
  'a refusal after words': [[start, ...said('a'), ...stopped('refusal')], { text: 'a', finish: 'content-filter' }],
}
describe('messages:', () => {
  for (const [name, [steps, expected]] of Object.entries(messages)) test(name, () => shows('anthropic', steps, expected))
})

test('addresses, keys and headers are those that the deployment named', async () => {
  const expected = {
    azure: ['/v1/deployments/d/chat/completions', { 'api-key': 'sk-key', authorization: undefined }],
    gateway: ['/v1/messages', { authorization: 'Bearer sk-key', 'x-api-key': undefined, 'anthropic-beta': 'a-1,b-2', 'x-title': 't' }],
    keyless: ['/v1/chat/completions', { authorization: undefined, 'api-key': undefined }],
  }
  for (const [agent, [path, headers]] of Object.entries(expected)) {
    model.enqueue(agent === 'gateway' ? blockScript([{ type: 'text', text: 'a' }]) : textScript(['a']))
    await assertChatBody(await session(server).ask(agent, { agent }))
    const request = model.requests.at(-1)
    assert.equal(request.path, path)
    for (const [name, value] of Object.entries(headers)) assert.equal(request.headers[name], value, `${agent}: ${name}`)
  }
})
