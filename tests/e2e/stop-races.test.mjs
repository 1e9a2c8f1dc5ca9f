// A stop from any client ends everybody's response at once; racing with the run's own end, one of the two wins and everything says the same.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { TEXT, pushRun } from './harness/push.mjs'
import { mulberry32, seed } from './harness/seeded.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const set = stage({ vars: { MAX_ATTEMPTS: 1 }, agents: (model) => ({ default: { producer: 'openai', baseUrl: model.baseUrl, model: 'm' }, demo: { producer: 'demo', paceMs: 1, deltas: 12 } }) })
// Far below what else would end them: the heartbeat, the lease. A busy machine takes its part of it.
const AT_ONCE = 5000
const RACES = 200
const AT_A_TIME = 25
const random = mulberry32(seed)

describe('a stop ends every follower at once', () => {
  const last = (got) => chunksOf(got.frames.filter(isData)).at(-1)

  async function assertAllEnded(s, chats, wires, stop) {
    const begun = performance.now()
    const answers = await Promise.all([stop(), ...[...chats, ...wires].map((r) => r.collect(AT_ONCE))])
    const ms = performance.now() - begun
    assert.ok(ms < AT_ONCE, `${ms} ms`)
    assert.equal(answers.shift().body.stopped, true)
    for (const got of answers.slice(0, chats.length)) {
      await assertChatBody(got)
      assert.deepEqual(last(got), { type: 'abort' }, 'an abort says no reason')
    }
    for (const got of answers.slice(chats.length)) {
      const { terminal } = assertWireBody(got)
      assert.deepEqual([terminal.event, terminal.data.status], ['end', 'interrupted'])
    }
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', 'part'])
    assert.equal((await s.info()).runStatus, 'interrupted')
  }

  async function followers(s) {
    const chats = [await s.reconnect(), await s.reconnect(), await s.resume(0)]
    const wires = [await s.sse(0), await s.sse(0)]
    for (const reader of [...chats, ...wires]) await reader.until((f) => f.data?.includes('"part"'))
    return [chats, wires]
  }

  test('of a run in the object, and its model call', async () => {
    const s = set.session()
    set.model.script(s.id, textScript(['part', gate()]))
    const sent = await s.send(s.id)
    await sent.until((f) => f.data?.includes('"part"'))
    const [chats, wires] = await followers(s)
    await assertAllEnded(s, [sent, ...chats], wires, () => s.stop())
    await within(set.model.requests.find((r) => r.lastUserText === s.id).aborted, AT_ONCE, 'the end of the model call')
  })

  test('of a pushed run, whose producer is told and can write no more', async () => {
    const s = set.session()
    const run = await pushRun(s)
    await run.append(TEXT('part'))
    const told = run.control()
    const [chats, wires] = await followers(s)
    await assertAllEnded(s, chats, wires, () => s.stop({ runId: run.runId }))
    const { body } = await within(told, AT_ONCE, 'the word to the producer')
    assert.deepEqual([body.status, body.stopRequested], ['interrupted', true])
    const before = await s.log()
    for (const late of [await run.append([{ type: 'text-delta', id: 't', delta: 'late' }]), await run.end(), await run.renew(), await run.fail('producer_failed')]) {
      assert.deepEqual([late.status, late.body.code, late.body.stopRequested], [409, 'state_run_ended', true])
    }
    const again = await pushRun(s, { runId: run.runId })
    assert.deepEqual([again.claim.status, again.claim.body.code], [409, 'state_run_ended'], 'a stopped run is not claimed again')
    assert.deepEqual(await s.log(), before)
  })
})

/** What all that can be asked says of the end of a run that was raced for; a stop won or the end did. */
async function assertOneEnd(s, { stopped, sent, wires, ends, whole }) {
  const { body } = await s.snapshot()
  const { runStatus } = await s.info()
  const how = stopped ? 'interrupted' : ends
  assert.equal(runStatus, how, 'the row says who has won')
  assert.equal(body.status, how === 'failed' ? 'failed' : 'ended')
  assert.equal('resumeMessageId' in body, false)
  for (const wire of [...(await Promise.all(wires.map((w) => w.collect()))), await (await s.sse(0)).collect()]) {
    const { terminal } = assertWireBody(wire)
    assert.equal(terminal.event === 'fail' ? 'failed' : terminal.data.status, how, 'a reader of the wire is told the same')
  }
  const chunks = (await s.log()).map((c) => c.chunk.type)
  assert.equal(chunks.filter((t) => t === 'finish').length, how === 'completed' ? 1 : 0, chunks.join())
  const kept = textOf(body.messages.find((m) => m.role === 'assistant') ?? { parts: [] })
  assert.ok(whole.startsWith(kept) && (how !== 'completed' || kept === whole), `${how} with ${kept}`)
  if (!sent) return
  const got = await sent.collect()
  await assertChatBody(got)
  const data = chunksOf(got.frames.filter(isData))
  assert.equal(data.at(-1).type, { completed: 'finish', interrupted: 'abort', failed: 'error' }[how])
  assert.equal(data.filter((c) => c.type === 'text-delta').map((c) => c.delta).join(''), kept, 'what was shown is what is kept')
}

