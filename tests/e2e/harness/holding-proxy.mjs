// A proxy in front of the server: passes everything on, and holds back the requests that a test names until the test lets them go.
import http from 'node:http'
import { once } from 'node:events'

/** `{origin, hold(test) → gate-like {arrived, release()}, close()}`; `test(request)` sees method and url. A held request has not reached the server. */
export async function holdingProxy(target) {
  const holds = []
  const proxy = http.createServer(async (request, response) => {
    const held = holds.find((hold) => !hold.taken && hold.test(request))
    if (held) {
      held.taken = true
      held.arrived.resolve()
      await held.released.promise
    }
    const onward = http.request(new URL(request.url, target), { method: request.method, headers: request.headers, agent: false })
    onward.on('response', (answer) => {
      response.writeHead(answer.statusCode, answer.headers)
      answer.pipe(response)
      answer.on('error', () => response.destroy())
    })
    onward.on('error', () => response.destroy())
    response.on('close', () => onward.destroy())
    request.pipe(onward)
  })
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  return {
    origin: `http://127.0.0.1:${proxy.address().port}`,
    hold(test) {
      const hold = { test, taken: false, arrived: Promise.withResolvers(), released: Promise.withResolvers() }
      holds.push(hold)
      return { arrived: hold.arrived.promise, release: () => hold.released.resolve() }
    },
    async close() {
      proxy.closeAllConnections()
      proxy.close()
      await once(proxy, 'close')
    },
  }
}
