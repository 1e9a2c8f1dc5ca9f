// Request bodies held against what the vendors document, by checkers that know nothing of the product. They throw what they object to.
import assert from 'node:assert/strict'

const ID = /^[A-Za-z0-9_-]+$/
const NAME = /^[A-Za-z0-9_-]{1,64}$/
const DATA_IMAGE = /^data:image\/[a-z+.-]+;base64,[A-Za-z0-9+/]+={0,2}$/
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)

/** Every key is allowed, every needed one is there. */
function keys(value, needed, allowed = []) {
  assert.ok(isObject(value), `an object: ${JSON.stringify(value)}`)
  for (const key of needed) assert.ok(key in value, `${key} is missing in ${JSON.stringify(value).slice(0, 300)}`)
  for (const key of Object.keys(value)) assert.ok([...needed, ...allowed].includes(key), `${key} is not known in ${JSON.stringify(value).slice(0, 300)}`)
}
const filled = (text, what) => assert.ok(typeof text === 'string' && text.trim() !== '', `${what} is a text that is not blank: ${JSON.stringify(text)}`)
const number = (value, least, most, what) => assert.ok(value === undefined || (typeof value === 'number' && value >= least && value <= most), what)

/** Chat completions; `reasoning`: whether the server takes `reasoning_content` of earlier turns (DeepSeek does, OpenAI does not). */
export function checkCompletionRequest({ headers, body }, { reasoning = false } = {}) {
  assert.match(headers['content-type'], /^application\/json/)
  assert.match(headers.authorization ?? '', /^Bearer \S+$/)
  keys(body, ['model', 'messages', 'stream'], ['stream_options', 'temperature', 'top_p', 'max_tokens', 'stop', 'seed', 'presence_penalty', 'frequency_penalty', 'reasoning_effort', 'tools', 'tool_choice', 'parallel_tool_calls'])
  assert.equal(body.stream, true)
  if (body.stream_options) keys(body.stream_options, ['include_usage'])
  number(body.temperature, 0, 2, 'temperature')
  number(body.top_p, 0, 1, 'top_p')
  assert.ok(body.tools || !('tool_choice' in body || 'parallel_tool_calls' in body), 'tool_choice needs tools')
  assert.ok(body.tools === undefined || body.tools.length > 0, 'tools is empty')
  for (const tool of body.tools ?? []) {
    keys(tool, ['type', 'function'])
    keys(tool.function, ['name'], ['description', 'parameters', 'strict'])
    assert.match(tool.function.name, NAME)
  }
  assert.ok(body.messages.length > 0)
  const awaited = []
  let before = 'nothing'
  for (const message of body.messages) {
    if (message.role !== 'tool') assert.deepEqual(awaited, [], 'every call is answered before the next message')
    assert.ok(FOLLOWS[message.role].includes(before), `${message.role} behind ${before}`)
    before = message.role
    COMPLETION_ROLES[message.role](message, awaited, reasoning)
  }
  assert.deepEqual(awaited, [], 'every call is answered')
  assert.ok(['user', 'tool'].includes(before), 'the assistant has not the last word')
}

/** What may stand before a message of each role, for the strictest servers (Mistral, Perplexity, chat templates). */
const FOLLOWS = { system: ['nothing'], user: ['nothing', 'system', 'assistant'], assistant: ['user', 'tool'], tool: ['assistant', 'tool'] }

const COMPLETION_ROLES = {
  system: (message) => {
    keys(message, ['role', 'content'])
    filled(message.content, 'a system prompt')
  },
  user: (message) => {
    keys(message, ['role', 'content'])
    if (typeof message.content === 'string') return filled(message.content, 'content')
    assert.ok(message.content.length > 0)
    message.content.forEach(completionPart)
  },
  assistant: (message, awaited, reasoning) => {
    keys(message, ['role', 'content'], ['tool_calls', ...(reasoning ? ['reasoning_content'] : [])])
    if (message.tool_calls === undefined) filled(message.content, 'what the assistant said')
    else assert.ok(message.content === null || typeof message.content === 'string')
    assert.ok(message.tool_calls === undefined || message.tool_calls.length > 0, 'tool_calls is empty')
    for (const call of message.tool_calls ?? []) {
      keys(call, ['id', 'type', 'function'])
      keys(call.function, ['name', 'arguments'])
      assert.equal(call.type, 'function')
      assert.match(call.function.name, NAME)
      assert.ok(isObject(JSON.parse(call.function.arguments)), 'arguments are an object, as text')
      assert.ok(call.id.length > 0 && call.id.length <= 40 && !awaited.includes(call.id), `id ${call.id}`)
      awaited.push(call.id)
    }
  },
  tool: (message, awaited) => {
    keys(message, ['role', 'tool_call_id', 'content'])
    assert.equal(typeof message.content, 'string')
    const at = awaited.indexOf(message.tool_call_id)
    assert.ok(at >= 0, `${message.tool_call_id} answers a call of the assistant's message before it`)
    awaited.splice(at, 1)
  },
}

