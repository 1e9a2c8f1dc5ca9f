// What a producer outside says in each vocabulary, and what chat and wire readers see of it: the same as of a run in the object.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody, idsOf } from './harness/assertions.mjs'
import { assertAsStored, plain } from './harness/calls.mjs'
import { foldAll, makeChat, reasoningOf, textOf, validateMessages } from './harness/clients.mjs'
import { chunksIn, deltasIn, eventsIn, typesIn } from './harness/contract.mjs'
import { producer, says, ui } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { EVERYTHING } from './harness/ui-route.mjs'

const STOCK = ['7-latest', '6.0.0']
const set = stage({ vars: { BATCH_WAIT_MS: 20 } })
const ok = (answer) => assert.equal(answer.status, 200, answer.text)

/** Two steps with reasoning, a tool call and text, in each language; `half` chunks lie before the second step's second delta. */
const REPLIES = {
  ui: {
    chunks: [
      { type: 'start', messageMetadata: { by: 'outside' } },
      ui.step,
      { type: 'reasoning-start', id: 'r' },
      { type: 'reasoning-delta', id: 'r', delta: 'hm' },
      { type: 'reasoning-end', id: 'r' },
      { type: 'tool-input-start', toolCallId: 'c1', toolName: 'weather' },
      { type: 'tool-input-delta', toolCallId: 'c1', inputTextDelta: '{"city":"Bern"}' },
      ui.call('c1'),
      { type: 'tool-output-available', toolCallId: 'c1', output: { t: 7 } },
      ui.stepEnd,
      ui.step,
      ui.start(),
      ui.text('It is '),
      ui.text('cold.'),
      ui.end(),
      ui.stepEnd,
      ui.finish,
    ],
    half: 13,
  },
  helix: {
    chunks: [
      { type: 'step_start', step: 1 },
      { type: 'thinking', content: 'hm', isComplete: true },
      { type: 'tool_arg_stream_start', toolCallId: 'c1', toolName: 'weather' },
      { type: 'tool_arg_stream_delta', toolCallId: 'c1', delta: '{"city":"Bern"}' },
      { type: 'tool_start', toolCallId: 'c1', toolName: 'weather', arguments: { city: 'Bern' } },
      { type: 'subagent_started', of: 'nobody’s interest in chat' },
      { type: 'tool_end', toolCallId: 'c1', success: true, result: { t: 7 } },
      { type: 'step_committed', step: 1 },
      { type: 'step_start', step: 2 },
      { type: 'text_delta', delta: 'It is ' },
      { type: 'text_delta', delta: 'cold.' },
      { type: 'step_committed', step: 2 },
    ],
    half: 10,
  },
}

async function begun(vocabulary, json = {}) {
  const s = set.session()
  const message = userMessage('weather?')
  const p = producer(s)
  return { s, p, message, run: await p.open({ vocabulary, message, ...json }) }
}

for (const [vocabulary, { chunks, half }] of Object.entries(REPLIES)) {
  describe(`a pushed ${vocabulary} run`, () => {
    for (const version of STOCK) {
      test(`ai ${version}: clients that join early, in the middle and late show what is stored`, async () => {
        const { s, run, message } = await begun(vocabulary)
        const chat = () => makeChat(version, { id: s.id, origin: set.server.origin, messages: [message] })
        const early = await chat()
        const following = [early.resumeStream()]
        await early.answered()
        ok(await run.append(chunks.slice(0, half)))
        await early.until((c) => textOf(c.lastMessage) === 'It is ')
        ok(await run.commit())
        const middle = await chat()
        following.push(middle.resumeStream())
        await middle.until((c) => textOf(c.lastMessage) === 'It is ')
        ok(await run.append(chunks.slice(half)))
        ok(await run.end())
        await Promise.all(following)
        for (const [name, it] of [['early', early], ['middle', middle]]) {
          const body = await assertAsStored(version, it, s, name)
          assert.deepEqual([body.status, textOf(body.messages[1]), reasoningOf(body.messages[1])], ['ended', 'It is cold.', 'hm'])
          assert.deepEqual(body.messages[1].parts.filter((p) => p.toolCallId).map((p) => [p.state, p.input, p.output]), [['output-available', { city: 'Bern' }, { t: 7 }]])
        }
        const { body } = await s.snapshot()
        assert.deepEqual(plain((await foldAll(version, await (await s.resume(0)).collect().then((got) => got.raw), [message])).reply.parts), plain(body.messages[1].parts))
      })
    }

    test('is resumed from every cursor, and behind its committed prefix', async () => {
      const { s, run, message } = await begun(vocabulary)
      ok(await run.append(chunks.slice(0, half)))
      ok(await run.commit())
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, body.stepCount], ['active', 1])
      const live = await s.reconnect()
      const behind = await s.resume(body.streamSequence, { messageId: body.resumeMessageId, prefix: true })
      ok(await run.append(chunks.slice(half)))
      ok(await run.end())
      const [whole, prefixed] = [await live.collect(), await behind.collect()]
      await assertChatBody(whole)
      await assertChatBody(prefixed)
      assert.equal(typesIn(whole).at(-1), 'finish')
      assert.deepEqual(eventsIn(prefixed, 'helix-replay').map((e) => e.phase), ['begin', 'end'])
      const stored = (await s.snapshot()).body.messages[1]
      for (const version of STOCK) {
        for (const got of [whole, prefixed]) {
          const folded = await foldAll(version, got.raw, [message])
          assert.deepEqual([folded.error, plain(folded.reply.parts)], [undefined, plain(stored.parts)], `ai ${version}`)
          assert.equal(folded.reply.id, stored.id)
        }
      }
      for (const cursor of idsOf(whole.frames)) {
        const at = whole.frames.findIndex((f) => f.id === String(cursor))
        const rest = await (await s.resume(cursor, { messageId: stored.id })).collect()
        await assertChatBody(rest)
        assert.equal(deltasIn({ frames: whole.frames.slice(0, at + 1) }) + deltasIn(rest), 'It is cold.', `from ${cursor}`)
      }
      assertWireBody(await (await s.sse(0)).collect())
    })

    test('is settled as far as it came when it is stopped', async () => {
      const { s, run } = await begun(vocabulary)
      ok(await run.append(chunks.slice(0, half)))
      const reader = await s.reconnect()
      await s.stop()
      const got = await reader.collect()
      await assertChatBody(got)
      assert.equal(typesIn(got).at(-1), 'abort')
      const { body } = await s.snapshot()
      assert.deepEqual([body.status, textOf(body.messages[1])], ['ended', 'It is '])
      for (const version of STOCK) await validateMessages(version, body.messages)
    })
  })
}

