// The steps a fake model's script is made of, the two script makers, and the player.

const tag = (kind, value = {}) => ({ step: kind, ...value })

export const step = {
  /** One event: an object is written as JSON, a string as it is. */
  event: (data) => tag('event', { data }),
  /** An event of an SSE type, e.g. `named('error', {...})`. */
  named: (event, data) => tag('event', { event, data }),
  /** An error object in mid-stream, as chat-completions APIs send it. */
  error: (message = 'the model broke', code = 'server_error') => tag('event', { data: { error: { message, code, type: code } } }),
  invalidJson: (text = '{"choices":[{"delta":{"content":"oops"') => tag('event', { data: text }),
  comment: (text = 'keep-alive') => tag('raw', { bytes: `: ${text}\n\n` }),
  raw: (bytes) => tag('raw', { bytes }),
  /** Holds the script until the test opens the gate (or the caller goes away). */
  waitFor: (gate) => tag('wait', { gate }),
  /** Holds the response open and says nothing more. */
  silence: () => tag('silence'),
  done: () => tag('event', { data: '[DONE]' }),
  /** Ends the body properly, here and now. */
  end: () => tag('end'),
  /** Breaks the body: closes the socket in mid-stream. */
  destroy: () => tag('destroy'),
  /** Breaks the body with a TCP reset. */
  reset: () => tag('reset'),
  /** Answers with this status instead of a stream; must be the first step. */
  status: (status, body = { error: { message: `status ${status}` } }, headers = {}) => tag('status', { status, body, headers }),
  /** How what follows is written: `crlf`, `bytes` per write (1 = byte by byte), `paceMs` between events. */
  mode: (mode) => tag('mode', { mode }),
}

const isGate = (value) => typeof value?.then === 'function'
const isStep = (value) => typeof value?.step === 'string'

const completion = (delta, finish_reason = null) => ({
  id: 'chatcmpl-fake',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'fake',
  choices: [{ index: 0, delta, finish_reason }],
})

/**
 * A script that streams these deltas. Items of `deltas` may be text, a gate to wait for, or a step.
 * `reasoning`: deltas (or one text) before the text; `tool`: `{id, name, arguments}` or a list of them, its arguments text streamed in
 * two pieces (or in the given list of pieces); `usage`: the usage object of a last chunk; `finish`: the finish reason; null: none, and no `[DONE]`.
 * The answer (a list of steps) carries what a client must end up with: `text`, `reasoning`, `tools`, `usage`, `finish`.
 */
export function textScript(deltas, { reasoning = [], tool, usage, finish } = {}) {
  const thoughts = [reasoning].flat()
  const tools = tool ? [tool].flat() : []
  const reason = finish === undefined ? (tools.length ? 'tool_calls' : 'stop') : finish
  const items = (list, delta) =>
    list.map((item) => (isGate(item) ? step.waitFor(item) : isStep(item) ? item : step.event(completion(delta(item)))))
  const steps = [
    step.event(completion({ role: 'assistant', content: '' })),
    ...items(thoughts, (reasoning_content) => ({ reasoning_content })),
    ...items(deltas, (content) => ({ content })),
    ...tools.flatMap((call, index) => toolCall(call, index)),
  ]
  if (reason !== null) {
    steps.push(step.event(completion({}, reason)))
    if (usage) steps.push(step.event({ ...completion({}), choices: [], usage }))
    steps.push(step.done())
  }
  const join = (list) => list.filter((i) => typeof i === 'string').join('')
  return Object.assign(steps, { text: join(deltas), reasoning: join(thoughts), tools, usage, finish: reason })
}

function toolCall({ id, name, arguments: args }, index) {
  const pieces = Array.isArray(args) ? args : [args.slice(0, args.length >> 1), args.slice(args.length >> 1)]
  const first = { tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }
  return [
    step.event(completion(first)),
    ...pieces.map((piece) =>
      isGate(piece) ? step.waitFor(piece) : step.event(completion({ tool_calls: [{ index, function: { arguments: piece } }] })),
    ),
  ]
}

/**
 * A script that replays recorded events (one JSON text a line). `gates`: `{index: gate}`, held before that event;
 * `cutAfter`: leave out the rest and close the socket.
 */
export function replayScript(lines, { gates = {}, cutAfter } = {}) {
  const steps = lines.flatMap((line, index) => [
    ...(gates[index] ? [step.waitFor(gates[index])] : []),
    step.event(line),
    ...(index + 1 === cutAfter ? [step.destroy()] : []),
  ])
  return [...steps, step.done()]
}

/** Plays the steps into the response; stops when the caller goes away. */
export async function play(steps, res, request) {
  let mode = { crlf: false, bytes: 0, paceMs: 0 }
  const gone = new Promise((resolve) => res.once('close', resolve))
  const open = () => !res.destroyed && !request.gone

  async function write(text) {
    begin()
    const bytes = Buffer.from(mode.crlf && typeof text === 'string' ? text.replace(/\n/g, '\r\n') : text)
    const size = mode.bytes || bytes.length
    for (let at = 0; at < bytes.length && open(); at += size) {
      const flushed = new Promise((resolve) => res.write(bytes.subarray(at, at + size), resolve))
      await Promise.race([flushed, gone])
    }
  }

  function begin() {
    if (res.headersSent) return
    res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
    res.flushHeaders()
    res.socket?.setNoDelay(true)
  }

  for (const item of steps) {
    if (!open()) return
    switch (item.step) {
      case 'event': {
        if (mode.paceMs) await Promise.race([new Promise((r) => setTimeout(r, mode.paceMs)), gone])
        const data = typeof item.data === 'string' ? item.data : JSON.stringify(item.data)
        await write(`${item.event ? `event: ${item.event}\n` : ''}data: ${data}\n\n`)
        break
      }
      case 'raw':
        await write(item.bytes)
        break
      case 'wait':
        begin()
        await Promise.race([item.gate, gone])
        break
      case 'silence':
        begin()
        await gone
        return
      case 'mode':
        mode = { ...mode, ...item.mode }
        break
      case 'status': {
        const text = typeof item.body === 'string' ? item.body : JSON.stringify(item.body)
        res.writeHead(item.status, { 'content-type': 'application/json', ...item.headers })
        res.end(text)
        return
      }
      case 'end':
        begin()
        res.end()
        return
      case 'destroy':
        request.cut = true
        begin()
        res.socket?.destroy()
        return
      case 'reset':
        request.cut = true
        begin()
        res.socket?.resetAndDestroy()
        return
      default:
        throw new Error(`not a step: ${JSON.stringify(item)}`)
    }
  }
  begin()
  res.end()
}
