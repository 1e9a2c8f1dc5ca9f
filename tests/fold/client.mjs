// What a published client makes of chunks: its chat, as `useChat` drives it, over a transport that hands the chunks in.
import { load } from '../e2e/harness/clients.mjs'

/** One state whose messages stay the client's own objects, so that they show changes for which it asks no redraw. */
class State {
  messages = []
  status = 'ready'
  error = undefined
  pushMessage = (message) => void this.messages.push(message)
  popMessage = () => void this.messages.pop()
  replaceMessage = (index, message) => void (this.messages[index] = message)
  snapshot = (value) => value
}

/** Comes last so that the message is shown; it is taken off again. */
const SENTINEL = { type: 'file', url: 'data:,sentinel', mediaType: 'text/plain' }

/**
 * `{message, refused?, error?}`: the message that this version makes of `chunks` after `from` (else of a new message `id`), and the place
 * of the chunk at which it fails. An `error` chunk ends the client's stream and is no failure of the fold.
 */
export async function fold(version, { chunks, from, id = 'm' }) {
  const given = chunks.filter((chunk) => chunk.type !== 'error')
  const whole = await run(version, [...given, SENTINEL], from, id)
  if (!whole.error) return { message: whole.message }
  const at = whole.taken - 1
  const before = await run(version, [...given.slice(0, at), SENTINEL], from, id)
  const with_ = await run(version, [...given.slice(0, at + 1), SENTINEL], from, id)
  if (before.error || !with_.error) throw new Error(`cannot tell where ai ${version} fails: ${whole.error}`)
  return { message: before.message, refused: chunks.indexOf(given[at]), error: String(whole.error.message) }
}

async function run(version, chunks, from, id) {
  const { AbstractChat } = await load(version)
  const state = new State()
  let taken = 0
  const stream = new ReadableStream(
    {
      pull(controller) {
        if (taken === chunks.length) return controller.close()
        controller.enqueue(structuredClone(chunks[taken]))
        taken += 1
      },
    },
    { highWaterMark: 0 },
  )
  const transport = { sendMessages: async () => stream, reconnectToStream: async () => null }
  if (from) state.messages = [structuredClone(from)]
  const chat = new AbstractChat({ id: 'chat', state, transport, generateId: () => id, onError: () => {} })
  await chat.sendMessage(from ? undefined : { text: 'x' })
  const error = chat.status === 'error' ? state.error : null
  const message = state.messages.at(-1)
  const plain = message.role === 'assistant' ? JSON.parse(JSON.stringify(message)) : null
  if (plain && !error) plain.parts.pop()
  return { message: plain, error, taken }
}
