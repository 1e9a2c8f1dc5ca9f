// Messages that wait for their answer: stored at once, answered in their order, or visibly refused.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { plainly } from '../chaos/workerd.mjs'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { makeChat, textOf, validateMessages } from './harness/clients.mjs'
import { AWARE, answered, asked, chunksIn, contract, deltasIn, keyed, typesIn } from './harness/contract.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { ok, producer, ui } from './harness/producer.mjs'
import { openaiAgent } from './harness/server.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { chunkScript, saying, startUiRoute } from './harness/ui-route.mjs'
import { eventually } from './harness/wait.mjs'

const route = await startUiRoute()
after(() => route.close())
const agents = (model) => ({
  ...openaiAgent(model, { onBusy: ['queue', 'refuse', 'interrupt'] }),
  route: { producer: 'ui', url: route.url, headers: ['authorization'], onBusy: 'queue' },
})
const set = stage({ agents, vars: { BATCH_WAIT_MS: 20, HEARTBEAT_MS: 200, MAX_QUEUED: 3, MAX_ATTEMPTS: 3, RECOVERY: 'retry' }, start: plainly })
const busy = (way) => ({ 'x-rejoin-busy': way })
const queuedOf = async (s) => ((await s.snapshot()).body.queued ?? []).map(textOf)
const last = (got) => got.frames.map((f) => f.data).filter((data) => data !== undefined)

/** A running reply, and responses of messages that wait behind it. */
async function waiting(...texts) {
  const s = contract(set)
  const first = await s.held('one')
  const posts = []
  for (const text of texts) {
    const message = userMessage(text)
    set.model.script(text, textScript([`re ${text}`]))
    posts.push({ text, message, response: await s.post({ messages: [message] }) })
  }
  return { s, first, posts }
}

describe('a message that waits', () => {
  test('is stored, stands in `queued`, and is answered next: three, in their order, each on its own response', async () => {
    const { s, first, posts } = await waiting('two', 'three', 'four')
    const wire = await s.sse(0)
    assert.deepEqual([await queuedOf(s), await s.said()], [['two', 'three', 'four'], ['one']])
    assert.equal((await s.info()).queued, 3)
    await posts[2].response.until((f) => f.comment !== undefined && f.comment.includes('keep-alive'))
    first.held.open()
    assert.equal(deltasIn(await first.sent.collect()), 'part of one rest')
    for (const { text, response } of posts) {
      assert.equal(response.status, 200)
      const got = await response.collect()
      await assertChatBody(got)
      assert.equal(deltasIn(got), `re ${text}`)
    }
    assert.deepEqual(await s.said(), ['one', 'part of one rest', 'two', 're two', 'three', 're three', 'four', 're four'])
    assert.deepEqual([await queuedOf(s), (await s.info()).queued], [[], undefined])
    assert.deepEqual(asked(set.model.requests.at(-1)).slice(-3), ['user: three', 'assistant: re three', 'user: four'])
    const wired = await wire.collect()
    assert.equal(assertWireBody(wired).terminal.data.status, 'completed')
    assert.ok(wired.text.includes('re four'), 'one response told of all four runs')
  })

  test('one more than MAX_QUEUED is refused, typed', async () => {
    const { s, first, posts } = await waiting('two', 'three', 'four')
    const refused = await s.refused({ messages: [userMessage('five')] })
    assertRefused(refused, 409)
    assert.deepEqual([refused.body.code, refused.body.maxQueued, refused.body.retryable, refused.body.runId], ['state_queue_full', 3, true, first.runId])
    assert.deepEqual(await queuedOf(s), ['two', 'three', 'four'])
    first.held.open()
    for (const { response } of posts) await response.collect()
    assert.equal((await s.said()).includes('five'), false)
  })

  test('a repeat waits with it, by its id and by its key; other content under the key is refused', async () => {
    const s = contract(set)
    const { held } = await s.held('one')
    const message = userMessage('two')
    set.model.script('two', textScript(['once']))
    const own = await s.post({ messages: [message] }, keyed('k'))
    const again = await s.post({ messages: [message] })
    const byKey = await s.post({ messages: [{ ...message, id: 'other-id' }] }, { ...keyed('k'), ...busy('interrupt') })
    const conflict = await s.refused({ messages: [userMessage('three')] }, keyed('k'))
    assert.deepEqual([conflict.status, conflict.body.code], [409, 'state_request_key_conflict'])
    held.open()
    for (const response of [own, again, byKey]) assert.equal(deltasIn(await response.collect()), 'once')
    assert.deepEqual(await s.said(), ['one', 'part of one rest', 'two', 'once'])
    const replay = await s.post({ messages: [message] }, keyed('k'))
    assert.equal(deltasIn(await replay.collect()), 'once', 'the key is the run’s')
  })

  test('an edit of it takes its place, and both responses get the answer to the new words', async () => {
    const { s, first, posts } = await waiting('two', 'three')
    set.model.script('two, edited', textScript(['re edited']))
    const edited = { ...posts[0].message, parts: [{ type: 'text', text: 'two, edited' }] }
    const other = await s.post({ messages: [edited] })
    assert.deepEqual(await queuedOf(s), ['two, edited', 'three'])
    first.held.open()
    for (const response of [posts[0].response, other]) assert.equal(deltasIn(await response.collect()), 're edited')
    await posts[1].response.collect()
    assert.deepEqual((await s.said()).filter((_, i) => i % 2 === 0), ['one', 'two, edited', 'three'])
  })

  test('its client may leave: it is answered all the same', async () => {
    const { s, first, posts } = await waiting('two')
    posts[0].response.cut()
    first.held.open()
    await eventually(async () => (await s.said()).at(-1) === 're two', { what: 'the answer' })
  })

  for (const version of ['7-latest', '6.0.0']) {
    test(`ai ${version}: another tab's message waits and is shown once`, async () => {
      const { s, first } = await waiting()
      const chat = await makeChat(version, { id: s.id, origin: set.server.origin })
      set.model.script('from here', textScript(['for you']))
      const sending = chat.sendMessage({ text: 'from here' })
      await eventually(async () => (await queuedOf(s)).length === 1, { what: 'the message in the queue' })
      first.held.open()
      await sending
      assert.deepEqual([chat.status, textOf(chat.messages.at(-1))], ['ready', 'for you'])
      for (const client of ['7-latest', '6.0.0']) await validateMessages(client, (await s.snapshot()).body.messages)
    })
  }
})

