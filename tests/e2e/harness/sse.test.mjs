import assert from 'node:assert/strict'
import { once } from 'node:events'
import net from 'node:net'
import http from 'node:http'
import { test } from 'node:test'
import { openSse, parseSse, readSse } from './sse.mjs'
import { sseParser } from './sse-parser.mjs'
import { gate, within } from './wait.mjs'

async function serve(t, handler) {
  const server = http.createServer(handler)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${server.address().port}/`, server }
}

const strip = (frames) => frames.map(({ end, ...frame }) => frame)

test('fields, comments, multi-line data, CR, LF and CRLF', () => {
  const text = '\uFEFF: hi\n\nevent: chunk\nid: 7\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:x\r\rretry: 5\n\n'
  const frames = parseSse(text)
  assert.deepEqual(strip(frames), [{ comment: 'hi' }, { event: 'chunk', id: '7', data: '{"a":\n1}' }, { data: 'x' }, { retry: '5' }])
  assert.equal(frames.at(-1).end, Buffer.byteLength(text))
})

test('the same frames however the bytes are split', () => {
  const text = ': ü\nid: 1\ndata: 👋\r\n\r\nid: 2\ndata: [DONE]\n\ndata: unfinished'
  const parser = sseParser()
  const frames = [...Buffer.from(text)].flatMap((byte) => parser.push(Buffer.from([byte])))
  assert.deepEqual(strip(frames), strip(parseSse(text)))
  assert.equal(parser.rest().bytes.toString(), 'data: unfinished')
})

test('a frame offset cuts the raw bytes at the frame', () => {
  const text = 'data: ü\n\ndata: b\n\n'
  const [first] = parseSse(text)
  assert.equal(Buffer.from(text).subarray(0, first.end).toString(), 'data: ü\n\n')
})

test('clean, broken and cut ends are told apart', async (t) => {
  const { url } = await serve(t, (req, res) => {
    res.write('data: 1\n\n')
    if (req.url === '/clean') res.end()
    if (req.url === '/broken') res.write('data: 2\n', () => res.socket.destroy())
  })
  assert.equal((await readSse(`${url}clean`)).ended, 'clean')
  const broken = await readSse(`${url}broken`)
  assert.equal(broken.ended, 'broken')
  assert.deepEqual(strip(broken.frames), [{ data: '1' }])
  assert.ok(broken.rest)
  const open = await openSse(`${url}open`)
  assert.equal((await open.next()).data, '1')
  open.cut()
  assert.equal((await open.collect()).ended, 'cut')
})

test('iteration, until, take', async (t) => {
  const { url } = await serve(t, (req, res) => res.end(': c\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n'))
  const seen = []
  for await (const frame of await openSse(url)) seen.push(frame.data ?? frame.comment)
  assert.deepEqual(seen, ['c', '1', '2', '3'])
  const stream = await openSse(url)
  assert.equal((await stream.until((f) => f.data === '2')).data, '2')
  assert.equal((await stream.take(2)).length, 2)
  await assert.rejects(stream.until((f) => f.data === '9'), /body ended \(clean\)/)
})

async function serveRaw(t) {
  const seen = { fin: gate(), reset: gate() }
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', (error) => seen.reset.open(error.code))
    socket.on('end', () => {
      seen.fin.open()
      socket.write('data: after\n\n')
    })
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: before\n\n'))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  return { ...seen, url: `http://127.0.0.1:${server.address().port}/` }
}

test('a half-closed client goes on reading', async (t) => {
  const { url, fin } = await serveRaw(t)
  const stream = await openSse(url)
  assert.equal((await stream.next()).data, 'before')
  stream.halfClose()
  await within(fin)
  assert.equal((await stream.next()).data, 'after')
  stream.cut()
})

test('a reset reaches the server as one', async (t) => {
  const { url, reset } = await serveRaw(t)
  const stream = await openSse(url)
  await stream.next()
  stream.reset()
  assert.equal(await within(reset), 'ECONNRESET')
  assert.equal((await stream.collect()).ended, 'cut')
})

test('a stalled reader gives back-pressure, and goes on when told to', async (t) => {
  const full = gate()
  const { url } = await serve(t, async (req, res) => {
    const frame = `data: ${'x'.repeat(65536)}\n\n`
    for (let i = 0; i < 400; i++) {
      if (res.write(frame)) continue
      full.open()
      await once(res, 'drain')
    }
    res.end()
  })
  const stream = await openSse(url)
  await stream.next()
  stream.stall()
  await within(full)
  const before = stream.frames.length
  await new Promise((r) => setImmediate(r))
  assert.equal(stream.frames.length, before)
  stream.unstall()
  assert.equal((await stream.collect()).frames.length, 400)
})
