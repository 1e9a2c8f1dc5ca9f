// Chat interfaces as apps install them, over the wiring of README and docs/clients.md: what each shows and what is stored, through everything a page does.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { startLine } from './harness/line.mjs'
import { openPage } from './harness/pages.mjs'
import { stage } from './harness/stage.mjs'
import { eventually, within } from './harness/wait.mjs'

const TOOLS = [
  { name: 'weather', description: 'The weather.', inputSchema: { type: 'object' } },
  { name: 'remove', description: 'Removes a file.', inputSchema: { type: 'object' }, approval: true },
]
const set = stage({
  agents: (model) => {
    const agent = { producer: 'openai', baseUrl: model.baseUrl, model: 'm', tools: TOOLS }
    return { default: agent }
  },
})

const shown = (page) => page.messages().map((m) => [m.role, textOf(m)])
const stored = async (s) => (await s.snapshot()).body.messages
const callOf = (message) => message?.parts.find((p) => p.toolCallId)
const ready = (page) => page.status() === 'ready'
const endsIn = (text) => (page) => ready(page) && textOf(page.last()) === text
/** A script that says `first`, waits for the gate, and says the rest. */
const held = (first, rest) => {
  const hold = gate()
  return { hold, script: textScript([first, hold, rest]) }
}

/** The page shows what is stored, each message once and under its own id. */
async function assertAsStored(page, s, expected) {
  const messages = await stored(s)
  assert.deepEqual(messages.map((m) => [m.role, textOf(m)]), expected)
  assert.deepEqual(shown(page), expected)
  assert.deepEqual(page.messages().map((m) => m.id), messages.map((m) => m.id))
  assert.equal(page.status(), 'ready', page.error())
}

/** Title; the page; what it cannot do by itself. */
const PAGES = [
  ['react of ai 6', 'react-6'],
  ['react of ai 7', 'react-7'],
  ['vue', 'vue'],
  ['svelte', 'svelte'],
  ['assistant-ui', 'assistant'],
  ['assistant-ui over a chat', 'assistant', { mount: 'mountChat' }],
  ['the bare hook of ai 6', 'react-6', { mount: 'mountPlain', staysAway: true }],
  ['the bare hook of ai 7', 'react-7', { mount: 'mountPlain', staysAway: true }],
]