describe('what happens before it', () => {
  test('a stop clears the queue: who waits is told, nothing of it is stored', async () => {
    const { s, first, posts } = await waiting('two', 'three')
    const stopped = (await s.stop()).body
    assert.deepEqual([stopped.stopped, stopped.cleared], [true, posts.map(({ message }) => message.id)])
    assert.equal(typesIn(await first.sent.collect()).at(-1), 'abort')
    for (const { response } of posts) {
      const got = await response.collect()
      assert.equal(last(got).at(-1), '[DONE]')
      assert.match(chunksIn(got).at(-1).errorText, /was not answered.*send it again/)
    }
    assert.deepEqual([await queuedOf(s), await s.said()], [[], ['one', 'part of one']])
    first.held.open()
    assert.equal(deltasIn(await (await s.post({ messages: [posts[0].message] })).collect()), 're two', 'it may be sent again')
  })

  test('a failed reply does not keep it waiting', async () => {
    const s = contract(set)
    const run = await producer(s).open({ message: userMessage('pushed') })
    const response = await s.post({ messages: [userMessage('two')] })
    set.model.script('two', textScript(['re two']))
    ok(await run.append([ui.step, ui.start(), ui.text('half')]))
    ok(await run.fail({ code: 'provider_overloaded', message: 'busy' }))
    assert.equal(deltasIn(await response.collect()), 're two')
    assert.deepEqual(await s.said(), ['pushed', 'half', 'two', 're two'])
  })

  test('an interrupt, an edit and a retry go first; what waits stays', async () => {
    const { s, first, posts } = await waiting('two')
    const held = gate()
    set.model.script('now', textScript(['at once', held]))
    const interrupting = await s.post({ messages: [userMessage('now')] }, busy('interrupt'))
    await interrupting.until((f) => f.data?.includes('at once'))
    assert.deepEqual([await queuedOf(s), await s.said()], [['two'], ['one', 'part of one', 'now']])
    set.model.script('one, again', textScript(['anew']))
    const edit = { ...first.message, parts: [{ type: 'text', text: 'one, again' }] }
    assert.equal(deltasIn(await (await s.post({ messages: [edit] })).collect()), 'anew')
    assert.equal(deltasIn(await posts[0].response.collect()), 're two')
    first.held.open()
    held.open()
    assert.deepEqual(await s.said(), ['one, again', 'anew', 'two', 're two'])
  })

  test('answers to a suspended run go first; a further message gives the calls up, and the first that waits goes on', async () => {
    for (const answers of [true, false]) {
      const s = contract(set)
      const held = gate()
      set.model.script('ask', textScript(['I ask. ', held], { tool: [{ id: 'c1', name: 'ask', arguments: '{}' }] }))
      const message = userMessage('ask')
      const sent = await s.post({ messages: [message] })
      await sent.until((f) => f.data?.includes('I ask'))
      for (const text of ['two', 'three']) set.model.script(text, textScript([`re ${text}`]))
      const two = await s.post({ messages: [userMessage('two')] })
      held.open()
      await sent.collect()
      assert.deepEqual([(await s.snapshot()).body.status, await queuedOf(s)], ['paused', ['two']])
      let three
      if (answers) {
        set.model.enqueue(textScript(['thanks']))
        const reply = (await s.snapshot()).body.messages.at(-1)
        await (await s.post({ messages: [message, answered(reply, { c1: 'yes' })] })).collect()
      } else {
        three = await s.post({ messages: [userMessage('three')] })
      }
      assert.equal(deltasIn(await two.collect()), 're two')
      if (three) assert.equal(deltasIn(await three.collect()), 're three')
      const said = await s.said()
      assert.deepEqual(said, answers ? ['ask', 'I ask. thanks', 'two', 're two'] : ['ask', 'I ask. ', 'two', 're two', 'three', 're three'])
    }
  })

  test('a pushed run: its end is acknowledged, and again when it is repeated; the next run is the deployment’s', async () => {
    const s = contract(set)
    const p = producer(s)
    const message = userMessage('pushed')
    const run = await p.open({ message, vocabulary: 'helix' })
    ok(await run.append([{ type: 'step_start' }, { type: 'text_delta', delta: 'said' }]))
    set.model.script('two', textScript(['re two']))
    const waits = userMessage('two')
    const response = await s.post({ messages: [waits] }, AWARE)
    const taken = await p.ask({ vocabulary: 'ui', supersede: true, message: waits })
    assertRefused(taken, 400)
    const seq = run.next
    const end = await run.end({ status: 'completed' })
    assert.deepEqual([end.status, end.body.status], [200, 'completed'])
    const again = await run.end({ status: 'completed' }, { seq })
    assert.deepEqual([again.status, again.body.status], [200, 'completed'], again.text)
    assert.equal(deltasIn(await response.collect()), 're two')
    assert.deepEqual(await s.said(), ['pushed', 'said', 'two', 're two'])
  })

  test('deleting the session takes the queue with it', async () => {
    const { s, first, posts } = await waiting('two')
    await s.delete()
    const got = await posts[0].response.collect()
    assert.equal(got.ended, 'broken')
    first.held.open()
    assert.deepEqual((await s.seam('counts')).body, {})
  })
})

