// Between a page's snapshot and its reconnect anything may happen: the reply goes on, ends, fails, is stopped, or another one follows.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { assertChatBody, assertRefused } from './harness/assertions.mjs'
import { makeChat, textOf } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { holdingProxy } from './harness/holding-proxy.mjs'
import { call } from './harness/session.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually, within } from './harness/wait.mjs'

let proxy
const set = stage({ ready: async ({ server }) => void (proxy = await holdingProxy(server.origin)) })
const BOUNDARIES = 10
after(() => proxy?.close())

/** The page of the README: its seed, and a transport that brings the snapshot's address back. */
const page = (version, s, { messages, reconnect }, origin = set.server.origin) =>
  makeChat(version, { id: s.id, origin, messages, transport: { prepareReconnectToStreamRequest: () => ({ api: `${origin}${reconnect}` }) } })

const follow = ({ reconnect }) => call(`${set.server.origin}${reconnect}`)
const typesOf = (answer) => answer.text.split('\n\n').filter((frame) => frame.includes('data: ')).map((frame) => /data: (.*)/.exec(frame)[1]).map((data) => (data === '[DONE]' ? data : JSON.parse(data).type))
const saidSoFar = async (s) => (await s.log()).filter(({ chunk }) => chunk.type === 'text-delta').map(({ chunk }) => chunk.delta).join('')

/** A script whose last steps each wait for a gate of their own: `reach(s, n)` lets n of them through, and waits until they are stored. */
function stepwise(words) {
  const script = textScript(words, { usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } })
  const gates = Array.from({ length: BOUNDARIES }, gate)
  const from = script.length - BOUNDARIES
  const steps = script.flatMap((item, at) => (at < from ? [item] : [step.waitFor(gates[at - from]), item]))
  const spoken = (count) => words.slice(0, from + count - 1).join('')
  return {
    text: script.text,
    steps,
    first: words[0],
    async reach(s, count) {
      gates.slice(0, count).forEach((g) => g.open())
      const over = count === BOUNDARIES
      await eventually(async () => (over ? (await s.info()).status !== 'active' : (await saidSoFar(s)) === spoken(count)), { what: `boundary ${count}` })
    },
    finish: () => gates.forEach((g) => g.open()),
  }
}

for (const version of ['6-latest', '7-latest']) {
  for (const query of ['?seed=1', '']) {
    test(`a reconnect that is held until any of the last ten boundaries shows the reply once (ai ${version}, snapshot${query})`, async () => {
      const one = async (boundary) => {
        const s = set.session()
        const { text, steps, first, reach, finish } = stepwise(Array.from({ length: 9 }, (_, i) => `w${i} `))
        set.model.script(s.id, steps)
        const sent = await s.send(s.id)
        await sent.until((frame) => frame.data?.includes(first))
        sent.cut()
        const { body } = await s.snapshot(query)
        assert.equal(body.status, 'active')
        const held = proxy.hold((request) => request.url.includes(`/${s.id}/stream`))
        const chat = await page(version, s, body, proxy.origin)
        const resumed = chat.resumeStream()
        await within(held.arrived)
        await reach(s, boundary)
        held.release()
        await chat.answered()
        finish()
        await within(resumed)
        const where = `held until boundary ${boundary}`
        assert.deepEqual(chat.seen.answers, [200], where)
        assert.equal(chat.status, 'ready', `${where}: ${chat.error?.message}`)
        assert.deepEqual(chat.messages.map((m) => [m.role, textOf(m)]), [['user', s.id], ['assistant', text]], where)
      }
      await Promise.all(Array.from({ length: BOUNDARIES }, (_, i) => one(i + 1)))
    })
  }
}

