// The real clients against the real Worker: every version folds every way of leaving and coming back to the model's script, once.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, idsOf } from './harness/assertions.mjs'
import { VERSIONS, foldAll, makeChat, reasoningOf, textOf, validateMessages } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { chunksOf, isData, isDone } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const set = stage()
const WORDS = ['Hel', 'lo, ', 'wör', 'ld ', '👋🏽']
const THOUGHTS = ['hm, ', 'so']
const REPLY = WORDS.join('')

/** Every delta behind a gate of its own: `open(k)` lets the model say its first k deltas, `open()` everything. */
function gated() {
  const gates = [...THOUGHTS, ...WORDS].map(() => gate())
  const behind = (list, offset) => list.flatMap((text, i) => [gates[offset + i], text])
  const end = gate()
  const script = textScript([...behind(WORDS, THOUGHTS.length), end], { reasoning: behind(THOUGHTS, 0), usage: { total_tokens: 9 } })
  const open = (count) => [...gates.slice(0, count ?? gates.length), ...(count === undefined ? [end] : [])].forEach((g) => g.open())
  return { script, open, count: gates.length }
}

const saidBy = (message) => reasoningOf(message) + textOf(message)
const saidAfter = (count) => [...THOUGHTS, ...WORDS].slice(0, count).join('')

function assertWhole(chat, context) {
  const replies = chat.messages.filter((m) => m.role === 'assistant')
  assert.equal(chat.status, 'ready', `${context}: ${chat.error?.message}`)
  assert.equal(replies.length, 1, `${context}: ${JSON.stringify(chat.messages)}`)
  assert.equal(textOf(replies[0]), REPLY, context)
  assert.equal(reasoningOf(replies[0]), THOUGHTS.join(''), context)
}

const clientFor = (version, s, options = {}) => makeChat(version, { id: s.id, origin: set.server.origin, ...options })

for (const version of VERSIONS) {
  describe(`ai ${version}`, () => {
    test('sends and reads; a second turn follows', async () => {
      const s = set.session()
      const chat = await clientFor(version, s)
      const { script, open } = gated()
      set.model.script('hello', script)
      open()
      await chat.sendMessage({ text: 'hello' })
      assertWhole(chat, 'first turn')
      set.model.script('again', textScript(['more']))
      await chat.sendMessage({ text: 'again' })
      assert.equal(chat.status, 'ready', chat.error?.message)
      assert.deepEqual(chat.messages.map((m) => [m.role, textOf(m)]), [['user', 'hello'], ['assistant', REPLY], ['user', 'again'], ['assistant', 'more']])
      const { body } = await s.snapshot()
      assert.deepEqual(body.messages.map((m) => m.id), chat.messages.map((m) => m.id))
      await validateMessages(version, body.messages)
    })

    test('reloads at every delta of a reply and reconnects', async () => {
      const total = gated().count
      for (let at = 0; at <= total; at++) {
        const s = set.session()
        const { script, open } = gated()
        set.model.script(`reload ${version} ${at}`, script)
        const first = await clientFor(version, s)
        const sent = first.sendMessage({ text: `reload ${version} ${at}` })
        open(at)
        await first.answered()
        await first.until((c) => at === 0 || saidBy(c.lastMessage) === saidAfter(at))
        await first.stop()
        await sent
        const { body } = await s.snapshot('?seed=1')
        assert.equal(body.status, 'active', `at ${at}`)
        const second = await clientFor(version, s, { messages: body.messages })
        const resumed = second.resumeStream()
        await second.answered()
        open()
        await within(resumed)
        assertWhole(second, `reload at ${at}`)
        assert.equal(second.messages.length, 2)
      }
    })

    test('resumes from a snapshot and its cursor', async () => {
      const s = set.session()
      const { script, open } = gated()
      set.model.script('snapshot', script)
      const first = await s.send('snapshot')
      open(4)
      await first.until((f) => f.data?.includes(WORDS[1]))
      first.cut()
      const { body } = await s.snapshot()
      const chat = await clientFor(version, s, {
        messages: body.messages.filter((m) => m.id !== body.resumeMessageId),
        transport: {
          prepareReconnectToStreamRequest: () => ({
            api: s.chat,
            headers: { 'x-resume-from-sequence': String(body.streamSequence), 'x-existing-message-id': body.resumeMessageId },
          }),
        },
      })
      const resumed = chat.resumeStream()
      await chat.answered()
      open()
      await within(resumed)
      assertWhole(chat, 'snapshot and cursor')
      assert.equal(chat.lastMessage.id, body.resumeMessageId)
    })

    test('is stopped from a second client', async () => {
      const s = set.session()
      const { script, open } = gated()
      set.model.script(`stop ${version}`, script)
      const sender = await clientFor(version, s)
      const sent = sender.sendMessage({ text: `stop ${version}` })
      open(4)
      await sender.until((c) => textOf(c.lastMessage) === 'Hello, ')
      const follower = await clientFor(version, s, { messages: (await s.snapshot('?seed=1')).body.messages })
      const followed = follower.resumeStream()
      await follower.until((c) => textOf(c.lastMessage) === 'Hello, ')
      const stopped = await s.stop()
      assert.deepEqual([stopped.status, stopped.body.success], [200, true])
      await within(Promise.all([sent, followed]), 10_000, 'the end of both responses')
      for (const chat of [sender, follower]) assert.deepEqual([chat.status, textOf(chat.lastMessage)], ['ready', 'Hello, '])
      await within(set.model.requests.find((r) => r.lastUserText === `stop ${version}`).aborted, 10_000, 'the end of the model call')
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', 'Hello, '])
      await validateMessages(version, body.messages)
    })

    test('two tabs render the same reply', async () => {
      const s = set.session()
      const { script, open } = gated()
      set.model.script('tabs', script)
      const one = await clientFor(version, s)
      const sent = one.sendMessage({ text: 'tabs' })
      open(3)
      await one.until((c) => textOf(c.lastMessage) === 'Hel')
      const two = await clientFor(version, s, { messages: (await s.snapshot('?seed=1')).body.messages })
      const followed = two.resumeStream()
      await two.until((c) => textOf(c.lastMessage) === 'Hel')
      open()
      await within(Promise.all([sent, followed]))
      assertWhole(one, 'the sender')
      assertWhole(two, 'the other tab')
      assert.equal(two.lastMessage.id, one.lastMessage.id)
      assert.deepEqual(two.lastMessage.parts, one.lastMessage.parts)
    })

    test('stays ready when there is nothing to resume', async () => {
      const s = set.session()
      const chat = await clientFor(version, s, { messages: [userMessage('old')] })
      await chat.resumeStream()
      assert.deepEqual([chat.status, chat.messages.length], ['ready', 1])
      set.model.script('idle', textScript(['done']))
      await s.ask('idle')
      const { body } = await s.snapshot()
      const reloaded = await clientFor(version, s, { messages: body.messages })
      await reloaded.resumeStream()
      assert.deepEqual([reloaded.status, reloaded.messages], ['ready', body.messages])
    })

    test('gets a tool call of the model', async () => {
      const s = set.session()
      set.model.script('tool', textScript(['let me see'], { tool: { id: 'call-1', name: 'weather', arguments: '{"city":"Bern"}' } }))
      const chat = await clientFor(version, s)
      await chat.sendMessage({ text: 'tool' })
      assert.notEqual(chat.status, 'error', chat.error?.message)
      const part = chat.lastMessage.parts.find((p) => p.toolCallId === 'call-1')
      assert.deepEqual([part.state, part.input], ['input-available', { city: 'Bern' }])
    })
  })
}