describe('a queue over a restart', () => {
  test('goes on after a kill, and a repeat of its POST attaches', async () => {
    const { s, first, posts } = await waiting('two', 'three')
    set.model.script('one', textScript(['again']))
    await set.server.kill()
    await set.server.start()
    first.held.open()
    const again = await s.post({ messages: [posts[1].message] })
    const got = await again.collect()
    assert.equal(deltasIn(got), 're three')
    await eventually(async () => (await s.snapshot()).body.status === 'ended', { what: 'the end' })
    assert.deepEqual(await s.said(), ['one', 'again', 'two', 're two', 'three', 're three'])
    assert.deepEqual(await queuedOf(s), [])
  })

  test('a chat route is asked with the headers of its own POST, and after a kill with those of the repeat', async () => {
    for (const kills of [false, true]) {
      const s = contract(set)
      const [one, two] = [`one ${kills}`, `two ${kills}`]
      const held = gate()
      set.model.script(one, textScript(['part', held]), { times: 3 })
      const sent = await s.post({ messages: [userMessage(one)] })
      await sent.until((f) => f.data?.includes('part'))
      route.script(two, chunkScript(saying('from the route')), 2).open()
      const message = userMessage(two)
      let response = await s.post({ messages: [message], agent: 'route' }, { authorization: 'first' })
      if (kills) {
        await set.server.kill()
        await set.server.start()
        response = await s.post({ messages: [message], agent: 'route' }, { authorization: 'second' })
      }
      held.open()
      const got = await response.collect()
      assert.equal(deltasIn(got), 'from the route', got.text)
      assert.equal(route.to(two).at(-1).headers.authorization, kills ? 'second' : 'first')
    }
  })
})
