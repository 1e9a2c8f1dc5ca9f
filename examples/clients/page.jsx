import { useEffect, useState } from 'react'
import { useChat } from '@ai-sdk/react'
import { openChat } from './rejoin'

export function ChatPage({ origin, id }) {
  const [session, setSession] = useState()
  useEffect(() => {
    const session = openChat(origin, id)
    setSession(session)
    return session.leave
  }, [origin, id])
  return session && <Conversation key={id} {...session} />
}

function Conversation({ chat, opened, stop }) {
  const { messages, status, error, sendMessage } = useChat({ chat })
  const [isOpened, setOpened] = useState(false)
  useEffect(() => void opened.then(() => setOpened(true)), [opened])
  const isBusy = status === 'submitted' || status === 'streaming'

  function send(event) {
    event.preventDefault()
    sendMessage({ text: new FormData(event.currentTarget).get('text') })
    event.currentTarget.reset()
  }

  return (
    <form onSubmit={send}>
      {messages.map(({ id, role, parts }) => (
        <p key={id}>{role}: {parts.map((part) => (part.type === 'text' ? part.text : ''))}</p>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <input name="text" required disabled={!isOpened || isBusy} />
      {isBusy && <button type="button" onClick={stop}>Stop</button>}
    </form>
  )
}
