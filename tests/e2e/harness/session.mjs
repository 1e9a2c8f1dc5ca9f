// One session of a running server, spoken to over HTTP: every route that a test needs, with the paths in one place.
import { randomUUID } from 'node:crypto'
import { openSse } from './sse.mjs'

/** A plain request; the body is parsed when it is JSON. */
export async function call(url, { method, json, body, headers = {} } = {}) {
  const payload = json === undefined ? body : JSON.stringify(json)
  const response = await fetch(url, {
    method: method ?? (payload === undefined ? 'GET' : 'POST'),
    headers: { ...(payload === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    body: payload,
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, text, body: parsed(text) }
}

function parsed(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export const userMessage = (text, id = randomUUID()) => ({ id, role: 'user', parts: [{ type: 'text', text }] })

/** A session of `server` under a new id (or the given one). */
export function session(server, id = `s-${randomUUID()}`) {
  const path = encodeURIComponent(id)
  const chat = `${server.origin}/api/chat/${path}`
  const own = `${server.origin}/sessions/${path}`
  const self = {
    id,
    chat,
    own,
    /** The AI SDK's POST; answers the open response. `history` comes before the new message. */
    send: (text, { history = [], headers, ...more } = {}) =>
      openSse(chat, { headers, json: { id, messages: [...history, userMessage(text)], trigger: 'submit-message', ...more } }),
    /** `send`, read to its end. */
    ask: async (text, options) => (await self.send(text, options)).collect(),
    /** The stock reconnect. */
    reconnect: (options) => openSse(`${chat}/stream`, options),
    /** The resume by cursor; `messageId` and `prefix` as Helix' client sends them. */
    resume: (cursor, { messageId, prefix, headers = {} } = {}) =>
      openSse(chat, {
        headers: {
          ...(cursor === undefined ? {} : { 'x-resume-from-sequence': String(cursor) }),
          ...(messageId ? { 'x-existing-message-id': messageId } : {}),
          ...(prefix ? { 'x-helix-replay-prefix': '1' } : {}),
          ...headers,
        },
      }),
    snapshot: (query = '') => call(`${chat}/snapshot${query}`),
    stop: (json = {}) => call(`${chat}/stop`, { json }),
    delete: () => call(chat, { method: 'DELETE' }),
    info: async () => (await call(`${own}/info`)).body,
    sse: (fromSequence, { waitForLive, run, ...options } = {}) => openSse(`${own}/sse?${query({ fromSequence, waitForLive, runId: run })}`, options),
    /** What only a server with `TEST_SEAMS=1` answers: 'panic', 'counts', 'storage' (the operation as `json`), 'append' (the body, `count` times). */
    seam: (name, { count, ...options } = {}) => call(`${own}/__seam/x?${query({ name, count })}`, options),
    page: (fromSequence, limit) => call(`${own}/chunks?${query({ fromSequence, limit })}`),
    /** The whole stored log, page by page: `[{sequence, chunk}]`. */
    async log(limit = 500) {
      const all = []
      for (;;) {
        const { body } = await self.page(all.at(-1)?.sequence ?? 0, limit)
        if (!body?.chunks?.length) return all
        all.push(...body.chunks)
      }
    },
  }
  return self
}

const query = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, v]) => v !== undefined).map(([k, v]) => [k, String(v)]))
