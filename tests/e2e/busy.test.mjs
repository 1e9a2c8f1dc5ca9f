// A send that finds a reply under way: refused, or answered at once in its place. What is said so far is kept.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { makeChat, textOf, validateMessages } from './harness/clients.mjs'
import { AWARE, asked, contract, deltasIn, eventsIn, keyed, typesIn } from './harness/contract.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { ok, producer, ui } from './harness/producer.mjs'
import { openaiAgent } from './harness/server.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { chunkScript, saying, startUiRoute } from './harness/ui-route.mjs'
import { eventually, within } from './harness/wait.mjs'

const route = await startUiRoute()
after(() => route.close())
const agents = (model) => {
  const one = openaiAgent(model).default
  return {
    default: one,
    refuses: { ...one, onBusy: 'refuse' },
    interrupts: { ...one, onBusy: 'interrupt' },
    both: { ...one, onBusy: ['refuse', 'interrupt'] },
    route: { producer: 'ui', url: route.url },
  }
}
const set = stage({ agents, vars: { BATCH_WAIT_MS: 20, MAX_ATTEMPTS: 3, RECOVERY: 'retry' } })
const busy = (way) => ({ 'x-rejoin-busy': way })
const kinds = (got) => got.frames.map((f) => f.data).filter((data) => data !== undefined)

/** What the page holds of the conversation: the message, and of the reply what it has seen. */
const pageOf = async (s, message, said) => [message, { id: (await s.snapshot()).body.resumeMessageId, role: 'assistant', parts: [{ type: 'text', text: said }] }]

describe('by default', () => {
  test('a page that knows of the run interrupts it: the partial reply is kept, its responses end, the wire goes on', async () => {
    const s = contract(set)
    const { message, sent, held } = await s.held('one')
    const wire = await s.sse(0)
    const second = userMessage('two')
    set.model.script('two', textScript(['the answer']))
    const got = await (await s.post({ messages: [...(await pageOf(s, message, 'part of one')), second] })).collect()
    await assertChatBody(got)
    assert.equal(deltasIn(got), 'the answer')
    const ended = await sent.collect()
    await assertChatBody(ended)
    assert.deepEqual(kinds(ended).slice(-2), ['{"type":"abort"}', '[DONE]'])
    held.open()
    assert.deepEqual(await s.said(), ['one', 'part of one', 'two', 'the answer'])
    const wired = await wire.collect()
    const { terminal } = assertWireBody(wired)
    assert.equal(terminal.data.status, 'completed', 'one response told of both runs')
    assert.ok(wired.text.includes('the answer'))
    assert.deepEqual(asked(set.model.requests.at(-1)).slice(-3), ['user: one', 'assistant: part of one', 'user: two'])
    const { messages } = (await s.snapshot()).body
    for (const version of ['7-latest', '6.0.0']) await validateMessages(version, messages)
  })

  test('another page, an aware one, and the second of two at one instant are refused, and nothing is stored', async () => {
    const s = contract(set)
    const { message, sent, held, runId } = await s.held('first')
    const history = await pageOf(s, message, 'part of first')
    for (const [json, headers] of [
      [{ messages: [userMessage('from another tab')] }, {}],
      [{ message: userMessage('an app that sends the last message only') }, {}],
      [{ messages: [userMessage('an old one'), userMessage('that this session never had')] }, {}],
      [{ messages: [...history, userMessage('aware')] }, AWARE],
      [{ messages: [...history, userMessage('asks to be refused')] }, busy('refuse')],
    ]) {
      const refused = await s.refused(json, headers)
      assertRefused(refused, 409)
      assert.deepEqual([refused.body.code, refused.body.runId, refused.body.retryable], ['state_already_running', runId, true])
    }
    assert.deepEqual(await s.said(), ['first'])
    held.open()
    assert.equal(deltasIn(await sent.collect()), 'part of first rest')
  })

  for (const version of ['7-latest', '6.0.0']) {
    test(`ai ${version}: stop() and then a message, without the stop route`, async () => {
      const s = contract(set)
      const chat = await makeChat(version, { id: s.id, origin: set.server.origin })
      const held = gate()
      set.model.script('tell me', textScript(['a long ', held, 'story']))
      const first = chat.sendMessage({ text: 'tell me' })
      await eventually(() => textOf(chat.messages.at(-1) ?? { parts: [] }) === 'a long ', { what: 'the first words' })
      await chat.stop()
      await first
      set.model.script('something else', textScript(['something else, then']))
      await chat.sendMessage({ text: 'something else' })
      assert.deepEqual([chat.status, chat.error], ['ready', undefined])
      assert.equal(textOf(chat.messages.at(-1)), 'something else, then')
      held.open()
      assert.deepEqual(await s.said(), ['tell me', 'a long ', 'something else', 'something else, then'])
    })
  }
})