describe('a snapshot names its own reconnect', () => {
  test('which is nothing when the reply is over, however it ended', async () => {
    for (const end of ['completed', 'stopped', 'failed']) {
      const s = set.session(`at rest, ä ${end}`)
      const held = gate()
      set.model.script(s.id, end === 'failed' ? [...textScript(['one '], { finish: null }), step.error()] : textScript(['one ', ...(end === 'stopped' ? [held] : [])]))
      const sent = await s.send(s.id)
      if (end === 'stopped') {
        await sent.until((frame) => frame.data?.includes('one'))
        assert.equal((await s.stop()).body.stopped, true)
      }
      await sent.collect()
      for (const query of ['', '?seed=1']) {
        const { body } = await s.snapshot(query)
        assert.equal(body.reconnect, `/api/chat/${encodeURIComponent(s.id)}/stream?since=${body.streamSequence}`)
        assert.equal((await follow(body)).status, 204, `${end}${query}`)
      }
      assert.equal((await call(`${s.own}/snapshot`)).body.reconnect, (await s.snapshot()).body.reconnect)
    }
  })

  test('and a reply that ended since, by a stop or a failure, is told to its terminal', async () => {
    for (const [end, terminal] of [['completed', 'finish'], ['stopped', 'abort'], ['failed', 'error']]) {
      const s = set.session()
      const held = gate()
      set.model.script(s.id, end === 'failed' ? [...textScript(['one ', held], { finish: null }), step.error()] : textScript(['one ', held, 'two']))
      const sent = await s.send(s.id)
      await sent.until((frame) => frame.data?.includes('one'))
      const seeds = [(await s.snapshot()).body, (await s.snapshot('?seed=1')).body]
      if (end === 'stopped') await s.stop()
      held.open()
      await sent.collect()
      for (const seed of seeds) {
        const answer = await follow(seed)
        assert.equal(answer.status, 200, `${end}: ${answer.text}`)
        assert.deepEqual(typesOf(answer).slice(-2), [terminal, '[DONE]'], end)
        assert.match(answer.text, /"one /)
        const got = await (await s.reconnect()).collect()
        assert.equal(got.frames.filter(isData).length, 0, 'a stock reconnect, which names no cursor, has nothing to resume')
      }
    }
  })

  test('a stock client shows what was stopped and what failed meanwhile', async () => {
    for (const version of ['6-latest', '7-latest']) {
      for (const end of ['stopped', 'failed']) {
        const s = set.session()
        const held = gate()
        set.model.script(s.id, end === 'failed' ? [...textScript(['one ', held], { finish: null }), step.error()] : textScript(['one ', held]))
        const sent = await s.send(s.id)
        await sent.until((frame) => frame.data?.includes('one'))
        const { body } = await s.snapshot('?seed=1')
        if (end === 'stopped') await s.stop()
        held.open()
        await sent.collect()
        const chat = await page(version, s, body)
        await within(chat.resumeStream())
        assert.deepEqual([chat.status, chat.messages.map(textOf)], [end === 'failed' ? 'error' : 'ready', [s.id, 'one ']], `${version} ${end}`)
      }
    }
  })
})

describe('more than one reply since the snapshot', () => {
  test('is 409, and the snapshot that it names is complete', async () => {
    const s = set.session()
    for (const text of ['first', 'second', 'third']) set.model.script(text, textScript([`to ${text}`]))
    await s.ask('first')
    const old = (await s.snapshot()).body
    await s.ask('second')
    const told = await follow(old)
    assert.equal(told.status, 200, 'one reply came since')
    assert.match(told.text, /to second/)
    await s.ask('third')
    const stale = await follow(old)
    assertRefused(stale, 409)
    assert.deepEqual([stale.body.code, stale.body.retryable], ['state_snapshot_stale', true])
    const { body } = await call(`${set.server.origin}${stale.body.snapshot}`)
    assert.equal(textOf(body.messages.at(-1)), 'to third')
    assert.equal((await follow(body)).status, 204)
  })

  test('a cursor of another log is refused with the head; one that is none is 400; an unknown session has nothing', async () => {
    const s = set.session()
    set.model.script(s.id, textScript(['a']))
    await s.ask(s.id)
    const { head } = await s.info()
    const beyond = await call(`${s.chat}/stream?since=${head + 1}`)
    assertRefused(beyond, 409)
    assert.deepEqual([beyond.body.code, beyond.body.head], ['state_cursor_beyond_head', head])
    assert.match(beyond.body.snapshot, /snapshot$/)
    for (const since of ['', 'x', '-1', '1.5', 'undefined']) assertRefused(await call(`${s.chat}/stream?since=${since}`), 400, `since=${since}`)
    assert.equal((await call(`${set.session().chat}/stream?since=4`)).status, 204)
    assert.equal((await call(`${s.chat}/${s.id}/stream?since=${head}`)).status, 204, 'the address of a client that appends its chat id')
  })
})

describe('a run that waits for its page', () => {
  const TOOLS = [{ name: 'weather', inputSchema: { type: 'object' } }, { name: 'locate', inputSchema: { type: 'object' } }]
  const waiting = stage({ agents: (model) => ({ default: { producer: 'openai', baseUrl: model.baseUrl, model: 'm', tools: TOOLS } }) })
  const told = (reconnect) => call(`${waiting.server.origin}${reconnect}`)
  const submit = (s, toolCallId) => call(`${s.chat}/tool-result`, { json: { toolCallId, output: 'here' } })

  test('is in its snapshot and not told again; a seed leaves it out and is told it; answers behind its end are told', async () => {
    const s = waiting.session()
    const tool = ['weather', 'locate'].map((name, i) => ({ id: `c${i}`, name, arguments: '{}' }))
    waiting.model.script(s.id, textScript(['I ask. '], { tool }))
    const go = gate()
    waiting.model.script(s.id, textScript(['Both.', go]))
    await s.ask(s.id)
    const [full, seed] = [(await s.snapshot()).body, (await s.snapshot('?seed=1')).body]
    assert.equal(full.status, 'paused')
    assert.equal((await told(full.reconnect)).status, 204, 'the snapshot has it')
    assert.deepEqual([full.messages.length, seed.messages.length], [2, 1])
    const asked = await told(seed.reconnect)
    assert.match(asked.text, /I ask/)
    assert.deepEqual(typesOf(asked).slice(-2), ['finish', '[DONE]'])

    await submit(s, 'c0')
    for (const old of [full, seed]) assert.match((await told(old.reconnect)).text, /tool-output-available/, 'one answer came since')
    const partly = (await s.snapshot()).body
    assert.equal((await told(partly.reconnect)).status, 204)
    await submit(s, 'c1')
    const continued = await eventually(async () => {
      const { body } = await s.snapshot('?seed=1')
      return body.status === 'active' ? body : null
    })
    for (const old of [seed, full]) assert.equal((await told(old.reconnect)).body.code, 'state_snapshot_stale', 'another run took over, behind answers')
    assert.equal(continued.messages.length, 1)
    const held = told(continued.reconnect)
    const joined = told(partly.reconnect)
    go.open()
    for (const whole of [await held, await joined, await told(continued.reconnect)]) {
      assert.equal(whole.status, 200)
      assert.match(whole.text, /I ask[^]*tool-output-available[^]*Both/)
      assert.deepEqual(typesOf(whole).slice(-2), ['finish', '[DONE]'])
    }
    assert.equal((await told((await s.snapshot()).body.reconnect)).status, 204)
  })
})

describe('when retention has removed the chunks', () => {
  const short = stage({ vars: { RETENTION_MS: 1000 } })

  test('a reply that ended since is told from its message; one that left none is a stale snapshot', async () => {
    for (const [words, fails] of [[['one ', 'two'], false], [[], true]]) {
      const s = short.session()
      const held = gate()
      short.model.script(s.id, fails ? [step.waitFor(held), step.error()] : textScript([...words.slice(0, 1), held, ...words.slice(1)]))
      const sent = await s.send(s.id)
      const { body } = await s.snapshot('?seed=1')
      held.open()
      await sent.collect()
      const { head } = await s.info()
      await eventually(async () => (await s.info()).floor === head, { every: 100, what: 'the cut' })
      const answer = await call(`${short.server.origin}${body.reconnect}`)
      if (fails) assert.deepEqual([answer.status, answer.body.code], [409, 'state_snapshot_stale'])
      else {
        assert.match(answer.text, /one two/)
        assert.deepEqual(typesOf(answer).slice(-2), ['finish', '[DONE]'])
      }
      assert.equal((await call(`${short.server.origin}${(await s.snapshot()).body.reconnect}`)).status, 204)
    }
  })
})

test('a whole reply that is told after its end is a chat body like any other', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['a ', 'b'], { reasoning: ['hm'] }))
  const first = await (await s.send(s.id)).collect()
  const again = await (await s.reconnect()).collect()
  assert.equal(again.frames.length, 0)
  const { openSse } = await import('./harness/sse.mjs')
  const got = await (await openSse(`${s.chat}/stream?since=0`)).collect()
  await assertChatBody(got)
  assert.deepEqual(chunksOf(got.frames), chunksOf(first.frames))
})
