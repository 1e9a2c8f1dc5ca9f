// Whatever happens to a reply, its text is shown once: an answer asked for again, an attempt that is taken back, an edited question.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertAsStored } from './harness/calls.mjs'
import { REPLACES_ON_REPLAY, VERSIONS, makeChat, textOf } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const set = stage({ vars: { MAX_ATTEMPTS: 2 } })

/** What the model answers to this, one answer after the other. */
const says = (text, ...answers) => answers.forEach((answer) => set.model.script(text, textScript([answer].flat())))
const shown = (chat) => chat.messages.map((m) => textOf(m))
const sentTo = (text) => set.model.requests.filter((r) => r.lastUserText === text).map((r) => r.body.messages.map((m) => m.content))

async function chatOf(version, text) {
  const s = set.session()
  return { s, chat: await makeChat(version, { id: s.id, origin: set.server.origin }), text: `${text} ${version}` }
}

/** A page that is opened now shows the same. */
async function assertReloads(version, s, chat) {
  await assertAsStored(version, chat, s)
  const page = await makeChat(version, { id: s.id, origin: set.server.origin, messages: (await s.snapshot('?seed=1')).body.messages })
  await page.resumeStream()
  await assertAsStored(version, page, s, 'after a reload')
}

for (const version of VERSIONS) {
  describe(`ai ${version}`, { concurrency: true }, () => {
    test('an answer that is asked for again takes the place of the first', async () => {
      const { s, chat, text } = await chatOf(version, 'again')
      says(text, ['first ', 'answer'], ['second ', 'answer'], ['third ', 'answer'])
      await chat.sendMessage({ text })
      await chat.regenerate()
      await assertReloads(version, s, chat)
      await chat.regenerate({ messageId: chat.lastMessage.id })
      await assertReloads(version, s, chat)
      assert.deepEqual(shown(chat), [text, 'third answer'])
      assert.deepEqual(sentTo(text), [[text], [text], [text]])
      says('and then', 'fine')
      await chat.sendMessage({ text: 'and then' })
      await assertReloads(version, s, chat)
      assert.deepEqual(shown(chat), [text, 'third answer', 'and then', 'fine'])
    })

    test('an answer that is stopped and asked for again', async () => {
      const { s, chat, text } = await chatOf(version, 'stopped')
      says(text, ['half ', gate()], ['whole ', 'answer'])
      const sent = chat.sendMessage({ text })
      await chat.until((c) => textOf(c.lastMessage) === 'half ')
      await s.stop()
      await within(sent)
      await chat.regenerate()
      await assertReloads(version, s, chat)
      assert.deepEqual(shown(chat), [text, 'whole answer'])
    })

    test('an answer that is asked for again while it is written', async () => {
      const { s, chat, text } = await chatOf(version, 'impatient')
      const hold = gate()
      says(text, ['half ', gate()], ['whole ', hold, 'answer'])
      const sent = chat.sendMessage({ text })
      await chat.until((c) => textOf(c.lastMessage) === 'half ')
      const tab = await makeChat(version, { id: s.id, origin: set.server.origin, messages: (await s.snapshot('?seed=1')).body.messages })
      const followed = tab.resumeStream()
      await tab.until((c) => textOf(c.lastMessage) === 'half ')
      await chat.stop()
      await sent
      const again = chat.regenerate()
      await chat.until((c) => textOf(c.lastMessage) === 'whole ')
      await within(followed, 10_000, 'the end of the other tab’s response')
      assert.equal(tab.status, 'error', 'the other tab sees a break, and comes back')
      tab.messages = (await s.snapshot('?seed=1')).body.messages
      const back = tab.resumeStream()
      await tab.until((c) => textOf(c.lastMessage) === 'whole ')
      hold.open()
      await within(Promise.all([again, back]))
      await assertAsStored(version, tab, s, 'the other tab')
      await assertReloads(version, s, chat)
      assert.deepEqual(shown(chat), [text, 'whole answer'])
    })

    test('an attempt that is taken back', async () => {
      const { s, chat, text } = await chatOf(version, 'attempt')
      const [fails, ends] = [gate(), gate()]
      set.model.script(text, [...textScript(['Hel', fails], { finish: null }), step.error('busy', 'overloaded')])
      says(text, ['Hello', ends, '!'])
      const sent = chat.sendMessage({ text })
      await chat.until((c) => textOf(c.lastMessage) === 'Hel')
      fails.open()
      await within(sent)
      if (!REPLACES_ON_REPLAY.includes(version)) chat.messages = (await s.snapshot('?seed=1')).body.messages
      const resumed = chat.resumeStream()
      ends.open()
      await within(resumed)
      await assertReloads(version, s, chat)
      assert.deepEqual(shown(chat), [text, 'Hello!'])
      says(`${text} next`, 'fine')
      await chat.sendMessage({ text: `${text} next` })
      assert.deepEqual(sentTo(`${text} next`), [[text, 'Hello!', `${text} next`]])
      await assertReloads(version, s, chat)
    })

    test('an edited question', async () => {
      const { s, chat, text } = await chatOf(version, 'edit')
      says(text, 'one')
      says(`${text} b`, 'two')
      says(`${text} c`, 'three', 'four')
      await chat.sendMessage({ text })
      await chat.sendMessage({ text: `${text} b` })
      const [{ id }] = chat.messages
      await chat.sendMessage({ text: `${text} c`, messageId: id })
      await assertReloads(version, s, chat)
      assert.deepEqual([shown(chat), chat.messages[0].id], [[`${text} c`, 'three'], id])
      await chat.regenerate()
      await assertReloads(version, s, chat)
      assert.deepEqual(shown(chat), [`${text} c`, 'four'])
      assert.deepEqual(sentTo(`${text} c`), [[`${text} c`], [`${text} c`]])
    })
  })
}