describe('X-Rejoin-Busy and onBusy', () => {
  test('a request chooses to interrupt: stock or aware, whether it knows of the run or not', async () => {
    for (const headers of [busy('interrupt'), { ...busy('interrupt'), ...AWARE }]) {
      const s = contract(set)
      const { sent, held } = await s.held('one')
      set.model.script('two', textScript(['now']))
      const got = await (await s.post({ messages: [userMessage('two')] }, headers)).collect()
      assert.equal(deltasIn(got), 'now')
      assert.deepEqual(eventsIn(got, 'stream-resync'), [], 'nothing was cut')
      assert.deepEqual(typesIn(await sent.collect()).at(-1), 'abort')
      held.open()
      assert.deepEqual(await s.said(), ['one', 'part of one', 'two', 'now'])
    }
  })

  test('the agent says what it does and what it allows', async () => {
    for (const [agent, header, does] of [
      ['interrupts', {}, 'interrupts'],
      ['refuses', {}, 'refuses'],
      ['refuses', busy('interrupt'), 'not allowed'],
      ['interrupts', busy('refuse'), 'not allowed'],
      ['both', {}, 'refuses'],
      ['both', busy('interrupt'), 'interrupts'],
      ['both', busy('queue'), 'not allowed'],
    ]) {
      const what = `${agent} ${JSON.stringify(header)}`
      const s = contract(set)
      const { message, sent, held } = await s.held('one', { agent })
      const messages = [...(await pageOf(s, message, 'part of one')), userMessage('two')]
      set.model.script('two', textScript(['now']))
      if (does === 'interrupts') {
        assert.equal(deltasIn(await (await s.post({ messages }, header)).collect()), 'now', what)
      } else {
        const refused = await s.refused({ messages }, header)
        assertRefused(refused, 409, what)
        assert.equal(refused.body.code, 'state_already_running', what)
        assert.equal(refused.body.cause, does === 'refuses' ? undefined : 'busy_not_allowed', what)
        if (does === 'not allowed') assert.deepEqual(refused.body.allowed, agent === 'both' ? ['refuse', 'interrupt'] : [agent.slice(0, -1)], what)
      }
      held.open()
      await sent.collect()
    }
  })

  test('what is not allowed is no matter while nothing runs; a word that is none is refused at once', async () => {
    const s = contract(set)
    assert.equal(deltasIn((await s.told('hello', 'hi', { agent: 'refuses', headers: busy('interrupt') })).got), 'hi')
    const refused = await s.refused({ messages: [userMessage('x')] }, busy('wait'))
    assertRefused(refused, 400)
    assert.match(refused.body.error, /X-Rejoin-Busy must be refuse, interrupt or queue/)
    assert.deepEqual(await s.said(), ['hello', 'hi'])
  })

  test('a repeat of the message, or its key, attaches and interrupts nothing', async () => {
    const s = contract(set)
    const { message, sent, held } = await s.held('one', { headers: keyed('k') })
    const again = await s.post({ messages: [message] }, busy('interrupt'))
    const byKey = await s.post({ messages: [{ ...message, id: 'another-id' }] }, { ...busy('interrupt'), ...keyed('k') })
    held.open()
    for (const response of [sent, again, byKey]) assert.equal(deltasIn(await response.collect()), 'part of one rest')
    assert.deepEqual(await s.said(), ['one', 'part of one rest'])
  })

  test('two that interrupt at one instant: each is stored, one of the replies is partial', async () => {
    for (let round = 0; round < 5; round++) {
      const s = contract(set)
      const { sent, held } = await s.held('one')
      set.model.script(/^(two|three)$/, textScript(['a reply']), { times: 2 })
      const both = await Promise.all(['two', 'three'].map((text) => s.post({ messages: [userMessage(text)] }, busy('interrupt'))))
      assert.deepEqual(both.map((r) => r.status), [200, 200])
      const bodies = await Promise.all(both.map((response) => response.collect()))
      for (const got of bodies) await assertChatBody(got)
      assert.equal(typesIn(await sent.collect()).at(-1), 'abort')
      held.open()
      const said = await s.said()
      assert.deepEqual(said.filter((text) => ['one', 'two', 'three'].includes(text)).toSorted(), ['one', 'three', 'two'], said.join(' | '))
      assert.equal(said.at(-1), 'a reply')
    }
  })

  test('a suspended run is superseded as ever, whatever is wanted', async () => {
    for (const way of ['refuse', 'interrupt', 'queue']) {
      const s = contract(set)
      await s.suspended('ask', ['c1'])
      set.model.script('go on', textScript(['gone on']))
      assert.equal(deltasIn(await (await s.post({ messages: [userMessage('go on')] }, busy(way))).collect()), 'gone on', way)
    }
  })

  test('an edit, a regenerate and a retry take the place of the run as ever', async () => {
    const s = contract(set)
    const { message, sent, held } = await s.held('one')
    set.model.script('one, edited', textScript(['other']))
    const edit = { ...message, parts: [{ type: 'text', text: 'one, edited' }] }
    assert.equal(deltasIn(await (await s.post({ messages: [edit] }, busy('refuse'))).collect()), 'other')
    await sent.collect()
    held.open()
    assert.deepEqual(await s.said(), ['one, edited', 'other'])
  })

  test('an interrupt outlives a kill: the partial reply, the message, and one run that goes on', async () => {
    const s = contract(set)
    const { held } = await s.held('one')
    const stuck = gate()
    set.model.script('two, killed', textScript(['half ', stuck]), { times: 5 })
    const second = await s.post({ messages: [userMessage('two, killed')] }, busy('interrupt'))
    await second.until((f) => f.data?.includes('half'))
    await set.server.kill()
    await set.server.start()
    held.open()
    stuck.open()
    await eventually(async () => (await s.snapshot()).body.status === 'ended', { what: 'the end of the run that was tried again' })
    assert.deepEqual((await s.said()).slice(0, 3), ['one', 'part of one', 'two, killed'])
  })
})

