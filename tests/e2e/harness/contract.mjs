// What the tests of the chat contract share: runs that are held where a test wants them, and what a response or a refusal says.
import { textOf } from './clients.mjs'
import { gate, textScript } from './fake-model.mjs'
import { call, userMessage } from './session.mjs'
import { chunksOf, isData, openSse } from './sse.mjs'

/** The whole chunks of a body (`[DONE]` left out). */
export const chunksIn = (got) => chunksOf(got.frames.filter(isData))
export const typesIn = (got) => chunksIn(got).map((c) => c.type)
/** Every text delta, one after the other. */
export const deltasIn = (got) => chunksIn(got).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')
export const eventsIn = (got, kind) => chunksIn(got).filter((c) => c.type === `data-${kind}`).map((c) => c.data)

/** The header that makes a chat client one that understands resync events, without asking for anything. */
export const AWARE = { 'x-helix-client': 'test' }
export const keyed = (key) => ({ 'x-helix-request-key': key })

/** A session with helpers of the contract: `told(text)` reads a whole turn, `held(text)` one that waits in the middle. */
export function contract(set, id) {
  const s = set.session(id)
  return Object.assign(s, {
    /** A chat POST of this body; an open response. */
    post: (json, headers = {}) => openSse(s.chat, { json: { id: s.id, ...json }, headers }),
    /** A chat POST that is refused, or any POST with a JSON answer. */
    refused: (json, headers = {}) => call(s.chat, { json: { id: s.id, ...json }, headers }),
    retry: (json = {}, headers = {}) => openSse(`${s.chat}/retry`, { json, headers }),
    /** A whole turn: the message that was sent, and the body. */
    async told(text, reply = `re ${text}`, { headers, message = userMessage(text), ...more } = {}) {
      set.model.script(text, textScript([reply]))
      const got = await (await s.post({ messages: [message], ...more }, headers)).collect()
      return { message, got, runId: (await s.info()).runId }
    },
    /** A turn that has said 'part' and waits for `held`. */
    async held(text, { headers, message = userMessage(text), rest = ' rest', ...more } = {}) {
      const held = gate()
      set.model.script(text, textScript([`part of ${text}`, held, rest]))
      const sent = await s.post({ messages: [message], ...more }, headers)
      await sent.until((f) => f.data?.includes(`part of ${text}`))
      return { message, sent, held, runId: (await s.info()).runId, reply: `part of ${text}${rest}` }
    },
    /** A turn that ends with calls which the client must answer. */
    async suspended(text, ids = ['c1', 'c2'], { headers, ...more } = {}) {
      const tool = ids.map((toolCallId) => ({ id: toolCallId, name: 'ask', arguments: '{"q":1}' }))
      set.model.script(text, textScript(['I ask. '], { tool }))
      const message = userMessage(text)
      const got = await (await s.post({ messages: [message], ...more }, headers)).collect()
      const { runId } = await s.info()
      return { message, got, runId, reply: (await s.snapshot()).body.messages.at(-1) }
    },
    toolResult: (json) => call(`${s.chat}/tool-result`, { json }),
    said: async () => (await s.snapshot()).body.messages.map(textOf),
  })
}

/** The reply with outputs for these calls, as a client holds it. */
export const answered = (reply, outputs) => ({
  ...reply,
  parts: reply.parts.map((p) => (p.toolCallId in outputs ? { ...p, state: 'output-available', output: outputs[p.toolCallId] } : p)),
})

/** What the model was asked, as `role: text`. */
export const asked = (request) =>
  request.body.messages.map(({ role, content }) => `${role}: ${typeof content === 'string' ? content : (content ?? []).map((p) => p.text).join('')}`)
