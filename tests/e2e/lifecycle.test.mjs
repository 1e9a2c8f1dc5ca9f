// What a run stores about itself: where it and its steps begin, which attempt was committed, and whose each chunk is. Chat never shows it.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { step, textScript } from './harness/fake-model.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { openaiAgent } from './harness/server.mjs'
import { stage } from './harness/stage.mjs'

const LIFECYCLE = ['run_started', 'step_start', 'step_committed']
const set = stage({ agents: (model) => ({ ...openaiAgent(model), demo: { producer: 'demo', paceMs: 1 } }) })

const runs = {
  'the demo': { agent: 'demo', text: 'use a tool', steps: 2 },
  'a model': { agent: 'default', text: 'plain', script: textScript(['a ', 'b'], { reasoning: ['hm'] }), steps: 1 },
  'a model that calls a tool': { agent: 'default', text: 'tool', script: textScript(['a'], { tool: { id: 'c', name: 't', arguments: '{}' } }), steps: 1 },
}

for (const [name, { agent, text, script, steps }] of Object.entries(runs)) {
  describe(name, () => {
    test('stores the frame of its run and names run, attempt and step on every chunk', async () => {
      const s = set.session()
      if (script) set.model.script(text, script)
      const sent = await s.send(text, { agent })
      const wire = await s.sse(0)
      const [chat, live] = [await sent.collect(), await wire.collect()]
      await assertChatBody(chat)
      const { chunks } = assertWireBody(live)
      assert.deepEqual(chunks, await s.log(), '/sse and /chunks say the same')
      assertFrame(chunks.map((c) => c.chunk), steps, (await s.info()).runId)
      assertHidden(chat, chunks)
    })
  })
}

/** `run_started`, `start`, per step `step_start`, `start-step`, content, `finish-step`, `step_committed`, at the end `finish`. */
function assertFrame(chunks, steps, runId) {
  const types = chunks.map((c) => c.type)
  assert.deepEqual(types.slice(0, 2), ['run_started', 'start'])
  assert.equal(types.at(-1), 'finish')
  for (const once of ['run_started', 'start', 'finish']) assert.equal(types.filter((t) => t === once).length, 1, once)
  for (const chunk of chunks) assert.equal(chunk.runId, runId, JSON.stringify(chunk))

  let open = null
  const committed = []
  for (const chunk of chunks.slice(2, -1)) {
    if (open === null) {
      assert.equal(chunk.type, 'step_start')
      open = { attemptId: chunk.attemptId, step: chunk.step, types: [] }
    }
    open.types.push(chunk.type)
    assert.deepEqual([chunk.attemptId, chunk.step], [open.attemptId, open.step], JSON.stringify(chunk))
    if (chunk.type === 'step_committed') {
      assert.equal(chunk.committedAttemptId, open.attemptId)
      assert.deepEqual([open.types[1], open.types.at(-2)], ['start-step', 'finish-step'])
      committed.push(open)
      open = null
    }
  }
  assert.equal(open, null, 'every step is committed')
  assert.equal(committed.length, steps)
  assert.equal(new Set(committed.map((c) => c.attemptId)).size, steps, 'every step has an attempt of its own')
  const numbers = committed.map((c) => c.step)
  assert.deepEqual(numbers, numbers.map((_, i) => numbers[0] + i))
}

/** Chat shows every other chunk, with its sequence and without the stamp. */
function assertHidden(chat, log) {
  const frames = chat.frames.filter((f) => isData(f) && f.id !== undefined)
  const shown = log.filter((c) => !LIFECYCLE.includes(c.chunk.type))
  assert.deepEqual(frames.map((f) => Number(f.id)), shown.map((c) => c.sequence))
  assert.deepEqual(frames.map((f) => JSON.parse(f.data).type), shown.map((c) => c.chunk.type))
  assert.doesNotMatch(chat.text, /runId|attemptId|committedAttemptId|run_started|step_start|step_committed/)
}

test('a stopped and a failed run begin their frame and commit what they have said', async () => {
  for (const end of ['stop', 'fail']) {
    const s = set.session()
    set.model.script(s.id, [...textScript(['part'], { finish: null }), end === 'stop' ? step.silence() : step.destroy()])
    const sent = await s.send(s.id)
    await sent.until((f) => f.data?.includes('part'))
    if (end === 'stop') await s.stop()
    assertHidden(await sent.collect(), await s.log())
    const chunks = (await s.log()).map((c) => c.chunk)
    const attempt = chunks.find((c) => c.type === 'step_start').attemptId
    assert.equal(chunks.find((c) => c.type === 'step_committed')?.committedAttemptId, attempt, end)
    assert.ok(!chunks.some((c) => c.type === 'finish'), 'no finish is stored')
  }
})

test('the next run has an id and attempts of its own', async () => {
  const s = set.session()
  const ids = []
  for (const text of ['one', 'two']) {
    set.model.script(text, textScript([text]))
    await s.ask(text)
    ids.push((await s.info()).runId)
  }
  const chunks = (await s.log()).map((c) => c.chunk)
  assert.notEqual(ids[0], ids[1])
  assert.deepEqual(chunks.filter((c) => c.type === 'run_started').map((c) => c.runId), ids)
  const attempts = chunks.filter((c) => c.type === 'step_start').map((c) => c.attemptId)
  assert.equal(new Set(attempts).size, 2)
  assert.equal(new Set(chunksOf((await (await s.sse(0)).collect()).frames.filter((f) => f.event === 'chunk')).filter((c) => c.chunk.type === 'start').map((c) => c.chunk.messageId)).size, 2)
})
