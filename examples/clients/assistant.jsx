import { useEffect, useMemo, useRef } from 'react'
import { AssistantChatTransport, useChatRuntime } from '@assistant-ui/react-ai-sdk'

/** What a session has stored, read before its page is shown. A new chat has nothing. */
export async function readSeed(origin, id) {
  const answer = await fetch(`${origin}/api/chat/${encodeURIComponent(id)}/snapshot?seed=1`)
  if (answer.status === 404) return { messages: [], reconnect: `/api/chat/${encodeURIComponent(id)}/stream` }
  if (!answer.ok) throw new Error(await answer.text())
  return answer.json()
}

/**
 * The runtime for `<AssistantRuntimeProvider>`. `seed` is what `readSeed` gave. `onOpened` is called when the first reconnect is answered:
 * send from then on. `onDrop` is called when the connection breaks: read the seed anew and show the page under another `key`.
 */
export function useRejoinRuntime(origin, id, seed, { onOpened, onDrop, ...options }) {
  const leaves = useRef(false)
  useEffect(() => {
    leaves.current = false
    return () => void (leaves.current = true)
  }, [])

  const transport = useMemo(() => {
    const session = `${origin}/api/chat/${encodeURIComponent(id)}`
    let stopped // a stop that is under way: what is sent next waits for it
    return new AssistantChatTransport({
      api: session,
      headers: { 'X-Rejoin-History': 'client' }, // assistant-ui edits by sending a shorter list
      resumable: {
        storage: { getStreamId: () => id, setStreamId() {}, clear() {} },
        resumeApi: origin + seed.reconnect,
      },
      async fetch(url, init) {
        await stopped
        // Cancel only closes the page's own socket. This stops the reply, unless it is the page that goes.
        const stop = () => fetch(`${session}/stop`, { method: 'POST' }).catch(() => {})
        init.signal?.addEventListener('abort', () => leaves.current || (stopped = stop()))
        const answer = await fetch(url, init)
        setTimeout(() => onOpened?.()) // once the SDK has taken the answer, which sets the chat's status
        return answer
      },
    })
  }, [origin, id, seed])

  return useChatRuntime({
    transport,
    messages: seed.messages,
    onError: (error) => error instanceof TypeError && onDrop(),
    ...options,
  })
}
