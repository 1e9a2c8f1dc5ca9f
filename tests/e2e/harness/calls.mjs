// What tests of tool calls share: chats that answer by themselves, and comparisons of what a client shows with what is stored.
import assert from 'node:assert/strict'
import { load, makeChat, textOf, validateMessages } from './clients.mjs'
import { LONG } from './wait.mjs'

/** A chat of that version; `auto`: 'calls' or 'approvals', what makes it send by itself. `agent`: who answers. */
export async function callingChat(version, s, origin, { auto, agent, headers, ...options } = {}) {
  const ai = await load(version)
  const when = {
    calls: ai.lastAssistantMessageIsCompleteWithToolCalls,
    approvals: (chat) => ai.lastAssistantMessageIsCompleteWithApprovalResponses(chat) || ai.lastAssistantMessageIsCompleteWithToolCalls(chat),
  }
  return makeChat(version, { id: s.id, origin, sendAutomaticallyWhen: when[auto], transport: { body: agent ? { agent } : {}, headers }, ...options })
}

/** Answers a call as the versions call it. */
export const answerCall = (chat, toolCallId, tool, output) => (chat.addToolOutput ?? chat.addToolResult).call(chat, { tool, toolCallId, output })

/** The chat has come to rest, and what its last message says ends like this. */
export async function saidLast(chat, end) {
  await chat.until((c) => c.status === 'error' || (c.status === 'ready' && textOf(c.lastMessage).endsWith(end)), LONG, `"${end}" at the end of the chat`)
  assert.equal(chat.status, 'ready', `${chat.error?.message} ${JSON.stringify(chat.lastMessage)}`)
}

/** Parts as every version keeps them: without ids of reasoning, and without keys that say nothing. */
export const plain = (parts) => JSON.parse(JSON.stringify(parts)).map(({ id, ...part }) => part)

export const callsOf = (message) => (message?.parts ?? []).filter((p) => p.toolCallId)
export const stateOf = (message, call) => callsOf(message).find((p) => p.toolCallId === call)?.state

/** The chat is at rest, shows each reply once, and shows what is stored; `ignore`: keys that a version keeps and the store does not. */
export async function assertAsStored(version, chat, s, context = '') {
  const where = `ai ${version} ${context}`
  assert.equal(chat.status, 'ready', `${where}: ${chat.error?.message}`)
  const { body } = await s.snapshot()
  assert.deepEqual(chat.messages.map((m) => [m.role, m.id]), body.messages.map((m) => [m.role, m.id]), where)
  for (const [i, message] of body.messages.entries()) assert.deepEqual(plain(chat.messages[i].parts), plain(message.parts), `${where}, message ${i}`)
  await validateMessages(version, body.messages)
  return body
}