const races = {
  async model() {
    const s = set.session()
    const held = gate()
    const fails = random() < 0.3
    set.model.script(s.id, textScript(['a', held, ...(fails ? [step.error()] : ['b'])], fails ? { finish: null } : {}))
    const [sent, first, late] = [await s.send(s.id), random() * 6, random() * 6]
    const wires = [await s.sse(0)]
    await sent.until((f) => f.data?.includes('"a"'))
    const [answer] = await Promise.all([after(late, () => s.stop()), after(first, () => held.open())])
    await assertOneEnd(s, { stopped: answer.body.stopped, sent, wires, ends: fails ? 'failed' : 'completed', whole: fails ? 'a' : 'ab' })
    return answer.body.stopped
  },
  async demo() {
    const s = set.session()
    const [sent, late] = [await s.send(s.id, { agent: 'demo' }), 5 + random() * 90]
    const wires = [await s.sse(0)]
    const stops = await Promise.all([after(late, () => s.stop()), after(late, () => s.stop())])
    const won = stops.filter((answer) => answer.body.stopped).length
    assert.ok(won <= 1, 'two stops are one')
    const whole = 'x'.repeat(12 * 64)
    const text = (await sent.collect()).frames.filter(isData)
    const said = chunksOf(text).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('')
    await assertOneEnd(s, { stopped: won === 1, sent, wires, ends: 'completed', whole: said.length >= whole.length ? said : said + whole })
    return won === 1
  },
  async push() {
    const s = set.session()
    const run = await pushRun(s)
    const [fails, first, late] = [random() < 0.3, random() * 6, random() * 6]
    await run.append(TEXT('a'))
    const wires = [await s.sse(0)]
    const [stop, end] = await Promise.all([after(late, () => s.stop()), after(first, () => (fails ? run.fail('producer_failed') : run.end()))])
    assert.equal(end.status, stop.body.stopped ? 409 : 200, 'exactly one of the two has its way')
    const ends = fails ? 'failed' : 'completed'
    const { runStatus } = await s.info()
    assert.equal(runStatus, stop.body.stopped ? 'interrupted' : ends)
    await assertPushedEnd(s, runStatus, wires)
    return stop.body.stopped
  },
}

async function assertPushedEnd(s, how, wires) {
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, textOf(body.messages.at(-1))], [how === 'failed' ? 'failed' : 'ended', 'a'])
  for (const wire of [...(await Promise.all(wires.map((w) => w.collect()))), await (await s.sse(0)).collect()]) {
    const { terminal } = assertWireBody(wire)
    assert.equal(terminal.event === 'fail' ? 'failed' : terminal.data.status, how)
  }
}

const after = async (ms, act) => {
  await new Promise((r) => setTimeout(r, ms))
  return act()
}

test(`${RACES} stops race with the end of their runs (SEED=${seed})`, async (t) => {
  const kinds = Object.keys(races)
  const won = Object.fromEntries(kinds.map((kind) => [kind, [0, 0]]))
  for (let race = 0; race < RACES; race += AT_A_TIME) {
    const batch = Array.from({ length: AT_A_TIME }, (_, i) => kinds[(race + i) % kinds.length])
    const stopped = await Promise.all(batch.map((kind, i) => races[kind]().catch((error) => Promise.reject(new Error(`race ${race + i} (${kind}): ${error.message}`, { cause: error })))))
    stopped.forEach((stop, i) => won[batch[i]][stop ? 0 : 1]++)
  }
  t.diagnostic(`stops won / ends won: ${JSON.stringify(won)}`)
  for (const [kind, counts] of Object.entries(won)) assert.ok(counts.every((count) => count > 0), `both win at times: ${kind} ${counts}`)
})
