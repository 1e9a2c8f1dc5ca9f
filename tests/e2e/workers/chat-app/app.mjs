// An app as a Worker: a chat route that answers a UI message stream, and a producer that is told of runs and writes them.

const seen = { requests: [], aborted: 0 }

export default {
  async fetch(request, env, context) {
    const { pathname, searchParams } = new URL(request.url)
    const body = request.method === 'POST' ? await request.json() : {}
    switch (pathname) {
      case '/v2/chat':
        return chat(request, body, searchParams)
      case '/agent/runs':
        if (searchParams.has('refuses')) return Response.json({ error: 'no room' }, { status: 503, headers: { 'retry-after': '5' } })
        context.waitUntil(produce(body, env, searchParams.get('via')))
        return new Response(null, { status: 202 })
      default:
        return new Response('no such path', { status: 404 })
    }
  },
}

const textOf = (message) => message.parts.map((part) => part.text ?? '').join('')

function chat(request, body, search) {
  const said = textOf(body.messages.findLast((message) => message.role === 'user'))
  const told = { headers: Object.fromEntries(request.headers), search: search.toString(), ...body }
  if (said !== 'what was seen') seen.requests.push(told)
  if (said === 'refuse') return Response.json({ error: { message: 'Not in this app' } }, { status: 403 })
  const answers = {
    'what was seen': () => saying(JSON.stringify(seen)),
    'wait for ever': () => saying('I think').slice(0, 4),
    fail: () => [{ type: 'error', errorText: 'The app failed' }],
  }
  const chunks = answers[said]?.() ?? saying(`You said ${said}, message ${body.messages.length}`)
  const events = said === 'wait for ever' ? chunks : [...chunks, '[DONE]']
  const stream = new ReadableStream({
    async pull(controller) {
      if (events.length) return controller.enqueue(frame(events.shift()))
      if (said === 'wait for ever') await scheduler.wait(60_000)
      controller.close()
    },
    cancel() {
      seen.aborted += 1
    },
  })
  return new Response(stream, { headers: { 'content-type': 'text/event-stream', 'x-vercel-ai-ui-message-stream': 'v1' } })
}

const frame = (event) => new TextEncoder().encode(`data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`)

const saying = (text) => [
  { type: 'start' },
  { type: 'start-step' },
  { type: 'text-start', id: 't' },
  { type: 'text-delta', id: 't', delta: text },
  { type: 'text-end', id: 't' },
  { type: 'finish-step' },
  { type: 'finish' },
]

async function produce({ entry, messages, results, epoch, appendUrl }, env, via) {
  let next = 0
  const send = async (body, taken) => {
    const headers = { 'content-type': 'application/json', 'producer-epoch': String(epoch), 'producer-seq': String(next) }
    const init = { method: 'POST', headers, body: JSON.stringify(body) }
    const answer = via === 'network' ? await fetch(appendUrl, init) : await env.REJOIN.fetch(appendUrl, init)
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`)
    next += taken
  }
  if (textOf(messages.findLast((message) => message.role === 'user')) === 'call' && entry === 'send') {
    const call = { type: 'tool-input-available', toolCallId: 'c1', toolName: 'ask', input: { a: 1 } }
    return send({ chunks: [{ type: 'start-step' }, call, { type: 'finish-step' }], pause: { kind: 'client_tool', pending: ['c1'] } }, 4)
  }
  await send([{ type: 'start-step' }, { type: 'text-start', id: 'p' }, { type: 'text-delta', id: 'p', delta: `${entry} of ` }], 3)
  const last = [{ type: 'text-delta', id: 'p', delta: JSON.stringify(results ?? messages.length) }, { type: 'text-end', id: 'p' }, { type: 'finish-step' }]
  await send({ chunks: last, end: { status: 'completed' } }, 4)
}