describe('every kind of producer', () => {
  test('a pushed run keeps what it has not committed, and its producer is told', async () => {
    for (const vocabulary of ['ui', 'helix']) {
      const s = contract(set)
      const run = await producer(s).open({ message: userMessage('one'), vocabulary })
      const chunks = vocabulary === 'ui' ? [ui.step, ui.start(), ui.text('half '), ui.text('said')] : [{ type: 'step_start' }, { type: 'text_delta', delta: 'half ' }, { type: 'text_delta', delta: 'said' }]
      ok(await run.append(chunks))
      const follower = await s.reconnect()
      const listening = run.control()
      set.model.script('two', textScript(['now']))
      assert.equal(deltasIn(await (await s.post({ messages: [userMessage('two')] }, busy('interrupt'))).collect()), 'now')
      const told = await within(listening, 5000, 'the interrupt')
      assert.deepEqual([told.body.status, told.body.stopRequested, told.body.superseded], ['interrupted', true, false])
      const late = await run.append([ui.text('late')])
      assert.deepEqual([late.status, late.body.code, late.body.runStatus, late.body.stopRequested], [409, 'state_run_ended', 'interrupted', true])
      const got = await follower.collect()
      await assertChatBody(got)
      assert.deepEqual(kinds(got).slice(-2), ['{"type":"abort"}', '[DONE]'], vocabulary)
      assert.deepEqual(await s.said(), ['one', 'half said', 'two', 'now'], vocabulary)
    }
  })

  test('a run that waits for its own producer is interrupted, its calls given up', async () => {
    const s = contract(set)
    const run = await producer(s).open({ message: userMessage('one') })
    ok(await run.last([ui.step, ui.start(), ui.text('I ask.'), ui.end(), ui.call('c1'), ui.stepEnd], { pause: { kind: 'awaiting_children' } }))
    set.model.script('two', textScript(['now']))
    assert.equal(deltasIn(await (await s.post({ messages: [userMessage('two')] }, busy('interrupt'))).collect()), 'now')
    const { messages } = (await s.snapshot()).body
    assert.deepEqual(messages.map(textOf), ['one', 'I ask.', 'two', 'now'])
    assert.equal(messages[1].parts.find((part) => part.toolCallId).state, 'output-error')
    assert.equal((await run.control()).body.status, 'interrupted')
  })

  test('a producer that supersedes keeps what the run before it has said, as stop does', async () => {
    for (const inside of [true, false]) {
      const s = contract(set)
      if (inside) {
        await s.held('one')
      } else {
        ok(await (await producer(s).open({ message: userMessage('one') })).append([ui.step, ui.start(), ui.text('part of one')]))
      }
      const next = await producer(s).open({ message: userMessage('two'), supersede: true })
      ok(await next.append([ui.step, ui.start(), ui.text('partly')]))
      assert.equal((await s.stop()).body.stopped, true)
      const { messages } = (await s.snapshot()).body
      assert.deepEqual(messages.map(textOf), ['one', 'part of one', 'two', 'partly'], inside ? 'inside the object' : 'pushed')
      for (const version of ['7-latest', '6.0.0']) await validateMessages(version, messages)
    }
  })

  test('a chat route: the request to it is closed at once, and the next one has the partial reply', async () => {
    const s = contract(set)
    route.script('one', chunkScript(saying('half ', 'never'))).open(4)
    route.script('two', chunkScript(saying('now'))).open()
    const sent = await s.post({ messages: [userMessage('one')], agent: 'route' })
    await sent.until((f) => f.data?.includes('half'))
    const got = await (await s.post({ messages: [userMessage('two')] }, busy('interrupt'))).collect()
    assert.equal(deltasIn(got), 'now')
    await within(route.to('one')[0].aborted, 5000, 'the end of the request to the route')
    assert.equal(typesIn(await sent.collect()).at(-1), 'abort')
    assert.deepEqual(route.to('two')[0].body.messages.map(textOf), ['one', 'half ', 'two'])
    assert.deepEqual(await s.said(), ['one', 'half ', 'two', 'now'])
  })
})
