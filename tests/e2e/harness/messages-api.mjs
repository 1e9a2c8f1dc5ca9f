// Streams of the Messages API: scripts for the fake model, and a reader that knows nothing of the product.
import { step } from './model-steps.mjs'

/** One event as the API writes it: its type is also the name of the server-sent event. */
const sse = (event) => step.named(event.type, event)

/** A script that replays recorded events (one JSON text a line); `gates`: `{index: gate}`, held before that event. */
export const replayMessages = (lines, { gates = {} } = {}) =>
  lines.flatMap((line, index) => [...(gates[index] ? [step.waitFor(gates[index])] : []), sse(JSON.parse(line))])

const PIECE = { text: 'text_delta', thinking: 'thinking_delta' }

/**
 * A script of whole content blocks, each streamed in two pieces. Blocks: `{type: 'text', text}`, `{type: 'thinking', thinking, signature}`,
 * `{type: 'tool_use', id, name, input}`; a gate or a step between them stays where it is. `stop`: the stop reason; null: the stream breaks off before it.
 */
export function blockScript(blocks, { stop = 'end_turn', usage = { output_tokens: 7 } } = {}) {
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'fake', content: [], stop_reason: null, usage: { input_tokens: 11, output_tokens: 1 } }
  const steps = [sse({ type: 'message_start', message })]
  let index = 0
  for (const block of blocks) {
    if (typeof block.then === 'function') steps.push(step.waitFor(block))
    else if (block.step) steps.push(block)
    else steps.push(...streamed(block, index++))
  }
  if (stop !== null) steps.push(sse({ type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage }), sse({ type: 'message_stop' }))
  return steps
}

function streamed(block, index) {
  const event = (delta) => sse({ type: 'content_block_delta', index, delta })
  const halves = (text) => [text.slice(0, text.length >> 1), text.slice(text.length >> 1)]
  if (block.type === 'tool_use') {
    const pieces = halves(JSON.stringify(block.input)).map((partial_json) => event({ type: 'input_json_delta', partial_json }))
    return [sse({ type: 'content_block_start', index, content_block: { ...block, input: {} } }), ...pieces, sse({ type: 'content_block_stop', index })]
  }
  const pieces = halves(block[block.type]).map((text) => event({ type: PIECE[block.type], [block.type]: text }))
  if (block.signature) pieces.push(event({ type: 'signature_delta', signature: block.signature }))
  return [sse({ type: 'content_block_start', index, content_block: { type: block.type, [block.type]: '' } }), ...pieces, sse({ type: 'content_block_stop', index })]
}

/** An error event in mid-stream. */
export const errorEvent = (type, message) => step.named('error', { type: 'error', error: { type, message } })

const FINISH = { end_turn: 'stop', stop_sequence: 'stop', pause_turn: 'stop', max_tokens: 'length', tool_use: 'tool-calls', refusal: 'content-filter' }

/** Text, reasoning, tool calls (name, input, and whether the API ran it), sources and finish reason that a list of recorded events adds up to. */
export function messageOf(lines) {
  const blocks = []
  const said = { sources: [], finish: null, usage: {} }
  for (const event of lines.map((line) => JSON.parse(line))) {
    const { type, index, content_block: block, delta } = event
    if (type === 'message_start') said.usage = { ...event.message.usage }
    if (type === 'content_block_start') blocks[index] = { ...structuredClone(block), json: '' }
    if (type === 'content_block_delta') {
      const open = blocks[index]
      for (const key of ['text', 'thinking']) if (key in delta) open[key] += delta[key]
      open.json += delta.partial_json ?? ''
      if (delta.signature) open.signature = (open.signature ?? '') + delta.signature
      if (delta.citation) said.sources.push(delta.citation.url)
    }
    if (type === 'content_block_start' && block.type === 'web_search_tool_result') said.sources.push(...block.content.map((c) => c.url))
    if (type === 'message_delta') {
      said.finish = FINISH[delta.stop_reason]
      Object.assign(said.usage, event.usage)
    }
  }
  const all = (kind) => blocks.filter((b) => b.type === kind)
  const calls = blocks.filter((b) => b.type === 'tool_use' || b.type === 'server_tool_use')
  return {
    ...said,
    text: all('text').map((b) => b.text).join(''),
    reasoning: all('thinking').map((b) => b.thinking).join(''),
    signatures: all('thinking').map((b) => b.signature),
    tools: calls.map((b) => ({ name: b.name, input: b.json ? JSON.parse(b.json) : b.input, byApi: b.type !== 'tool_use' })),
    sources: [...new Set(said.sources.filter(Boolean))],
  }
}