describe('on the wire', () => {
  test('a reload after every frame replays the whole response, for every version', async () => {
    const probe = await (async () => {
      const { script, open } = gated()
      set.model.enqueue(script)
      open()
      return set.session().ask('probe')
    })()
    await assertChatBody(probe)
    const data = probe.frames.filter(isData)
    const total = data.length
    const lastDelta = data.findLastIndex((f) => f.data.includes('"delta"')) + 1
    for (let at = 1; at <= total; at++) {
      const s = set.session()
      const { script, open, count } = gated()
      set.model.enqueue(script)
      const first = await s.send('cut')
      open(count)
      if (at > lastDelta) open() // what follows comes only when the model ends, and the run with it
      await first.take(at)
      first.cut()
      const again = await s.reconnect()
      open()
      const got = await again.collect()
      const seed = [userMessage('cut', 'u')]
      if (again.status === 204) {
        assert.ok(at > lastDelta, `frame ${at} of ${total}: the run was still going on`)
        assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), REPLY)
        continue
      }
      await assertChatBody(got)
      assert.deepEqual(withoutId(chunksOf(got.frames)), withoutId(chunksOf(probe.frames)), `reload after frame ${at}`)
      for (const version of VERSIONS) assertWhole(await foldAll(version, got.raw, seed), `ai ${version}, frame ${at}`)
    }
  })

  test('a resume by cursor after every frame brings exactly the rest', async () => {
    const s = set.session()
    const { script, open, count } = gated()
    set.model.enqueue(script)
    const first = await s.send('cursor')
    open(count)
    await first.until((f) => f.data?.includes(WORDS.at(-1)))
    const seen = first.frames.filter((f) => f.id !== undefined)
    const readers = await Promise.all(seen.map((frame) => s.resume(frame.id)))
    const byLastEventId = await s.resume(undefined, { headers: { 'last-event-id': seen[3].id } })
    open()
    const whole = chunksOf((await first.collect()).frames)
    const deltas = (chunks) => chunks.filter((c) => c.delta !== undefined).map((c) => c.delta).join('')
    for (const [index, reader] of readers.entries()) {
      const got = await reader.collect()
      await assertChatBody(got)
      const before = deltas(chunksOf(first.frames.slice(0, first.frames.indexOf(seen[index]) + 1)))
      const rest = chunksOf(got.frames)
      assert.equal(before + deltas(rest), deltas(whole), `cursor ${seen[index].id}`)
      assert.equal(rest[0].type, 'start')
      assert.equal(rest[0].messageId, whole[0].messageId)
      assert.ok(idsOf(got.frames).every((id) => id > Number(seen[index].id)))
      for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, [userMessage('x')])).status, 'ready', `ai ${version}`)
      if (index === 3) assert.deepEqual((await byLastEventId.collect()).raw, got.raw, 'Last-Event-ID is the same cursor')
    }
  })

  test('five GETs at once are equal byte for byte, and cost no model call', async () => {
    const s = set.session()
    const { script, open } = gated()
    set.model.enqueue(script)
    const sent = await s.send('five')
    open(3)
    await sent.until((f) => f.data?.includes('Hel'))
    const calls = set.model.requests.length
    const readers = await Promise.all(Array.from({ length: 5 }, () => s.reconnect()))
    open()
    const bodies = await Promise.all(readers.map((r) => r.collect()))
    for (const got of bodies) {
      await assertChatBody(got)
      assert.equal(got.text, bodies[0].text)
    }
    const own = await sent.collect()
    assert.deepEqual(chunksOf(own.frames), chunksOf(bodies[0].frames), 'and equal to the first response')
    assert.equal(set.model.requests.length, calls)
  })

  test('a GET one millisecond after the POST’s headers is served', async () => {
    for (let round = 0; round < 10; round++) {
      const s = set.session()
      const { script, open } = gated()
      set.model.enqueue(script)
      const sent = await s.send('window')
      await new Promise((r) => setTimeout(r, 1))
      const reader = await s.reconnect()
      assert.equal(reader.status, 200)
      open()
      const [own, got] = await Promise.all([sent.collect(), reader.collect()])
      assert.deepEqual(chunksOf(got.frames), chunksOf(own.frames))
      assertWhole(await foldAll('7-latest', got.raw, [userMessage('window')]), `round ${round}`)
    }
  })

  test('both spellings of the routes are one session', async () => {
    const s = set.session()
    const { script, open } = gated()
    set.model.enqueue(script)
    const chat = await makeChat('6-latest', { id: s.id, api: s.chat })
    const sent = chat.sendMessage({ text: 'spelling' })
    open(3)
    await chat.until((c) => textOf(c.lastMessage) === 'Hel')
    const tab = await makeChat('6-latest', { id: s.id, api: s.chat, messages: [userMessage('spelling')] })
    const followed = tab.resumeStream()
    await tab.answered()
    open()
    await within(Promise.all([sent, followed]))
    assertWhole(chat, 'api with the id')
    assertWhole(tab, '/api/chat/:id/:id/stream')
  })

  test('an idle session answers 204 with no body', async () => {
    const s = set.session()
    const unknown = await (await s.reconnect()).collect()
    set.model.enqueue(textScript(['done']))
    await s.ask('finish')
    const reader = await s.reconnect()
    assert.deepEqual([reader.status, (await reader.collect()).raw.length, unknown.raw.length], [204, 0, 0])
  })

  test('the headers and the first comment come before the model says anything', async () => {
    const s = set.session()
    const { script, open } = gated()
    set.model.enqueue(script)
    const sent = await s.send('headers')
    assert.equal(sent.headers['x-vercel-ai-ui-message-stream'], 'v1')
    assert.match(sent.headers['content-type'], /^text\/event-stream/)
    assert.match(sent.headers['cache-control'], /no-cache.*no-transform|no-transform.*no-cache/)
    assert.equal(sent.headers['content-encoding'], undefined)
    assert.notEqual((await sent.next()).comment, undefined)
    open()
    const got = await sent.collect()
    await assertChatBody(got)
    assert.ok(isDone(got.frames.filter(isData).at(-1)))
  })

  test('a second send while a run is live is refused and disturbs nothing', async () => {
    const s = set.session()
    const { script, open } = gated()
    set.model.enqueue(script)
    const sent = await s.send('busy')
    const refused = await (await s.send('second')).collect()
    const answer = JSON.parse(refused.text)
    assert.deepEqual([answer.code, answer.retryable], ['state_already_running', true])
    open()
    await assertChatBody(await sent.collect())
    assert.equal((await s.snapshot()).body.messages.length, 2)
  })
})

const withoutId = (chunks) => chunks.map(({ messageId, id, messageMetadata, ...chunk }) => chunk)
