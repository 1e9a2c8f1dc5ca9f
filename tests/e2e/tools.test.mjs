// Tools that the client executes: the run that asks is suspended, and its answers continue the same message.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { answerCall, assertAsStored, callingChat, callsOf, saidLast, stateOf } from './harness/calls.mjs'
import { VERSIONS, foldAll, textOf, validateMessages } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call } from './harness/session.mjs'
import { chunksOf, openSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const TOOLS = [
  { name: 'weather', description: 'The weather.', inputSchema: { type: 'object', properties: { city: { type: 'string' } } } },
  { name: 'locate', description: 'Where the user is.' },
]
const WEATHER = { id: 'c1', name: 'weather', arguments: '{"city":"Bern"}' }
const LOCATE = { id: 'c2', name: 'locate', arguments: '{}' }
const ASKS = 'Let me see. '
const ABANDONED = /without answering/

const set = stage({
  vars: { LEASE_MS: 5000 },
  agents: (model) => ({
    default: { producer: 'openai', baseUrl: model.baseUrl, model: 'm', tools: TOOLS },
    demo: { producer: 'demo', paceMs: 1 },
  }),
})

let count = 0
/** A session whose run asks for these calls and is suspended; `then` is what the model says after the answers. */
async function asked(tools = [WEATHER], then = ['Sunny.'], { by } = {}) {
  const s = set.session()
  const text = `ask ${count++}`
  set.model.script(text, textScript([ASKS], { tool: tools }))
  if (then) set.model.script(text, textScript(then))
  const got = by ? await by.sendMessage({ text }) : await s.ask(text)
  return { s, text, got, requests: () => set.model.requests.filter((r) => r.lastUserText === text) }
}

/** The same with a client that sends. */
async function askedBy(version, tools, then, options) {
  const s = set.session()
  const chat = await callingChat(version, s, set.server.origin, options)
  const { text, requests } = await asked(tools, then, { by: chat })
  assert.equal(chat.status === 'error', false, chat.error?.message)
  return { s, chat, text, requests }
}

const reply = async (s) => (await s.snapshot()).body.messages.at(-1)
/** The stored messages with these calls of the last one answered. */
async function withAnswers(s, answers) {
  const { body } = await s.snapshot()
  const parts = body.messages.at(-1).parts.map((p) => (p.toolCallId in answers ? { ...p, state: 'output-available', output: answers[p.toolCallId] } : p))
  return [...body.messages.slice(0, -1), { ...body.messages.at(-1), parts }]
}
const post = async (s, messages, headers) =>
  openSse(s.chat, { headers, json: { id: s.id, messages, trigger: 'submit-message', messageId: messages.at(-1).id } })
const submit = (s, json) => call(`${s.chat}/tool-result`, { json })
const texts = (frames) => chunksOf(frames).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')

for (const version of VERSIONS) {
  describe(`ai ${version}`, { concurrency: true }, () => {
    test('an answer continues the same message', async () => {
      const { s, chat, requests } = await askedBy(version, [WEATHER], ['Sunny.'], { auto: 'calls' })
      assert.equal(stateOf(chat.lastMessage, 'c1'), 'input-available')
      const paused = await assertAsStored(version, chat, s, 'while it waits')
      assert.deepEqual([paused.status, paused.resumeMessageId, (await s.info()).status], ['paused', chat.lastMessage.id, 'paused'])
      await answerCall(chat, 'c1', 'weather', { sky: 'clear' })
      await saidLast(chat, 'Sunny.')
      const body = await assertAsStored(version, chat, s, 'in the end')
      assert.deepEqual([body.status, chat.messages.length, textOf(chat.lastMessage)], ['ended', 2, `${ASKS}Sunny.`])
      assert.deepEqual(requests()[1].body.messages.at(-1), { role: 'tool', tool_call_id: 'c1', content: '{"sky":"clear"}' })
      assert.equal(requests().length, 2)
    })

    test('onToolCall answers two calls at once', async () => {
      const options = {
        auto: 'calls',
        onToolCall: ({ toolCall }) => void answerCall(options.chat, toolCall.toolCallId, toolCall.toolName, `of ${toolCall.toolName}`),
      }
      const s = set.session()
      options.chat = await callingChat(version, s, set.server.origin, options)
      const { requests } = await asked([WEATHER, LOCATE], ['Both.'], { by: options.chat })
      await saidLast(options.chat, 'Both.')
      await assertAsStored(version, options.chat, s)
      assert.deepEqual(callsOf(options.chat.lastMessage).map((p) => p.output), ['of weather', 'of locate'])
      assert.equal(requests().length, 2)
    })

    test('a batch is answered one by one', async () => {
      const { s, chat, requests } = await askedBy(version, [WEATHER, LOCATE], ['Both.'])
      await answerCall(chat, 'c1', 'weather', 'rain')
      await chat.sendMessage()
      const body = await assertAsStored(version, chat, s, 'half way')
      assert.deepEqual([body.status, stateOf(chat.lastMessage, 'c1'), stateOf(chat.lastMessage, 'c2')], ['paused', 'output-available', 'input-available'])
      await chat.sendMessage()
      await assertAsStored(version, chat, s, 'the first answer once more')
      await answerCall(chat, 'c2', 'locate', { city: 'Bern' })
      await chat.sendMessage()
      await assertAsStored(version, chat, s, 'in the end')
      assert.equal(textOf(chat.lastMessage), `${ASKS}Both.`)
      assert.equal(requests().length, 2)
      await chat.sendMessage()
      await assertAsStored(version, chat, s, 'once more')
      assert.equal(requests().length, 2)
    })

    test('another client answers first, and its answer counts', async () => {
      const { s, chat, requests } = await askedBy(version, [WEATHER, LOCATE], ['Both.'], { auto: 'calls' })
      const first = await submit(s, { toolCallId: 'c1', output: 'theirs' })
      assert.deepEqual([first.status, first.body.status, first.body.continues], [200, 'accepted', false])
      await answerCall(chat, 'c1', 'weather', 'mine')
      await answerCall(chat, 'c2', 'locate', 'mine')
      await saidLast(chat, 'Both.')
      await assertAsStored(version, chat, s)
      assert.deepEqual(callsOf(chat.lastMessage).map((p) => p.output), ['theirs', 'mine'])
      assert.equal(requests().length, 2)
    })

    test('a reload while the run waits, and the answer from there', async () => {
      const { s, requests } = await asked()
      const seeded = (await s.snapshot('?seed=1')).body
      const chat = await callingChat(version, s, set.server.origin, { auto: 'calls', messages: seeded.messages })
      assert.equal(seeded.status, 'paused')
      await chat.resumeStream()
      await assertAsStored(version, chat, s, 'after the reload')
      assert.deepEqual(chat.seen.toolCalls.map((c) => c.toolCallId), ['c1'])
      await answerCall(chat, 'c1', 'weather', 'snow')
      await saidLast(chat, 'Sunny.')
      await assertAsStored(version, chat, s, 'in the end')
      assert.equal(requests().length, 2)
    })

    test('a reload between the answers of a batch shows the one that is there', async () => {
      const { s } = await asked([WEATHER, LOCATE], ['Both.'])
      await submit(s, { toolCallId: 'c1', output: 'rain' })
      const chat = await callingChat(version, s, set.server.origin, { auto: 'calls', messages: (await s.snapshot('?seed=1')).body.messages })
      await chat.resumeStream()
      await assertAsStored(version, chat, s, 'after the reload')
      await answerCall(chat, 'c2', 'locate', 'here')
      await saidLast(chat, 'Both.')
      await assertAsStored(version, chat, s, 'in the end')
    })

    test('a second tab in the continuation shows the whole message once', async () => {
      const hold = gate()
      const { s, chat } = await askedBy(version, [WEATHER], ['Sun', hold, 'ny.'], { auto: 'calls' })
      await answerCall(chat, 'c1', 'weather', 'sun')
      await chat.until((c) => textOf(c.lastMessage).endsWith('Sun'))
      const { body } = await s.snapshot()
      assert.equal(body.status, 'active')
      const seed = body.messages.filter((m) => m.id !== body.resumeMessageId)
      const tab = await callingChat(version, s, set.server.origin, { messages: (await s.snapshot('?seed=1')).body.messages })
      const helix = await callingChat(version, s, set.server.origin, {
        messages: seed,
        transport: {
          prepareReconnectToStreamRequest: () => ({
            api: s.chat,
            headers: { 'x-resume-from-sequence': String(body.streamSequence), 'x-existing-message-id': body.resumeMessageId, 'x-helix-replay-prefix': '1' },
          }),
        },
      })
      const followed = [tab, helix].map((c) => c.resumeStream())
      await Promise.all([tab, helix].map((c) => c.until((c) => textOf(c.lastMessage) === `${ASKS}Sun`)))
      hold.open()
      await within(Promise.all(followed))
      await saidLast(chat, 'Sunny.')
      for (const one of [chat, tab, helix]) await assertAsStored(version, one, s)
    })

    test('a send gives the waiting calls up', async () => {
      const { s, chat } = await askedBy(version, [WEATHER, LOCATE], null)
      await submit(s, { toolCallId: 'c1', output: 'rain' })
      set.model.script(`never mind ${version}`, textScript(['Fine.']))
      await chat.sendMessage({ text: `never mind ${version}` })
      assert.deepEqual([chat.status, textOf(chat.lastMessage), chat.messages.length], ['ready', 'Fine.', 4], chat.error?.message)
      assert.ok(!JSON.stringify(chat.messages).includes('data-'), 'a stock client is not told')
      const { body } = await s.snapshot()
      const earlier = body.messages[1]
      assert.deepEqual([stateOf(earlier, 'c1'), stateOf(earlier, 'c2')], ['output-available', 'output-error'])
      assert.match(callsOf(earlier)[1].errorText, ABANDONED)
      await validateMessages(version, body.messages)
      const request = set.model.requests.find((r) => r.lastUserText === `never mind ${version}`)
      const told = request.body.messages.filter((m) => m.role === 'tool')
      assert.deepEqual(told.map((m) => m.tool_call_id), ['c1', 'c2'])
      assert.equal(told[0].content, 'rain')
      assert.match(told[1].content, ABANDONED)
      await answerCall(chat, 'c2', 'locate', 'late')
      assert.deepEqual(await s.snapshot().then((r) => r.body.messages), body.messages)
    })

    for (const [ask, tools] of [['/tool', ['get_location']], ['/tools', ['get_location', 'get_time']]]) {
      test(`the demo’s ${ask}`, async () => {
        const s = set.session()
        const options = {
          auto: 'calls',
          agent: 'demo',
          onToolCall: ({ toolCall }) => void answerCall(options.chat, toolCall.toolCallId, toolCall.toolName, `it is ${toolCall.toolName}`),
        }
        const chat = (options.chat = await callingChat(version, s, set.server.origin, options))
        await chat.sendMessage({ text: `please ${ask}` })
        await saidLast(chat, 'a run of its own.')
        await assertAsStored(version, chat, s)
        assert.equal(chat.messages.length, 2)
        for (const tool of tools) assert.match(textOf(chat.lastMessage), new RegExp(`${tool} answered: "it is ${tool}"`))
      })
    }

    for (const approved of [true, false]) {
      test(`the demo’s /approve, ${approved ? 'granted' : 'refused'}`, async () => {
        const s = set.session()
        const chat = await callingChat(version, s, set.server.origin, { auto: 'approvals', agent: 'demo' })
        await chat.sendMessage({ text: '/approve' })
        const [waiting] = callsOf(chat.lastMessage)
        assert.equal(waiting.state, 'approval-requested')
        await assertAsStored(version, chat, s, 'while it waits')
        await chat.addToolApprovalResponse({ id: waiting.approval.id, approved, reason: 'so' })
        await saidLast(chat, 'a run of its own.')
        const { body } = await s.snapshot()
        assert.deepEqual([chat.status, textOf(chat.lastMessage)], ['ready', textOf(body.messages.at(-1))])
        const state = approved ? 'output-available' : 'output-denied'
        assert.deepEqual([stateOf(chat.lastMessage, waiting.toolCallId), stateOf(body.messages.at(-1), waiting.toolCallId)], [state, state])
        assert.match(textOf(chat.lastMessage), approved ? /was approved/ : /was denied: so/)
        await validateMessages(version, body.messages)
      })
    }
  })
}

describe('on the wire', () => {
  test('a suspended run ends with tool-calls and a pause, for whoever reads it', async () => {
    const { s, got } = await asked([WEATHER], null)
    await assertChatBody(got)
    assert.deepEqual(chunksOf(got.frames).at(-1).finishReason, 'tool-calls')
    const { terminal } = assertWireBody(await (await s.sse(0)).collect())
    assert.deepEqual([terminal.event, terminal.data.status], ['end', 'paused'])
    const again = await (await s.reconnect()).collect()
    await assertChatBody(again)
    assert.deepEqual(chunksOf(again.frames), chunksOf(got.frames))
    for (const cursor of [1, 3, (await s.info()).head]) {
      const rest = await (await s.resume(cursor)).collect()
      await assertChatBody(rest)
      assert.equal(chunksOf(rest.frames).at(-1).finishReason, 'tool-calls', `cursor ${cursor}`)
    }
  })

  test('the first of two answers gets an empty stream, the second the continuation, a repeat what it lacks', async () => {
    const hold = gate()
    const { s, got, requests } = await asked([WEATHER, LOCATE], ['Sun', hold, 'ny.'])
    const first = await (await post(s, await withAnswers(s, { c1: 1 }))).collect()
    assert.deepEqual([first.ended, chunksOf(first.frames)], ['clean', []])
    const whole = await withAnswers(s, { c1: 'never mind', c2: 2 })
    const second = await post(s, whole)
    await second.until((f) => f.data?.includes('Sun'))
    const repeat = await post(s, whole)
    const other = await submit(s, { toolCallId: 'c2', output: 'another' })
    assert.deepEqual([other.status, other.body.status, other.body.continues], [200, 'already_completed', false])
    hold.open()
    const bodies = await Promise.all([second.collect(), repeat.collect()])
    for (const body of bodies) {
      await assertChatBody(body)
      const chunks = chunksOf(body.frames)
      assert.deepEqual([chunks[0].messageId, texts(body.frames)], [chunksOf(got.frames)[0].messageId, 'Sunny.'])
      assert.deepEqual(chunks.filter((c) => c.type === 'tool-output-available').map((c) => c.output), [1, 2])
    }
    const stored = [await s.log(), (await s.snapshot()).body]
    const late = await (await post(s, whole)).collect()
    await assertChatBody(late)
    assert.equal(texts(late.frames), 'Sunny.', 'what a client lacks that lost the continuation')
    const done = await (await post(s, stored[1].messages)).collect()
    assert.deepEqual(chunksOf(done.frames), [], 'nothing for one that has it')
    assert.deepEqual([await s.log(), (await s.snapshot()).body], stored, 'repeats store nothing')
    assert.equal(requests().length, 2)
    assert.deepEqual(callsOf(await reply(s)).map((p) => p.output), [1, 2])
  })

  test('what does not fit is refused with one body, and stores nothing', async () => {
    const { s } = await asked([WEATHER], null)
    const before = [await s.log(), (await s.snapshot()).body]
    const message = before[1].messages.at(-1)
    const changed = (more) => [before[1].messages[0], { ...message, parts: message.parts.map((p) => (p.toolCallId ? { ...p, ...more } : p)) }]
    const answers = [
      await submit(s, { toolCallId: 'nope', output: 1 }),
      await submit(s, { toolCallId: 'c1' }),
      await submit(s, { toolCallId: 'c1', approved: true }),
      await submit(s, { toolCallId: 'c1', output: 1, runId: 'run_other' }),
      await submit(s, { toolCallId: 'c1', output: 'x'.repeat(1 << 20) }),
      await call(`${s.chat}/tool-result`, { body: '{"toolCallId":"c1","output":{"__proto__":1}}' }),
      await call(s.chat, { json: { id: s.id, messages: changed({ state: 'output-error' }) } }),
      await call(s.chat, { json: { id: s.id, messages: changed({ state: 'approval-responded', approval: { approved: true } }) } }),
    ]
    for (const answer of answers) {
      assertRefused(answer, 400)
      assert.deepEqual([answer.body.code, answer.body.error], ['INVALID_RESULT', 'The tool result is not valid'])
    }
    assert.equal(new Set(answers.map((a) => a.text)).size, 1)
    assert.deepEqual([await s.log(), (await s.snapshot()).body], before)
    assertRefused(await submit(set.session(), { toolCallId: 'c1', output: 1 }), 404)
  })

  for (const aware of [true, false]) {
    test(`a send that gives calls up ${aware ? 'tells an aware response once a call' : 'tells a stock response nothing'}, and what comes later is late`, async () => {
      const { s } = await asked([WEATHER, LOCATE], null)
      const answered = await withAnswers(s, { c1: 1, c2: 2 })
      const run = (await s.log())[0].chunk.runId
      const text = `instead ${aware}`
      set.model.script(text, textScript(['Fine.']))
      const got = await s.ask(text, { headers: aware ? { 'x-resume-from-sequence': '0' } : {} })
      await assertChatBody(got)
      const chunks = chunksOf(got.frames)
      assert.equal(chunks.filter((c) => c.type.startsWith('tool-')).length, 0)
      const told = chunks.filter((c) => c.type === 'data-tool-output-elsewhere').map((c) => c.data)
      assert.deepEqual(told.map((d) => [d.reason, d.toolCallId, d.toolName]), aware ? [['tool_output_elsewhere', 'c1', 'weather'], ['tool_output_elsewhere', 'c2', 'locate']] : [])
      for (const version of VERSIONS) assert.equal((await foldAll(version, got.raw, answered, { as: 'send' })).status, 'ready')
      const stored = [await s.log(), (await s.snapshot()).body]
      for (const late of [
        await submit(s, { toolCallId: 'c1', output: 1 }),
        await submit(s, { toolCallId: 'c1', output: 1, runId: run }),
        await call(s.chat, { json: { id: s.id, messages: answered } }),
      ]) {
        assertRefused(late, 409)
        assert.equal(late.body.code, 'state_run_superseded')
      }
      assert.deepEqual([await s.log(), (await s.snapshot()).body], stored)
    })
  }

  test('a stop of a suspended run settles its calls', async () => {
    const { s, text } = await asked([WEATHER, LOCATE], null)
    await submit(s, { toolCallId: 'c1', output: 'rain' })
    const { body } = await s.stop()
    assert.equal(body.stopped, true)
    const stopped = (await s.snapshot()).body
    assert.deepEqual([stopped.status, stateOf(stopped.messages.at(-1), 'c1'), stateOf(stopped.messages.at(-1), 'c2')], ['ended', 'output-available', 'output-error'])
    for (const version of VERSIONS) await validateMessages(version, stopped.messages)
    const again = await (await s.resume()).collect()
    await assertChatBody(again)
    assert.equal((await s.reconnect()).status, 204)
    const late = await submit(s, { toolCallId: 'c2', output: 1 })
    assert.deepEqual([late.status, late.body.status], [200, 'already_completed'])
    set.model.script(`${text} next`, textScript(['ok']))
    const next = await s.ask(`${text} next`)
    assert.equal(texts(next.frames), 'ok')
    assert.deepEqual(set.model.requests.at(-1).body.messages.filter((m) => m.role === 'tool').map((m) => m.tool_call_id), ['c1', 'c2'])
  })

  test('a kill between the answers, and in the continuation', async () => {
    const { s, requests } = await asked([WEATHER, LOCATE], ['Sun', gate()])
    const kill = async () => {
      await set.server.kill()
      await set.server.start()
    }
    await submit(s, { toolCallId: 'c1', output: 'rain' })
    const before = [await s.log(), (await s.snapshot()).body]
    await kill()
    assert.deepEqual([await s.log(), (await s.snapshot()).body], before)
    const second = await post(s, await withAnswers(s, { c2: 'here' }))
    await second.until((f) => f.data?.includes('Sun'))
    assert.match(requests()[1].body.messages.at(-2).content, /rain/)
    await kill()
    assert.equal((await second.collect()).ended, 'broken')
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.messages.length, textOf(body.messages.at(-1))], ['failed', 2, `${ASKS}Sun`])
    assert.deepEqual(callsOf(body.messages.at(-1)).map((p) => p.output), ['rain', 'here'])
    for (const version of VERSIONS) await validateMessages(version, body.messages)
    set.model.script('after the kill', textScript(['alive']))
    assert.equal(texts((await s.ask('after the kill')).frames), 'alive')
  })

  test('an answer by one client is followed by another that waits for nothing', async () => {
    const hold = gate()
    const { s, got } = await asked([WEATHER], ['Sun', hold, 'ny.'])
    const { body } = await s.snapshot()
    const accepted = await submit(s, { toolCallId: 'c1', output: 'clear' })
    assert.deepEqual([accepted.body.status, accepted.body.continues], ['accepted', true])
    const readers = [await s.reconnect(), await s.resume(body.streamSequence, { messageId: body.resumeMessageId })]
    hold.open()
    const [stock, cursor] = await Promise.all(readers.map((r) => r.collect()))
    for (const got of [stock, cursor]) await assertChatBody(got)
    assert.deepEqual([texts(stock.frames), texts(cursor.frames)], [`${ASKS}Sunny.`, 'Sunny.'])
    assert.equal(chunksOf(cursor.frames)[0].messageId, chunksOf(got.frames)[0].messageId)
    const { terminal } = assertWireBody(await (await s.sse(0)).collect())
    assert.equal(terminal.data.status, 'completed')
  })
})
