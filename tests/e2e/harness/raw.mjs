// Requests exactly as written: paths that a URL parser would tidy up, bodies that never come, headers that fetch forbids.
import http from 'node:http'
import { LONG, within } from './wait.mjs'

/**
 * Answers `{status, headers, text, body}`. `path` and `headers` go out as they are. `body`: bytes or text; a list is sent chunked, item by item.
 * `hold`: send the headers (and the body so far) and never finish; the answer must come without it.
 */
export async function rawCall(server, path, { method, headers = {}, body, hold = false, ms = LONG } = {}) {
  const request = http.request({ host: '127.0.0.1', port: server.port, path, method: method ?? (body === undefined ? 'GET' : 'POST'), headers, agent: false })
  const answered = new Promise((resolve, reject) => {
    request.once('response', async (response) => {
      try {
        resolve({ status: response.statusCode, headers: response.headers, text: await collected(response) })
      } catch (error) {
        reject(error)
      }
    })
    request.once('error', reject)
  })
  request.flushHeaders()
  for (const part of Array.isArray(body) ? body : body === undefined ? [] : [body]) request.write(part)
  if (!hold) request.end()
  try {
    const answer = await within(answered, ms, `an answer to ${request.method} ${path}`)
    return { ...answer, body: json(answer.text) }
  } finally {
    request.destroy()
  }
}

async function collected(response) {
  const parts = []
  for await (const part of response) parts.push(part)
  return Buffer.concat(parts).toString()
}

function json(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
