// The README's page in a real Chromium, from another origin than the server's. Where the machine has no Chromium the tests say so and pass.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import http from 'node:http'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gate, textScript } from './harness/fake-model.mjs'
import { startLine } from './harness/line.mjs'
import { bundle, chromium, playwright } from './harness/pages.mjs'
import { stage } from './harness/stage.mjs'
import { LONG, eventually } from './harness/wait.mjs'

const skip = chromium() ? false : 'no Chromium on this machine (CHROMIUM names one)'

/** A web server with the page of `bundleFile` at every path; the session and the server's address stand in the query. */
async function startApp(bundleFile) {
  const script = await readFile(bundleFile, 'utf8')
  const server = http.createServer((_, res) => {
    res.writeHead(200, { 'content-type': 'text/html; charset=utf-8' })
    res.end(`<!doctype html><title>app</title><div id="root"></div><script>${script.replaceAll('</script', '<\\/script')}</script>`)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { origin: `http://localhost:${server.address().port}`, close: () => (server.closeAllConnections(), server.close()) }
}

for (const name of ['react-6', 'react-7']) {
  describe(name, { skip }, () => {
    const folder = mkdtempSync(join(tmpdir(), 'rejoin-browser-'))
    let [app, browser, line] = []
    const set = stage({
      ready: async (set) => {
        const file = join(folder, 'app.js')
        await bundle(name, file, { entry: new URL('./pages/app.jsx', import.meta.url).pathname, format: 'iife' })
        app = await startApp(file)
        await set.server.restart({ ALLOWED_ORIGINS: app.origin })
        line = await startLine(set.server)
        browser = await playwright().chromium.launch({ executablePath: chromium(), args: ['--no-sandbox', '--disable-dev-shm-usage'] })
      },
    })
    after(async () => {
      await browser?.close()
      line?.close()
      app?.close()
      rmSync(folder, { recursive: true, force: true })
    })

    /** A tab of a session. */
    async function open(s, context) {
      const page = await (context ?? (await browser.newContext())).newPage()
      page.setDefaultTimeout(LONG)
      await page.goto(`${app.origin}/?server=${encodeURIComponent(line.origin)}&id=${encodeURIComponent(s.id)}`)
      await page.locator('input').waitFor()
      return page
    }
    const send = async (page, text) => {
      await page.locator('input:enabled').fill(text)
      await page.locator('input').press('Enter')
    }
    const lines = (page) => page.locator('p').allTextContents()
    const shows = (page, expected) => eventually(async () => JSON.stringify(await lines(page)) === JSON.stringify(expected), { what: `the page to show ${expected}` })
    const held = (text) => {
      const hold = gate()
      set.model.script(text, textScript(['Hel', hold, 'lo']))
      return hold
    }

    test('sends, is reloaded in the middle of a reply, and shows it in a second tab', async () => {
      const s = set.session()
      const hold = held('hello')
      const page = await open(s)
      await send(page, 'hello')
      await shows(page, ['user: hello', 'assistant: Hel'])
      await page.reload()
      const tab = await open(s, page.context())
      for (const each of [page, tab]) await shows(each, ['user: hello', 'assistant: Hel'])
      hold.open()
      for (const each of [page, tab]) await shows(each, ['user: hello', 'assistant: Hello'])
      await page.reload()
      await shows(page, ['user: hello', 'assistant: Hello'])
    })

    test('loses its connection in the middle of a reply, and behind its end', async () => {
      const s = set.session()
      const hold = held('cut')
      const page = await open(s)
      await send(page, 'cut')
      await shows(page, ['user: cut', 'assistant: Hel'])
      line.cut()
      await page.locator('button').waitFor({ state: 'detached' })
      await page.locator('button').waitFor()
      await shows(page, ['user: cut', 'assistant: Hel'])
      line.down(true)
      hold.open()
      await eventually(async () => (await s.snapshot()).body.status === 'ended')
      line.down(false)
      await shows(page, ['user: cut', 'assistant: Hello'])
    })

    test('stops a reply, and sends the next message', async () => {
      const s = set.session()
      held('long')
      const page = await open(s)
      await send(page, 'long')
      await shows(page, ['user: long', 'assistant: Hel'])
      await page.locator('button').click()
      await page.locator('button').waitFor({ state: 'detached' })
      set.model.script('next', textScript(['more']))
      await send(page, 'next')
      await shows(page, ['user: long', 'assistant: Hel', 'user: next', 'assistant: more'])
      assert.equal((await s.snapshot()).body.messages.length, 4)
    })

    test('a message that never arrived stays on the page', async () => {
      const s = set.session()
      const page = await open(s)
      await page.locator('input:enabled').waitFor()
      line.down(true)
      await send(page, 'lost')
      await page.locator('[role=alert]').waitFor()
      line.down(false)
      await page.locator('[role=alert]').waitFor({ state: 'detached' })
      await shows(page, ['user: lost'])
    })

    test('a page of an origin that is not named is told so', async () => {
      await set.server.restart({ ALLOWED_ORIGINS: 'https://another.example' })
      try {
        const page = await open(set.session())
        assert.equal(await page.locator('[role=alert]').textContent(), 'Failed to fetch')
      } finally {
        await set.server.restart({ ALLOWED_ORIGINS: app.origin })
      }
    })
  })
}
