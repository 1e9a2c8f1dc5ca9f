// What every page has in common: its state, told to whoever drives it at each change.
import { lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from 'ai'

/** A page whose state is told by `told(state)`: `{messages, status, error}`. */
export function watched() {
  const listeners = new Set()
  let state = { messages: [], status: 'ready', error: undefined }
  let draw
  return {
    /** Resolves once the page has drawn. */
    drawn: new Promise((resolve) => (draw = resolve)),
    told({ messages, status, error }) {
      state = { messages: JSON.parse(JSON.stringify(messages)), status, error: error && String(error.message) }
      draw()
      listeners.forEach((listener) => listener(state))
    },
    state: () => state,
    /** Calls `listener` now and at every change; the answer takes it off. */
    watch(listener) {
      listeners.add(listener)
      listener(state)
      return () => listeners.delete(listener)
    },
  }
}

/** What a page of the AI SDK's packages does with its `chat` (a `Chat`, or what a hook gives). */
export const deeds = (chat, stop = () => chat().stop()) => ({
  send: (text, options) => chat().sendMessage({ text }, options),
  edit: (messageId, text) => chat().sendMessage({ text, messageId }),
  regenerate: (messageId) => chat().regenerate(messageId ? { messageId } : {}),
  resume: () => chat().resumeStream(),
  answer: (tool, toolCallId, output) => chat().addToolOutput({ tool, toolCallId, output }),
  approve: (id, approved) => chat().addToolApprovalResponse({ id, approved }),
  stop: () => stop(),
})

/** Answers and words of the user are sent by themselves, once none is missing. */
export const whenAnswered = (chat) => lastAssistantMessageIsCompleteWithApprovalResponses(chat) || lastAssistantMessageIsCompleteWithToolCalls(chat)
