// Turns of the Messages API that need more than one answer: a call of the API's own tools whose result has to wait, and a turn that the API pauses.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answerCall, callingChat, callsOf, plain, saidLast } from './harness/calls.mjs'
import { VERSIONS, foldAll, makeChat, textOf, validateMessages } from './harness/clients.mjs'
import { gate, step } from './harness/fake-model.mjs'
import { anthropicAgent } from './harness/server.mjs'
import { call } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const TOOLS = [{ name: 'roll' }, { type: 'web_search_20250305', name: 'web_search' }, { type: 'code_execution_20250825', name: 'code_execution' }]
const set = stage({ agents: (model) => anthropicAgent(model, { tools: TOOLS }), vars: { LEASE_MS: 5000 } })

const sse = (event) => step.named(event.type, event)
const block = (index, content_block) => [sse({ type: 'content_block_start', index, content_block }), sse({ type: 'content_block_stop', index })]
const begin = (id) => sse({ type: 'message_start', message: { id, type: 'message', role: 'assistant', model: 'fake', content: [], stop_reason: null } })
const end = (stop_reason, more = {}) => [sse({ type: 'message_delta', delta: { stop_reason, ...more }, usage: { output_tokens: 3 } }), sse({ type: 'message_stop' })]
const answer = (id, blocks, stop, more) => [begin(id), ...blocks.flatMap((b, index) => (b.then ? [step.waitFor(b)] : block(index, b))), ...end(stop, more)]

const BY_CODE = { type: 'code_execution_20250825', tool_id: 'srv1' }
const CODE = { type: 'server_tool_use', id: 'srv1', name: 'code_execution', input: { code: 'roll()' }, caller: { type: 'direct' } }
const ROLL = { type: 'tool_use', id: 'roll1', name: 'roll', input: { sides: 6 }, caller: BY_CODE }
const RAN = { type: 'code_execution_tool_result', tool_use_id: 'srv1', content: { type: 'code_execution_result', stdout: '4', stderr: '', return_code: 0 } }
const SAYS = { type: 'text', text: 'A four.' }
const CONTAINER = { container: { id: 'container_1', expires_at: '2099-01-01T00:00:00Z' } }
const requestsOf = (text) => set.model.requests.filter((request) => JSON.stringify(request.body.messages).includes(`"${text}"`))

for (const version of VERSIONS) {
  test(`ai ${version}: code waits for the client's tool, and its result reaches the call that it belongs to`, async () => {
    const s = set.session()
    const text = `roll for ${version}`
    set.model.enqueue(answer('m1', [CODE, ROLL], 'tool_use', CONTAINER))
    set.model.enqueue(answer('m2', [RAN, SAYS], 'end_turn'))
    const chat = await callingChat(version, s, set.server.origin, { auto: 'calls' })
    await within(chat.sendMessage({ text }))
    const waiting = callsOf(chat.lastMessage)
    assert.deepEqual(waiting.map((part) => [part.toolCallId, part.state, part.providerExecuted ?? false]), [['srv1', 'input-available', true], ['roll1', 'input-available', false]])
    await answerCall(chat, 'roll1', 'roll', { rolled: 4 })
    // `lastAssistantMessageIsCompleteWithToolCalls` of some versions waits for the API's call, too: the page then sends by itself.
    if (chat.status === 'ready' && textOf(chat.lastMessage) === '') await within(chat.sendMessage())
    await saidLast(chat, 'A four.')
    const { body: { messages } } = await s.snapshot()
    // `CLIENT_FLOOR`: the oldest version knows no metadata of results.
    const shown = (parts) => plain(parts).map(({ resultProviderMetadata, ...part }) => part)
    assert.deepEqual(shown(chat.lastMessage.parts), shown(messages.at(-1).parts))
    await validateMessages(version, messages)
    const ran = callsOf(messages.at(-1)).find((part) => part.toolCallId === 'srv1')
    assert.deepEqual([ran.state, ran.output.stdout], ['output-available', '4'])
    const [first, second] = requestsOf(text).map((request) => request.body)
    assert.equal(first.container, undefined)
    assert.equal(second.container, 'container_1')
    assert.deepEqual(second.messages.slice(1), [
      { role: 'assistant', content: [CODE, ROLL] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'roll1', content: '{"rolled":4}' }] },
    ])
    set.model.enqueue(answer('m3', [{ type: 'text', text: 'Bye.' }], 'end_turn'))
    await within(chat.sendMessage({ text: `then ${version}` }))
    const third = requestsOf(text).at(-1).body
    assert.deepEqual(third.messages.slice(1, 4), [...second.messages.slice(1), { role: 'assistant', content: [RAN, SAYS] }])
    assert.equal(third.container, undefined)
  })
}

