import { Chat } from '@ai-sdk/react' // Vue: '@ai-sdk/vue'; Svelte: '@ai-sdk/svelte'
import { DefaultChatTransport } from 'ai'

/** A chat with the session `id` of the Rejoin at `origin`. Send once `opened` resolves: what is stored is shown then. */
export function openChat(origin, id, { headers, ...options } = {}) {
  const session = `${origin}/api/chat/${encodeURIComponent(id)}`

  // Before every reconnect the page takes the stored messages, without the reply that is being written; `reconnect` brings that one whole.
  async function seed() {
    const answer = await fetch(`${session}/snapshot?seed=1`)
    if (answer.status === 404) return { messages: [] } // a new chat
    if (!answer.ok) throw new Error(await answer.text())
    return answer.json()
  }

  let hasLeft = false
  let isOpened
  const opened = new Promise((resolve) => (isOpened = resolve))

  const chat = new Chat({
    id,
    transport: new DefaultChatTransport({
      api: `${origin}/api/chat`,
      headers,
      async prepareReconnectToStreamRequest() {
        const { messages, reconnect = `/api/chat/${encodeURIComponent(id)}/stream` } = await seed()
        const last = chat.lastMessage
        const isUnsent = last?.role === 'user' && !messages.some(({ id }) => id === last.id)
        chat.messages = isUnsent ? [...messages, last] : messages
        return { api: origin + reconnect }
      },
      async fetch(...request) {
        const answer = await fetch(...request)
        setTimeout(isOpened) // once the SDK has taken the answer, which sets the chat's status
        return answer
      },
    }),
    onError(error) {
      // A connection that fails or breaks is a TypeError in every browser; a seed is stale when two replies have overtaken it.
      const mayPass = error instanceof TypeError || error.message.includes('state_snapshot_stale')
      if (mayPass) setTimeout(() => hasLeft || chat.resumeStream(), 500)
    },
    ...options,
  })

  chat.resumeStream()
  return {
    chat,
    opened,
    // Stops the reply, for everybody; its stream then ends. chat.stop() only closes the page's own socket, like a closed tab.
    stop: () => fetch(`${session}/stop`, { method: 'POST' }),
    leave() {
      hasLeft = true
      chat.stop()
    },
  }
}
