// The hooks of @ai-sdk/react by themselves, when the same page reconnects: what README's table says of their versions.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { holdingProxy } from './harness/holding-proxy.mjs'
import { startLine } from './harness/line.mjs'
import { openPage } from './harness/pages.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()

/** A page of the bare hook whose connection broke in the middle of a reply; `hold` lets the model go on. */
async function broken(t, name) {
  const line = await startLine(set.server)
  t.after(line.close)
  const s = set.session()
  const page = await openPage(name, { mount: 'mountPlain', id: s.id, origin: line.origin })
  t.after(page.close)
  await page.opened
  const hold = gate()
  set.model.enqueue(textScript(['Hel', hold, 'lo']))
  page.send('cut')
  await page.until((p) => textOf(p.last()) === 'Hel')
  line.cut()
  await page.until((p) => p.status() === 'error', 'the break')
  return { s, page, hold }
}

const WAYS = {
  'resumeStream()': (page) => void page.resume(),
  'the page becomes visible again': () => document.dispatchEvent(new Event('visibilitychange')),
}
/** What the page shows of a reply `Hello` of which it had `Hel`. */
const SHOWS = { 'react-6': 'HelHello', 'react-7': 'Hello' }

for (const [name, shows] of Object.entries(SHOWS)) {
  describe(name, () => {
    for (const [way, comesBack] of Object.entries(WAYS)) {
      test(`${way} in the middle of a reply: ${shows}`, async (t) => {
        const { s, page, hold } = await broken(t, name)
        comesBack(page)
        await page.until((p) => p.status() === 'streaming')
        hold.open()
        await page.until((p) => p.status() === 'ready')
        assert.equal(textOf(page.last()), shows)
        assert.equal(page.messages().length, 2)
        assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'Hello')
      })
    }
  })
}

for (const name of ['react-6', 'react-7']) {
  test(`${name}, the README’s chat: a seed that two replies have overtaken is read again`, async (t) => {
    const proxy = await holdingProxy(set.server.origin)
    t.after(proxy.close)
    const s = set.session()
    set.model.enqueue(textScript(['Hello']))
    await s.ask('one')
    const reconnect = proxy.hold(({ url }) => url.includes('/stream'))
    const page = await openPage(name, { id: s.id, origin: proxy.origin })
    t.after(page.close)
    await reconnect.arrived
    for (const reply of ['second', 'third']) {
      set.model.enqueue(textScript([reply]))
      await s.ask(reply)
    }
    reconnect.release()
    await page.until((p) => p.status() === 'ready' && p.messages().length === 6)
    assert.deepEqual(page.messages().filter((m) => m.role === 'assistant').map(textOf), ['Hello', 'second', 'third'])
  })
}