/** The first `count` requests that hold this text, once they have arrived. */
async function requests(text, count) {
  while (requestsOf(text).length < count) await set.model.nextRequest()
  return requestsOf(text)
}

const SEARCH = { type: 'server_tool_use', id: 'srv2', name: 'web_search', input: { query: 'q' } }
const FOUND = { type: 'web_search_tool_result', tool_use_id: 'srv2', content: [] }

test('a turn that the API pauses goes on in the same run, and every client sees one reply', async () => {
  const s = set.session()
  const held = gate()
  set.model.enqueue(answer('p1', [{ type: 'text', text: 'Searching. ' }, SEARCH], 'pause_turn'))
  set.model.enqueue(answer('p2', [FOUND, held, { type: 'text', text: 'Found.' }], 'end_turn'))
  const sent = await s.send('look it up')
  const [first, second] = await requests('look it up', 2)
  assert.equal(first.body.messages.length, 1)
  assert.deepEqual(second.body.messages.at(-1), { role: 'assistant', content: [{ type: 'text', text: 'Searching. ' }, SEARCH] })
  const tab = await makeChat('7-latest', { id: s.id, origin: set.server.origin, messages: (await s.snapshot('?seed=1')).body.messages })
  const resumed = tab.resumeStream()
  await tab.answered()
  held.open()
  const got = await sent.collect()
  await within(resumed)
  assert.equal(textOf(tab.lastMessage), 'Searching. Found.')
  const kinds = chunksOf(got.frames).map((chunk) => chunk.type)
  assert.equal(kinds.filter((kind) => kind === 'finish').length, 1)
  const { body } = await s.snapshot()
  assert.deepEqual([body.messages.length, body.status], [2, 'ended'])
  assert.deepEqual(callsOf(body.messages.at(-1)).map((part) => part.state), ['output-available'])
  for (const version of VERSIONS) {
    const { text, status } = await foldAll(version, got.raw, body.messages.slice(0, 1))
    assert.deepEqual([text, status], ['Searching. Found.', 'ready'], version)
    await validateMessages(version, body.messages)
  }
})

test('a stop between two answers of one turn ends it, and the next turn is sent without the open call', async () => {
  const s = set.session()
  const held = gate()
  set.model.enqueue(answer('p1', [{ type: 'text', text: 'Searching. ' }, SEARCH], 'pause_turn'))
  set.model.enqueue([step.waitFor(held), ...answer('p2', [FOUND, SAYS], 'end_turn')])
  const sent = await s.send('look again')
  await requests('look again', 2)
  assert.equal((await call(`${s.chat}/stop`, { json: {} })).body.stopped, true)
  held.open()
  await sent.collect()
  set.model.enqueue(answer('p3', [{ type: 'text', text: 'Hello.' }], 'end_turn'))
  const got = await s.ask('hello')
  assert.equal(chunksOf(got.frames).at(-1).type, 'finish')
  const [{ body }] = await requests('hello', 1)
  const blocks = body.messages.flatMap((message) => message.content)
  const answered = new Set(blocks.map((b) => b.tool_use_id))
  for (const asked of blocks.filter((b) => b.type === 'server_tool_use')) assert.ok(answered.has(asked.id), JSON.stringify(blocks))
})