for (const [title, name, { mount, staysAway } = {}] of PAGES) {
  describe(title, () => {
    let count = 0
    /** A page of a session: a new one, or the one that another page shows. */
    const open = async (s = set.session(), origin = set.server.origin) => {
      const page = await openPage(name, { mount, id: s.id, origin })
      await page.opened
      return Object.assign(page, { s })
    }
    const words = (what) => `${what} ${title} ${count++}`

    test('sends, and sends again', async (t) => {
      const page = await open()
      t.after(page.close)
      const [first, second] = [words('one'), words('two')]
      set.model.script(first, textScript(['Hel', 'lo']))
      page.send(first)
      await page.until(endsIn('Hello'))
      set.model.script(second, textScript(['more']))
      page.send(second)
      await page.until(endsIn('more'))
      await assertAsStored(page, page.s, [['user', first], ['assistant', 'Hello'], ['user', second], ['assistant', 'more']])
    })

    test('is reloaded in the middle of a reply, and behind it', async (t) => {
      const text = words('reload')
      const { hold, script } = held('Hel', 'lo')
      set.model.script(text, script)
      const before = await open()
      before.send(text)
      await before.until((p) => textOf(p.last()) === 'Hel')
      before.close()
      const page = await open(before.s)
      t.after(page.close)
      await page.until((p) => textOf(p.last()) === 'Hel')
      hold.open()
      await page.until(endsIn('Hello'))
      const expected = [['user', text], ['assistant', 'Hello']]
      await assertAsStored(page, page.s, expected)
      const behind = await open(before.s)
      t.after(behind.close)
      await behind.until((p) => p.messages().length === 2)
      await assertAsStored(behind, page.s, expected)
    })

    test('shows the same reply in two tabs', async (t) => {
      const text = words('tabs')
      const { hold, script } = held('Hel', 'lo')
      set.model.script(text, script)
      const one = await open()
      one.send(text)
      await one.until((p) => textOf(p.last()) === 'Hel')
      const two = await open(one.s)
      t.after(() => [one, two].forEach((p) => p.close()))
      await two.until((p) => textOf(p.last()) === 'Hel')
      hold.open()
      for (const page of [one, two]) {
        await page.until(endsIn('Hello'))
        await assertAsStored(page, one.s, [['user', text], ['assistant', 'Hello']])
      }
    })

    test('comes back by itself when its connection breaks, also behind the reply’s end', { skip: staysAway }, async (t) => {
      const line = await startLine(set.server)
      t.after(line.close)
      const page = await open(set.session(), line.origin)
      t.after(page.close)
      const text = words('cut')
      const { hold, script } = held('Hel', 'lo')
      set.model.script(text, script)
      page.send(text)
      await page.until((p) => textOf(p.last()) === 'Hel')
      line.cut()
      await page.until((p) => p.status() !== 'streaming', 'the break')
      await page.until((p) => p.status() === 'streaming' && textOf(p.last()) === 'Hel', 'the reconnect')
      line.down(true)
      hold.open()
      await eventually(async () => (await page.s.snapshot()).body.status === 'ended')
      line.down(false)
      await page.until(endsIn('Hello'))
      await assertAsStored(page, page.s, [['user', text], ['assistant', 'Hello']])
    })

    test('stops the reply, and sends', async (t) => {
      const page = await open()
      t.after(page.close)
      const [text, next] = [words('stop'), words('next')]
      set.model.script(text, held('Hel', 'lo').script)
      page.send(text)
      await page.until((p) => textOf(p.last()) === 'Hel')
      await page.stop()
      await page.until(ready)
      await within(set.model.requests.find((r) => r.lastUserText === text).aborted, 10_000, 'the end of the model call')
      set.model.script(next, textScript(['more']))
      page.send(next)
      await page.until(endsIn('more'))
      await assertAsStored(page, page.s, [['user', text], ['assistant', 'Hel'], ['user', next], ['assistant', 'more']])
    })

    test('only closes its socket, and sends: the reply is interrupted, its words stay', { skip: name === 'assistant' }, async (t) => {
      const page = await open()
      t.after(page.close)
      const [text, next] = [words('leave'), words('next')]
      set.model.script(text, held('Hel', 'lo').script)
      page.send(text)
      await page.until((p) => textOf(p.last()) === 'Hel')
      await page.closeSocket()
      await page.until(ready)
      set.model.script(next, textScript(['more']))
      page.send(next)
      await page.until(endsIn('more'))
      await assertAsStored(page, page.s, [['user', text], ['assistant', 'Hel'], ['user', next], ['assistant', 'more']])
    })

    test('edits', async (t) => {
      const page = await open()
      t.after(page.close)
      const [first, second, edited] = [words('one'), words('two'), words('edited')]
      for (const text of [first, second]) {
        set.model.script(text, textScript([`to ${text}`]))
        page.send(text)
        await page.until(endsIn(`to ${text}`))
      }
      set.model.script(edited, textScript([`to ${edited}`]))
      page.edit(page.messages()[2].id, edited)
      await page.until(endsIn(`to ${edited}`))
      await assertAsStored(page, page.s, [['user', first], ['assistant', `to ${first}`], ['user', edited], ['assistant', `to ${edited}`]])
      assert.deepEqual(set.model.requests.at(-1).body.messages.map((m) => m.content), [first, `to ${first}`, edited])
    })

    test('regenerates', async (t) => {
      const page = await open()
      t.after(page.close)
      const text = words('again')
      for (const reply of ['first', 'second']) set.model.script(text, textScript([reply]))
      page.send(text)
      await page.until(endsIn('first'))
      const old = page.last().id
      page.regenerate()
      await page.until(endsIn('second'))
      await assertAsStored(page, page.s, [['user', text], ['assistant', 'second']])
      assert.notEqual(page.last().id, old, 'a reply of its own')
    })

    test('keeps the branches of a reply, and goes on from the older one', { skip: name !== 'assistant' }, async (t) => {
      const page = await open()
      t.after(page.close)
      const [text, next] = [words('branch'), words('next')]
      for (const reply of ['first', 'second']) set.model.script(text, textScript([reply]))
      page.send(text)
      await page.until(endsIn('first'))
      page.regenerate()
      await page.until(endsIn('second'))
      assert.equal(page.branches(page.last().id), 2)
      page.previousBranch(page.last().id)
      await page.until(endsIn('first'))
      set.model.script(next, textScript(['more']))
      page.send(next)
      await page.until(endsIn('more'))
      assert.deepEqual(shown(page), [['user', text], ['assistant', 'first'], ['user', next], ['assistant', 'more']])
      assert.deepEqual((await stored(page.s)).map(textOf), [text, next, 'more'], 'the server keeps one branch')
    })

    test('answers a call, before and after a reload', async (t) => {
      for (const reloads of [false, true]) {
        let page = await open()
        const text = words('call')
        set.model.script(text, textScript(['Let me see. '], { tool: { id: `c-${text}`, name: 'weather', arguments: '{"city":"Bern"}' } }))
        set.model.script(text, textScript(['Sunny.']))
        page.send(text)
        await page.until((p) => ready(p) && callOf(p.last())?.state === 'input-available')
        if (reloads) {
          page.close()
          page = await open(page.s)
          await page.until((p) => callOf(p.last())?.state === 'input-available')
        }
        t.after(page.close)
        page.answer('weather', callOf(page.last()).toolCallId, { sky: 'clear' })
        await page.until(endsIn('Let me see. Sunny.'))
        await assertAsStored(page, page.s, [['user', text], ['assistant', 'Let me see. Sunny.']])
        assert.deepEqual(callOf(page.last()).output, { sky: 'clear' })
        assert.equal(set.model.requests.filter((r) => r.lastUserText === text).length, 2)
      }
    })

    test('grants and denies what needs an approval', async (t) => {
      for (const grants of [true, false]) {
        const page = await open()
        t.after(page.close)
        const text = words('approve')
        set.model.script(text, textScript(['May I? '], { tool: { id: `d-${text}`, name: 'remove', arguments: '{"path":"a"}' } }))
        set.model.script(text, textScript(['Done.']))
        page.send(text)
        await page.until((p) => ready(p) && callOf(p.last())?.state === 'approval-requested')
        page.approve(callOf(page.last()).approval.id, grants)
        if (grants) {
          await page.until((p) => ready(p) && callOf(p.last())?.state === 'input-available', 'the offer of the granted call')
          page.answer('remove', callOf(page.last()).toolCallId, 'removed')
        }
        await page.until(endsIn('May I? Done.'))
        await assertAsStored(page, page.s, [['user', text], ['assistant', 'May I? Done.']])
        assert.equal(callOf((await stored(page.s)).at(-1)).state, grants ? 'output-available' : 'output-denied')
      }
    })
  })
}

test('assistant-ui resumes by the stream’s name that it remembers of a response', async (t) => {
  const s = set.session()
  const open = async () => {
    const page = await openPage('assistant', { mount: 'mountStored', id: s.id, origin: set.server.origin })
    await page.opened
    return page
  }
  const { hold, script } = held('Hel', 'lo')
  set.model.script('stored', script)
  const before = await open()
  before.send('stored')
  await before.until((p) => textOf(p.last()) === 'Hel')
  before.close()
  const page = await open()
  t.after(page.close)
  await page.until((p) => textOf(p.last()) === 'Hel')
  hold.open()
  await page.until(endsIn('Hello'))
  await assertAsStored(page, s, [['user', 'stored'], ['assistant', 'Hello']])
})
