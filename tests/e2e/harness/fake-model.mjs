// A server of the chat-completions and the Messages API under the test's control: every request is answered by a script of steps.
import { once } from 'node:events'
import { LONG, within } from './wait.mjs'
import { play } from './model-steps.mjs'
import { upstream } from './upstream.mjs'

export { step, textScript, replayScript } from './model-steps.mjs'
export { gate } from './wait.mjs'

/**
 * Starts the server. The answer has
 *   `baseUrl`                            what a producer's `baseUrl` is set to
 *   `script(match, steps, {times})`      answer requests whose last user text matches (string: equal; RegExp; function of the request)
 *   `enqueue(steps)`                     answer the next request that no `script` matches
 *   `requests`, `nextRequest()`          what arrived; `nextRequest` hands each request out once, in order
 *   `unexpected`                         requests that nothing was scripted for (they got a 500)
 *   `refused`                            what `check(request)` threw: those requests got a 400, as a strict vendor answers
 * A request is `{headers, body, path, lastUserText, over, aborted}`: `over` resolves to 'complete', 'aborted' (the caller went
 * away) or 'cut' (the script broke it); `aborted` resolves only when the caller went away.
 */
export async function startFakeModel({ check = () => {} } = {}) {
  const scripts = []
  const queue = []
  const requests = []
  const unexpected = []
  const refused = []
  const waiting = []
  let handedOut = 0

  const server = upstream(async (req, res) => {
    const request = await receive(req, res)
    if (!request) return
    requests.push(request)
    waiting.splice(0).forEach((wake) => wake())
    try {
      check(request)
    } catch (error) {
      refused.push(error)
      res.writeHead(400, { 'content-type': 'application/json' })
      res.end(JSON.stringify({ error: { message: error.message, type: 'invalid_request_error' } }))
      return
    }
    const steps = choose(request)
    if (!steps) {
      unexpected.push(request)
      res.writeHead(500, { 'content-type': 'application/json' })
      res.end(JSON.stringify({ error: { message: 'nothing was scripted for this request', code: 'unscripted' } }))
      return
    }
    await play(steps, res, request)
  })

  function choose(request) {
    const found = scripts.find((s) => s.left > 0 && s.matches(request))
    if (!found) return queue.shift()
    found.left -= 1
    return found.steps
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()

  return {
    port,
    baseUrl: `http://127.0.0.1:${port}/v1`,
    requests,
    unexpected,
    refused,
    script(match, steps, { times = 1 } = {}) {
      scripts.push({ matches: matcher(match), steps, left: times })
      return steps
    },
    enqueue(steps) {
      queue.push(steps)
      return steps
    },
    async nextRequest(ms = LONG) {
      while (requests.length <= handedOut) {
        await within(new Promise((r) => waiting.push(r)), ms, 'a request to the model')
      }
      return requests[handedOut++]
    },
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function matcher(match) {
  if (typeof match === 'function') return match
  if (match instanceof RegExp) return (request) => match.test(request.lastUserText)
  return (request) => request.lastUserText === match
}

async function receive(req, res) {
  const parts = []
  for await (const part of req) parts.push(part)
  const text = Buffer.concat(parts).toString()
  if (req.method !== 'POST' || !/\/(chat\/completions|messages)$/.test(req.url)) {
    res.writeHead(404).end()
    return null
  }
  const body = JSON.parse(text)
  const aborted = Promise.withResolvers()
  const over = Promise.withResolvers()
  const request = {
    path: req.url,
    headers: req.headers,
    body,
    lastUserText: lastUserText(body),
    cut: false,
    gone: false,
    aborted: aborted.promise,
    over: over.promise,
  }
  res.on('close', () => {
    if (res.writableFinished && !request.cut) return over.resolve('complete')
    if (request.cut) return over.resolve('cut')
    request.gone = true
    aborted.resolve()
    over.resolve('aborted')
  })
  return request
}

/** What the user said last: a message of the API joins those that no reply stands between. */
function lastUserText({ messages = [] }) {
  const content = messages.findLast((m) => m.role === 'user')?.content ?? ''
  if (typeof content === 'string') return content.split('\n\n').at(-1)
  return content.filter((p) => p.type === 'text').map((p) => p.text).join('')
}
