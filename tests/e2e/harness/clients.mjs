// The published AI SDK clients: `useChat`'s engine of five versions, without React.
import { LONG, within } from './wait.mjs'

export const VERSIONS = ['6.0.0', '6.0.230', '6.0.281', '6-latest', '7-latest']

/** Versions whose resume starts from an empty message, so that a full replay over a seeded partial replaces it. */
export const REPLACES_ON_REPLAY = ['6.0.281', '6-latest', '7-latest']

export const load = (version) => import(`ai-${version}`)

/** What `@ai-sdk/react` keeps for `AbstractChat`, with the same copying, and a waker instead of subscriptions. */
class ChatState {
  #messages
  #status = 'ready'
  #wake = Promise.withResolvers()
  error = undefined

  constructor(messages) {
    this.#messages = messages
  }

  get messages() {
    return this.#messages
  }
  set messages(messages) {
    this.#messages = [...messages]
    this.#notify()
  }
  get status() {
    return this.#status
  }
  set status(status) {
    this.#status = status
    this.#notify()
  }

  pushMessage = (message) => (this.messages = this.#messages.concat(message))
  popMessage = () => (this.messages = this.#messages.slice(0, -1))
  replaceMessage = (index, message) => (this.messages = this.#messages.with(index, this.snapshot(message)))
  snapshot = (value) => structuredClone(value)

  #notify() {
    this.#wake.resolve()
    this.#wake = Promise.withResolvers()
  }
  touch = () => this.#notify()
  changed = () => this.#wake.promise
}

/**
 * A chat of that version with a stock `DefaultChatTransport`: `sendMessage`, `resumeStream`, `stop`, `messages`, `status`, `error` as `useChat`
 * gives them. `transport` holds options of the transport (`headers`, `fetch`, `prepareReconnectToStreamRequest` …).
 * Beside them: `seen` (`answers`: statuses as their headers arrive; `data` parts, `toolCalls`, `finishes`, `errors`) and `until(test)`, which looks
 * again at every change of state and every answer; `answered()` waits for the first answer's headers.
 */
export async function makeChat(version, { id, origin = '', api = `${origin}/api/chat`, messages = [], transport = {}, ...callbacks } = {}) {
  const { AbstractChat, DefaultChatTransport } = await load(version)
  const state = new ChatState(structuredClone(messages))
  const seen = { answers: [], data: [], toolCalls: [], finishes: [], errors: [] }
  const { fetch = globalThis.fetch, ...options } = transport
  const watched = async (...request) => {
    const response = await fetch(...request)
    seen.answers.push(response.status)
    state.touch()
    return response
  }
  const chat = new AbstractChat({
    id,
    state,
    transport: new DefaultChatTransport({ api, ...options, fetch: watched }),
    onData: (part) => void seen.data.push(part),
    onToolCall: ({ toolCall }) => void seen.toolCalls.push(toolCall),
    onFinish: (finish) => void seen.finishes.push(finish),
    onError: (error) => void seen.errors.push(error),
    ...callbacks,
  })
  const until = async (test, ms = LONG, what = 'the awaited state of the chat') => {
    const reached = (async () => {
      while (!test(chat)) await state.changed()
    })()
    await within(reached, ms, what)
    return chat
  }
  return Object.assign(chat, { seen, until, answered: () => until(() => seen.answers.length > 0, LONG, 'an answer') })
}

/**
 * Folds a response through that version's own client. `input`: bytes, or a list of parsed frames or bare chunks.
 * `as`: 'resume' (default; the answer to a GET over the seed) or 'send' (a POST of a new user message).
 * `broken`: the body breaks after the input instead of ending.
 * Answers `{messages, reply, text, status, error, data, transient, toolCalls, finishes}`.
 */
export async function foldAll(version, input, seed = [], { as = 'resume', broken = false, id = 'folded' } = {}) {
  const bytes = toBytes(input)
  const fetch = async () => new Response(body(bytes, broken), { headers: { 'content-type': 'text/event-stream' } })
  const chat = await makeChat(version, { id, messages: seed, origin: 'http://folded.invalid', transport: { fetch } })
  await within(as === 'send' ? chat.sendMessage({ text: 'folded' }) : chat.resumeStream(), LONG, 'the end of the fold')
  return report(chat)
}

/** The same report about a chat that a test drove itself. */
export function report(chat) {
  const reply = chat.messages.findLast((m) => m.role === 'assistant')
  const kept = new Set(chat.messages.flatMap((m) => m.parts).filter((p) => p.type.startsWith('data-')).map((p) => JSON.stringify(p.data)))
  return {
    messages: chat.messages,
    reply,
    text: textOf(reply),
    status: chat.status,
    error: chat.error,
    ...chat.seen,
    transient: chat.seen.data.filter((p) => p.transient || !kept.has(JSON.stringify(p.data))),
  }
}

export const textOf = (message) => joined(message, 'text')
export const reasoningOf = (message) => joined(message, 'reasoning')
const joined = (message, type) => (message?.parts ?? []).filter((p) => p.type === type).map((p) => p.text).join('')

/** Resolves when that version accepts the messages; rejects with its own error. */
export async function validateMessages(version, messages) {
  const { validateUIMessages } = await load(version)
  return validateUIMessages({ messages })
}

/** The bytes of a list of parsed frames or bare chunks (a string or bytes: as they are). */
export function toBytes(input) {
  if (input instanceof Uint8Array) return input
  if (typeof input === 'string') return Buffer.from(input)
  return Buffer.from(input.map(frameText).join(''))
}

function frameText(item) {
  if (item.comment !== undefined) return `: ${item.comment}\n\n`
  const isFrame = ['data', 'id', 'event'].some((k) => typeof item[k] === 'string') && item.type === undefined
  if (!isFrame) return `data: ${JSON.stringify(item)}\n\n`
  const fields = ['event', 'id'].filter((k) => item[k] !== undefined).map((k) => `${k}: ${item[k]}\n`)
  const data = item.data === undefined ? [] : item.data.split('\n').map((line) => `data: ${line}\n`)
  return `${[...fields, ...data].join('')}\n`
}

function body(bytes, broken) {
  let sent = false
  return new ReadableStream({
    pull(controller) {
      if (!sent && bytes.length) {
        sent = true
        controller.enqueue(new Uint8Array(bytes))
      } else if (broken) controller.error(new TypeError('network error'))
      else controller.close()
    },
  })
}
