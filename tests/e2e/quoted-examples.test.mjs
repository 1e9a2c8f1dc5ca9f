// What README and docs/clients.md show is what the tests run: each example is quoted whole, and the body of one's own is run as it stands.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { makeChat, textOf } from './harness/clients.mjs'
import { textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'

const text = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const blocks = (page) => [...text(page).matchAll(/^```\w*\n(.*?)^```$/gms)].map((found) => found[1])

const QUOTES = { 'README.md': ['rejoin.js', 'page.jsx'], 'docs/clients.md': ['assistant.jsx'] }
for (const [page, examples] of Object.entries(QUOTES)) {
  for (const example of examples) {
    test(`${page} quotes examples/clients/${example}`, () => {
      const own = text(`examples/clients/${example}`)
      assert.ok(blocks(page).includes(own), `${page} differs from the example`)
    })
  }
}

describe('a body of one’s own', () => {
  const set = stage()
  const shown = blocks('docs/clients.md').find((block) => block.startsWith('prepareSendMessagesRequest:'))
  const { prepareSendMessagesRequest } = new Function(`return { ${shown} }`)()
  const asks = async (chat, said, deed) => {
    set.model.enqueue(textScript([said]))
    await deed()
    assert.equal(chat.status, 'ready', chat.error?.message)
  }
  const open = (s, prepare) => makeChat('7-latest', { id: s.id, origin: set.server.origin, transport: { prepareSendMessagesRequest: prepare } })

  test('as docs/clients.md shows it sends, edits and regenerates', async () => {
    const s = set.session()
    const chat = await open(s, prepareSendMessagesRequest)
    await asks(chat, 'first', () => chat.sendMessage({ text: 'one' }))
    await asks(chat, 'second', () => chat.regenerate())
    assert.equal(textOf(chat.lastMessage), 'second')
    await asks(chat, 'third', () => chat.sendMessage({ text: 'two', messageId: chat.messages[0].id }))
    assert.deepEqual(chat.messages.map(textOf), ['two', 'third'])
    assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['two', 'third'])
  })

  test('without the trigger a regenerate is a repeat: the old reply', async () => {
    const s = set.session()
    const chat = await open(s, ({ id, messages }) => ({ body: { id, message: messages.at(-1) } }))
    await asks(chat, 'first', () => chat.sendMessage({ text: 'one' }))
    const calls = set.model.requests.length
    await chat.regenerate()
    assert.deepEqual([textOf(chat.lastMessage), set.model.requests.length], ['first', calls])
  })
})
