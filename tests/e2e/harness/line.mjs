// A line between a page and the server that a test can cut: every socket on it breaks, as when a network goes away.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'

/** `{origin, cut(), close()}`; `down(true)` also refuses new connections until `down(false)`. */
export async function startLine(target) {
  const sockets = new Set()
  let isDown = false
  const server = createServer((near) => {
    if (isDown) return near.destroy()
    const far = connect(target.port, '127.0.0.1')
    const both = [near, far]
    for (const socket of both) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        both.forEach((other) => other.destroy())
      })
    }
    near.pipe(far).pipe(near)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = () => sockets.forEach((socket) => socket.resetAndDestroy())
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    cut,
    down(is) {
      isDown = is
      if (is) cut()
    },
    close() {
      cut()
      server.close()
    },
  }
}