function completionPart(part) {
  if (part.type === 'text') {
    keys(part, ['type', 'text'])
    return filled(part.text, 'a text part')
  }
  if (part.type === 'image_url') {
    keys(part, ['type', 'image_url'])
    keys(part.image_url, ['url'], ['detail'])
    return assert.ok(/^https:\/\//.test(part.image_url.url) || DATA_IMAGE.test(part.image_url.url), part.image_url.url)
  }
  if (part.type === 'input_audio') {
    keys(part.input_audio, ['data', 'format'])
    return assert.match(part.input_audio.format, /^(wav|mp3)$/)
  }
  assert.equal(part.type, 'file')
  keys(part.file, ['filename', 'file_data'])
  assert.match(part.file.file_data, /^data:application\/pdf;base64,/)
}

/** Anthropic's Messages API. */
export function checkMessagesRequest({ headers, body }) {
  assert.match(headers['content-type'], /^application\/json/)
  assert.match(headers['anthropic-version'] ?? '', /^\d{4}-\d\d-\d\d$/)
  filled(headers['x-api-key'], 'x-api-key')
  keys(body, ['model', 'max_tokens', 'messages'], ['stream', 'system', 'temperature', 'top_p', 'top_k', 'stop_sequences', 'tools', 'tool_choice', 'thinking', 'service_tier'])
  assert.equal(body.stream, true)
  if ('system' in body) filled(body.system, 'system')
  number(body.temperature, 0, 1, 'temperature')
  assert.ok(Number.isInteger(body.max_tokens) && body.max_tokens > 0)
  assert.ok(body.tools || !('tool_choice' in body), 'tool_choice needs tools')
  for (const tool of body.tools ?? []) {
    if ('type' in tool) continue
    keys(tool, ['name', 'input_schema'], ['description', 'strict'])
    assert.match(tool.name, NAME)
    assert.equal(tool.input_schema.type, 'object')
  }
  const thinks = body.thinking?.type === 'enabled'
  if (thinks) {
    keys(body.thinking, ['type', 'budget_tokens'], ['display'])
    assert.ok(body.thinking.budget_tokens >= 1024 && body.thinking.budget_tokens < body.max_tokens)
    assert.ok(body.temperature === undefined || body.temperature === 1, 'thinking goes with no temperature')
  }
  const ids = new Set()
  let awaited = []
  assert.equal(body.messages.at(-1).role, 'user', 'the last message is the user’s')
  body.messages.forEach((message, place) => {
    keys(message, ['role', 'content'])
    assert.equal(message.role, place % 2 ? 'assistant' : 'user', 'roles alternate')
    assert.ok(Array.isArray(message.content) ? message.content.length > 0 : message.content.trim(), 'content is not empty')
    const content = Array.isArray(message.content) ? message.content : [{ type: 'text', text: message.content }]
    const results = content.filter((b) => b.type === 'tool_result')
    assert.ok(content.slice(0, results.length).every((b) => b.type === 'tool_result'), 'results stand first')
    assert.deepEqual(results.map((b) => b.tool_use_id).sort(), awaited.sort(), 'results answer the calls of the message before')
    awaited = []
    for (const [nth, block] of content.entries()) MESSAGE_BLOCKS[block.type](block, { role: message.role, ids, awaited, content, nth })
    if (message.role === 'assistant') assert.doesNotMatch(content.at(-1).type, /thinking/, 'no message ends with thinking')
    if (thinks && awaited.length && place === body.messages.length - 2) assert.match(content[0].type, /thinking/, 'a turn that goes on began with thinking')
  })
}

function source(block, types) {
  const { source } = block
  assert.ok(types.includes(source.type), `${block.type} from ${source.type}`)
  if (source.type === 'url') {
    keys(source, ['type', 'url'])
    return assert.match(source.url, /^https:\/\//)
  }
  keys(source, ['type', 'media_type', 'data'])
  if (source.type === 'text') return assert.equal(source.media_type, 'text/plain')
  assert.match(source.media_type, block.type === 'image' ? /^image\/(jpeg|png|gif|webp)$/ : /^application\/pdf$/)
  assert.ok(/^[A-Za-z0-9+/]+={0,2}$/.test(source.data) && source.data.length % 4 === 0, 'base64 without its prefix')
}

const only = (role, check) => (block, context) => {
  assert.equal(context.role, role, `${block.type} is the ${role}'s`)
  check(block, context)
}
const MESSAGE_BLOCKS = {
  text: (block) => {
    keys(block, ['type', 'text'])
    filled(block.text, 'a text block')
  },
  image: only('user', (block) => {
    keys(block, ['type', 'source'])
    source(block, ['base64', 'url'])
  }),
  document: only('user', (block) => {
    keys(block, ['type', 'source'], ['title'])
    source(block, ['base64', 'url', 'text'])
  }),
  tool_result: only('user', (block) => {
    keys(block, ['type', 'tool_use_id'], ['content', 'is_error'])
    if ('content' in block) filled(block.content, 'a result')
  }),
  tool_use: only('assistant', (block, { ids, awaited }) => {
    keys(block, ['type', 'id', 'name', 'input'])
    assert.match(block.id, ID)
    assert.match(block.name, NAME)
    assert.ok(isObject(block.input) && !ids.has(block.id))
    ids.add(block.id)
    awaited.push(block.id)
  }),
  thinking: only('assistant', (block) => {
    keys(block, ['type', 'thinking', 'signature'])
    filled(block.signature, 'a signature')
  }),
  server_tool_use: only('assistant', (block, { content, nth }) => {
    keys(block, ['type', 'id', 'name', 'input'])
    assert.match(block.id, /^srvtoolu_[A-Za-z0-9_]+$/)
    assert.ok(content.slice(nth + 1).some((b) => b.tool_use_id === block.id), 'its result follows')
  }),
  web_search_tool_result: only('assistant', (block) => {
    keys(block, ['type', 'tool_use_id', 'content'])
    for (const page of block.content) keys(page, ['type', 'url', 'title', 'encrypted_content'], ['page_age'])
  }),
}
