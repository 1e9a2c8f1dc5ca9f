// assistant-ui: its own chat runtime over the wiring of docs/clients.md, and its runtime over a chat of the README's wiring.
import { useEffect, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { useChat } from '@ai-sdk/react'
import { AssistantRuntimeProvider, MessagePrimitive, ThreadPrimitive, getExternalStoreMessages } from '@assistant-ui/react'
import { AssistantChatTransport, createResumableSessionStorage, useAISDKRuntime, useChatRuntime } from '@assistant-ui/react-ai-sdk'
import { readSeed, useRejoinRuntime } from '../../../examples/clients/assistant.jsx'
import { openChat } from '../../../examples/clients/rejoin.js'
import { watched, whenAnswered } from './page.js'

const sendAutomaticallyWhen = whenAnswered

/** Draws the thread with assistant-ui's own parts, and tells what it holds. */
function Thread({ runtime, page, hand }) {
  hand(runtime)
  useEffect(() => {
    const tell = () => page.told(seen(runtime.thread.getState()))
    tell()
    return runtime.thread.subscribe(tell)
  }, [runtime, page])
  const Message = () => <MessagePrimitive.Root><MessagePrimitive.Parts /></MessagePrimitive.Root>
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Root><ThreadPrimitive.Messages components={{ Message }} /></ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  )
}

/** The thread as messages of the AI SDK; texts are those that assistant-ui shows. */
function seen({ messages, isRunning }) {
  const error = messages.at(-1)?.status?.error
  const status = isRunning ? 'streaming' : error ? 'error' : 'ready'
  return { messages: messages.flatMap(asShown), status, error: error && { message: JSON.stringify(error) } }
}

function asShown(message) {
  const own = getExternalStoreMessages(message)
  const shown = message.content.filter((part) => part.type === 'text').map((part) => ({ type: 'text', text: part.text }))
  return own.map((m) => ({ ...m, parts: [...shown, ...m.parts.filter((part) => part.type !== 'text')] }))
}

const callAt = (runtime, fits) => {
  const { messages } = runtime.thread.getState()
  for (const [index, { content }] of messages.entries()) {
    const part = content.find((part) => part.type === 'tool-call' && fits(part))
    if (part) return runtime.thread.getMessageByIndex(index).getMessagePartByToolCallId(part.toolCallId)
  }
  throw new Error('no such call')
}

const user = (text) => ({ role: 'user', content: [{ type: 'text', text }] })
const deeds = (runtime) => ({
  send: (text) => runtime().thread.append(text),
  edit(messageId, text) {
    const { messages } = runtime().thread.getState()
    const at = messages.findIndex((m) => m.id === messageId)
    runtime().thread.append({ ...user(text), parentId: messages[at - 1]?.id ?? null, sourceId: messageId, startRun: true })
  },
  regenerate: () => runtime().thread.getMessageByIndex(runtime().thread.getState().messages.length - 1).reload(),
  branches: (messageId) => runtime().thread.getMessageById(messageId).getState().branchCount,
  previousBranch: (messageId) => runtime().thread.getMessageById(messageId).switchToBranch({ position: 'previous' }),
  answer: (_, toolCallId, output) => callAt(runtime(), (part) => part.toolCallId === toolCallId).addToolResult(output),
  approve: (approvalId, approved) => callAt(runtime(), (part) => part.approval?.id === approvalId).respondToToolApproval({ approvalId, approved }),
  stop: () => runtime().thread.cancelRun(),
})

/** `useChatRuntime`. */
export async function mount(root, { origin, id }) {
  const page = watched()
  const first = await readSeed(origin, id)
  const reconnected = Promise.withResolvers()
  const onOpened = reconnected.resolve
  let [runtime, retry] = []
  function Page({ seed, onDrop }) {
    return <Thread runtime={useRejoinRuntime(origin, id, seed, { onOpened, onDrop, sendAutomaticallyWhen })} page={page} hand={(now) => (runtime = now)} />
  }
  function App() {
    const [{ seed, visit }, show] = useState({ seed: first, visit: 0 })
    const onDrop = () => void readSeed(origin, id).then((seed) => show({ seed, visit: visit + 1 }), () => (retry = setTimeout(onDrop, 500)))
    return <Page key={visit} seed={seed} onDrop={onDrop} />
  }
  const mounted = createRoot(root)
  mounted.render(<App />)
  return { ...page, ...deeds(() => runtime), opened: Promise.all([page.drawn, reconnected.promise]), unmount: () => (clearTimeout(retry), mounted.unmount()) }
}

/** `useChatRuntime` with the storage that assistant-ui brings: it remembers the stream that this tab began by its response's header. */
export async function mountStored(root, { origin, id }) {
  const page = watched()
  const { messages } = await readSeed(origin, id)
  const session = `${origin}/api/chat/${id}`
  const storage = createResumableSessionStorage({ key: `stream of ${id}` })
  const transport = new AssistantChatTransport({ api: session, resumable: { storage, resumeApi: (streamId) => `${origin}/api/chat/${streamId}/stream` } })
  let runtime
  function App() {
    return <Thread runtime={useChatRuntime({ transport, messages })} page={page} hand={(now) => (runtime = now)} />
  }
  const mounted = createRoot(root)
  mounted.render(<App />)
  return { ...page, ...deeds(() => runtime), opened: page.drawn, unmount: () => mounted.unmount() }
}

/** `useAISDKRuntime` over the chat of the README. */
export function mountChat(root, { origin, id }) {
  const page = watched()
  const { chat, opened, stop, leave } = openChat(origin, id, { headers: { 'X-Rejoin-History': 'client' }, sendAutomaticallyWhen })
  let runtime
  function App() {
    return <Thread runtime={useAISDKRuntime({ ...useChat({ chat }), stop })} page={page} hand={(now) => (runtime = now)} />
  }
  const mounted = createRoot(root)
  mounted.render(<App />)
  return { ...page, ...deeds(() => runtime), opened: Promise.all([opened, page.drawn]), unmount: () => (mounted.unmount(), leave()) }
}
