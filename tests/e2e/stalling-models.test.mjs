// Model servers that stall, drip, flood, leave early or answer late: each run ends typed, within its bound, and harms nobody.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually, within } from './harness/wait.mjs'

const LEASE_MS = 1500
/** A silent model's run ends within its lease, and this much for a busy machine. */
const BOUND = LEASE_MS + 2000
const set = stage({ vars: { LEASE_MS, HEARTBEAT_MS: 300, MAX_ATTEMPTS: 1 } })

const requestOf = (s) => set.model.requests.find((r) => r.lastUserText === s.id)
const types = (got) => chunksOf(got.frames.filter(isData)).map((c) => c.type)

/** Sends, and reads to the end: what sender, wire and snapshot say, and how long it took. */
async function run(steps, { ms = BOUND } = {}) {
  const s = set.session()
  set.model.script(s.id, steps)
  const begun = performance.now()
  const sent = await s.send(s.id)
  const wire = await s.sse(0)
  const got = await sent.collect(ms)
  const took = performance.now() - begun
  await assertChatBody(got)
  const { terminal } = assertWireBody(await wire.collect(ms))
  const { body } = await s.snapshot()
  assert.equal('resumeMessageId' in body, false, 'nothing is live any more')
  return { s, got, terminal, body, took }
}

async function assertTyped({ s, got, terminal, body }, code, said) {
  assert.equal(types(got).at(-1), 'error')
  assert.deepEqual([terminal.event, terminal.data.recoverable], ['fail', false])
  assert.deepEqual([body.status, body.errorDetail.code], ['failed', code], JSON.stringify(body.errorDetail))
  assert.equal(textOf(body.messages.find((m) => m.role === 'assistant')), said)
  set.model.script(`next ${s.id}`, textScript(['fine']))
  await assertChatBody(await s.ask(`next ${s.id}`))
  assert.equal((await s.snapshot()).body.status, 'ended')
}

const begun = (...deltas) => textScript(deltas, { finish: null })
const stalls = [
  { name: 'before its first byte', steps: [step.silence()], said: '' },
  { name: 'in mid-reply', steps: [...begun('Hel', 'lo'), step.silence()], said: 'Hello' },
  { name: 'in the middle of an event', steps: [...begun('Hello'), step.raw('data: {"choices":[{"delta":{"con'), step.silence()], said: 'Hello' },
  { name: 'in the middle of a call', steps: [...textScript(['Hello'], { tool: { id: 'c', name: 'f', arguments: ['{"a":', gate(), '1}'] } })], said: 'Hello' },
]
for (const { name, steps, said } of stalls) {
  test(`one that stalls for ever ${name} is given up after its lease, and its request with it`, async () => {
    const ended = await run(steps)
    assert.ok(ended.took >= LEASE_MS - 100, `after ${ended.took} ms`)
    await within(requestOf(ended.s).aborted, 1000, 'the end of the request')
    await assertTyped(ended, 'provider_timeout', said)
  })
}

test('one that drips bytes which never make an event is given up like a silent one', async () => {
  const drip = Array.from('data: {"choices":[{"delta":{"content":"never"}}]', (byte) => step.raw(byte))
  // Each pause begins when it is played.
  const second = { step: 'wait', get gate() { return new Promise((r) => setTimeout(r, 1000).unref()) } }
  const paced = drip.flatMap((byte) => [byte, second])
  const ended = await run([...begun('Hello'), ...paced])
  await within(requestOf(ended.s).aborted, 1000, 'the end of the request')
  await assertTyped(ended, 'provider_timeout', 'Hello')
})

test('one that drips whole events, slower than heartbeats and faster than the lease, is heard to its end', async () => {
  const words = ['one ', 'two ', 'three']
  const { got, body } = await run([step.mode({ paceMs: 700 }), ...textScript(words)], { ms: 10_000 })
  assert.equal(types(got).at(-1), 'finish')
  assert.equal(textOf(body.messages.at(-1)), words.join(''))
})

test('ten megabytes in one event end typed or whole, and other sessions are served meanwhile', async () => {
  const other = set.session()
  const huge = 'x'.repeat(10 << 20)
  const running = run(textScript(['small ', huge]), { ms: 20_000 })
  set.model.script(other.id, textScript(['other']))
  await assertChatBody(await other.ask(other.id))
  const ended = await running
  const text = textOf(ended.body.messages.find((m) => m.role === 'assistant'))
  if (ended.body.status === 'ended') {
    assert.equal(text.length, 'small '.length + huge.length)
    assert.equal(types(ended.got).at(-1), 'finish')
  } else {
    await assertTyped(ended, ended.body.errorDetail.code, 'small ')
    assert.match(ended.body.errorDetail.code, /^(provider|state)_/)
  }
})

for (const [name, how] of [['a proper end', step.end()], ['a broken connection', step.destroy()], ['a reset', step.reset()]]) {
  test(`one that closes early by ${name} fails at once, not after the lease`, async () => {
    const ended = await run([...begun('Hel', 'lo'), how])
    assert.ok(ended.took < LEASE_MS, `after ${ended.took} ms`)
    assert.match(ended.body.errorDetail.code, /^provider_(stream_ended|unavailable)$/)
    assert.equal(ended.body.errorDetail.retryable, true)
    await assertTyped(ended, ended.body.errorDetail.code, 'Hello')
  })
}

test('one that answers late, after a stop, is not heard, neither by the stopped run nor by the next one', async () => {
  const s = set.session()
  const held = gate()
  // It does not notice that its caller has gone, and goes on writing.
  set.model.script(s.id, [step.waitFor(held), ...textScript(['late'])])
  const sent = await s.send(s.id)
  await eventually(() => requestOf(s), { what: 'the request' })
  assert.equal((await s.stop()).body.stopped, true)
  const got = await sent.collect(2000)
  await assertChatBody(got)
  assert.equal(types(got).at(-1), 'abort')
  const next = gate()
  set.model.script(`next ${s.id}`, textScript(['next', next, ' one']))
  const second = await s.send(`next ${s.id}`)
  await second.until((f) => f.data?.includes('"next"'))
  held.open()
  await within(requestOf(s).over, 1000, 'the end of the late request')
  next.open()
  await assertChatBody(await second.collect())
  const { body } = await s.snapshot()
  assert.deepEqual([body.status, body.messages.map(textOf)], ['ended', [s.id, `next ${s.id}`, 'next one']])
  assert.equal(JSON.stringify(await s.log()).includes('late'), false)
})
