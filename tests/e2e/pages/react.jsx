// The hooks of @ai-sdk/react: over a chat of the README's wiring, or with a transport alone.
import { useEffect } from 'react'
import { createRoot } from 'react-dom/client'
import { useChat } from '@ai-sdk/react'
import { DefaultChatTransport } from 'ai'
import { openChat } from '../../../examples/clients/rejoin.js'
import { deeds, watched, whenAnswered } from './page.js'

const sendAutomaticallyWhen = whenAnswered

function Seen({ by, page, hand }) {
  const chat = useChat(by)
  hand(chat)
  useEffect(() => page.told(chat))
  return chat.messages.map((m) => <p key={m.id}>{m.parts.map((p) => p.text).join('')}</p>)
}

function show(root, by, page, hand) {
  const mounted = createRoot(root)
  mounted.render(<Seen by={by} page={page} hand={hand} />)
  return () => mounted.unmount()
}

/** The README's wiring. */
export function mount(root, { origin, id }) {
  const page = watched()
  const { chat, opened, stop, leave } = openChat(origin, id, { sendAutomaticallyWhen })
  const unmount = show(root, { chat }, page, () => {})
  return { ...page, ...deeds(() => chat, stop), closeSocket: () => chat.stop(), opened, unmount: () => (unmount(), leave()) }
}

/** `useChat` with a transport, as the AI SDK's own documentation shows it; seeded, and with a stop that stops the reply. */
export async function mountPlain(root, { origin, id }) {
  const page = watched()
  const session = `${origin}/api/chat/${id}`
  const seed = await fetch(`${session}/snapshot?seed=1`)
  const { messages } = seed.status === 404 ? { messages: [] } : await seed.json()
  let chat
  const reconnected = Promise.withResolvers()
  const transport = new DefaultChatTransport({
    api: `${origin}/api/chat`,
    // Once the SDK has taken the answer: until then it sets the chat's status.
    fetch: (...request) => fetch(...request).finally(() => setTimeout(reconnected.resolve)),
  })
  const unmount = show(root, { id, messages, resume: true, transport, sendAutomaticallyWhen }, page, (now) => (chat = now))
  const stop = () => fetch(`${session}/stop`, { method: 'POST' })
  const closeSocket = () => chat.stop()
  return { ...page, ...deeds(() => chat, stop), closeSocket, opened: Promise.all([page.drawn, reconnected.promise]), unmount: () => (void chat.stop(), unmount()) }
}
