import assert from 'node:assert/strict'
import { once } from 'node:events'
import http from 'node:http'
import { describe, test } from 'node:test'
import { REPLACES_ON_REPLAY, VERSIONS, foldAll, makeChat, textOf, toBytes, validateMessages } from './clients.mjs'
import { gate } from './wait.mjs'

const user = { id: 'u1', role: 'user', parts: [{ type: 'text', text: 'hi' }] }
const script = [
  { comment: 'open' },
  { data: '{"type":"start","messageId":"m1"}', id: '2' },
  { type: 'start-step' },
  { type: 'text-start', id: 't' },
  { type: 'text-delta', id: 't', delta: 'Hel' },
  { type: 'text-delta', id: 't', delta: 'lo' },
  { type: 'text-end', id: 't' },
  { type: 'data-note', data: { note: 1 }, transient: true },
  { type: 'finish-step' },
  { type: 'finish', finishReason: 'stop' },
  { data: '[DONE]' },
]

async function serve(t, handler) {
  const server = http.createServer(handler)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${server.address().port}`
}

for (const version of VERSIONS) {
  describe(`ai ${version}`, () => {
    test('folds frames, chunks and bytes to the same reply', async () => {
      const folded = await foldAll(version, script, [user])
      assert.equal(folded.status, 'ready')
      assert.equal(folded.text, 'Hello')
      assert.deepEqual(folded.messages.map((m) => m.id), ['u1', 'm1'])
      assert.deepEqual(folded.transient.map((p) => p.data), [{ note: 1 }])
      assert.equal(folded.finishes.length, 1)
      await validateMessages(version, folded.messages)
      assert.deepEqual((await foldAll(version, toBytes(script), [user])).messages, folded.messages)
    })

    test('an error chunk, an unknown chunk and a broken body end in error; a clean early end does not', async () => {
      const error = await foldAll(version, [...script.slice(0, 5), { type: 'error', errorText: 'oops' }], [user])
      assert.deepEqual([error.status, error.error.message, error.text], ['error', 'oops', 'Hel'])
      assert.equal((await foldAll(version, [...script.slice(0, 5), { type: 'nope' }], [user])).status, 'error')
      const broken = await foldAll(version, script.slice(0, 5), [user], { broken: true })
      assert.equal(broken.status, 'error')
      assert.equal(broken.finishes[0].isDisconnect, true)
      assert.equal((await foldAll(version, script.slice(0, 5), [user])).status, 'ready')
    })

    test('a full replay over a seeded partial duplicates or replaces, as documented', async () => {
      const partial = { id: 'm1', role: 'assistant', parts: [{ type: 'text', text: 'Hel', state: 'streaming' }] }
      const folded = await foldAll(version, script, [user, partial])
      assert.equal(folded.messages.length, 2)
      assert.equal(folded.text, REPLACES_ON_REPLAY.includes(version) ? 'Hello' : 'HelHello')
    })

    test('sends, reads, stops and resumes over HTTP', async (t) => {
      const seen = []
      const left = gate()
      const origin = await serve(t, async (req, res) => {
        let body = ''
        for await (const part of req) body += part
        seen.push({ method: req.method, url: req.url, body: body && JSON.parse(body) })
        if (req.url.endsWith('/idle/stream')) return res.writeHead(204).end()
        res.on('close', () => res.writableFinished || left.open())
        res.writeHead(200, { 'content-type': 'text/event-stream' })
        const live = req.method === 'POST'
        res.write(toBytes(live ? script.slice(1, 5) : script))
        if (!live) res.end()
      })
      const chat = await makeChat(version, { id: 'c1', origin })
      const sent = chat.sendMessage({ text: 'hi' })
      await chat.until((c) => textOf(c.messages.at(-1)) === 'Hel')
      assert.equal(chat.status, 'streaming')
      await chat.stop()
      await sent
      await left
      assert.deepEqual([chat.status, textOf(chat.messages.at(-1))], ['ready', 'Hel'])
      assert.deepEqual([seen[0].method, seen[0].url, seen[0].body.id, seen[0].body.trigger], ['POST', '/api/chat', 'c1', 'submit-message'])

      const other = await makeChat(version, { id: 'c1', origin, messages: [user] })
      await other.resumeStream()
      assert.deepEqual([other.status, textOf(other.messages.at(-1)), seen[1].url], ['ready', 'Hello', '/api/chat/c1/stream'])

      const idle = await makeChat(version, { id: 'idle', origin, messages: [user] })
      await idle.resumeStream()
      assert.deepEqual([idle.status, idle.messages.length], ['ready', 1])
    })

    test('validates messages', async () => {
      await validateMessages(version, [user])
      await assert.rejects(validateMessages(version, [{ ...user, parts: [{ type: 'nope' }] }]))
      await assert.rejects(validateMessages(version, []))
    })
  })
}