test('every kind of UI chunk passes as it came, and folds as from the route itself', async () => {
  const { s, run, message } = await begun('ui')
  const chunks = EVERYTHING.slice(0, -3).concat(ui.stepEnd, ui.finish).filter((c) => c.toolCallId !== 'c3')
  const direct = await foldAll('7-latest', chunks, [message])
  ok(await run.append(chunks))
  ok(await run.end())
  const got = await (await s.resume(0)).collect()
  await assertChatBody(got)
  assert.deepEqual(plain((await foldAll('7-latest', got.raw, [message])).reply.parts), plain(direct.reply.parts))
  const { body } = await s.snapshot()
  assert.deepEqual(plain(body.messages[1].parts), plain(direct.reply.parts))
  assert.deepEqual(body.messages[1].metadata, direct.reply.metadata)
})

test('a second attempt of a Helix step takes the first one’s content back, for every reader', async () => {
  const { s, run, message } = await begun('helix')
  ok(await run.append([{ type: 'step_start', step: 1, attemptId: 'a' }, { type: 'text_delta', delta: 'wrong', attemptId: 'a' }]))
  const live = await s.reconnect()
  ok(
    await run.append([
      { type: 'step_start', step: 1, attemptId: 'b' },
      { type: 'text_delta', delta: 'late', attemptId: 'a' },
      { type: 'text_delta', delta: 'right', attemptId: 'b' },
      { type: 'step_committed', step: 1, attemptId: 'b', committedAttemptId: 'b' },
    ]),
  )
  ok(await run.end())
  await live.collect()
  assert.equal(textOf((await s.snapshot()).body.messages[1]), 'right')
  const late = await (await s.resume(0)).collect()
  await assertChatBody(late)
  for (const version of STOCK) assert.equal((await foldAll(version, late.raw, [message])).text, 'right')
})

test('opaque chunks are any JSON: on the wire as they came, in chat nothing', async () => {
  const { s, run } = await begun('opaque')
  const wire = await s.sse(0)
  const chat = await s.reconnect()
  ok(await run.append([{ type: 'anything', n: 1 }, 7, 'text', null, [1], { noType: true }]))
  assertRefused(await run.commit(), 400, 'nothing folds')
  ok(await run.commit({ messages: [{ id: 'm', role: 'assistant', parts: [{ type: 'text', text: 'mine' }] }] }))
  ok(await run.end({ status: 'completed', output: 'done' }))
  const got = await chat.collect()
  await assertChatBody(got)
  assert.deepEqual(typesIn(got), ['start', 'finish'])
  const { chunks, terminal } = assertWireBody(await wire.collect())
  const said = chunks.slice(-6).map(({ chunk: { runId, ...chunk } }) => chunk)
  assert.deepEqual(said, [{ type: 'anything', n: 1 }, ...[7, 'text', null, [1], { noType: true }].map((value) => ({ type: 'opaque', value }))])
  assert.deepEqual(terminal.data, { status: 'completed', output: 'done' })
  assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['weather?', 'mine'])
})

test('a state patch changes the snapshot’s state, and chat shows none of it', async () => {
  for (const vocabulary of ['ui', 'helix']) {
    const { s, run } = await begun(vocabulary, { state: { a: [1] } })
    const patch = { type: 'state_patch', patches: [{ op: 'add', path: '/a/-', value: 2 }] }
    ok(await run.append(vocabulary === 'ui' ? [...says('x').slice(0, -1), patch] : [{ type: 'step_start', step: 1 }, { type: 'text_delta', delta: 'x' }, patch, { type: 'step_committed', step: 1 }]))
    ok(await run.end())
    assert.deepEqual((await s.snapshot()).body.state, { a: [1, 2] }, vocabulary)
    const got = await (await s.resume(0)).collect()
    assert.ok(!typesIn(got).includes('state_patch'))
    assert.equal(deltasIn(got), 'x')
    assert.ok(chunksIn(got).length > 0)
  }
})
