// A model that fails in every way: the failure is typed, everyone sees it, and what was said before it is kept.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, textOf, validateMessages } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { chunksOf } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const SECRET = 'sk-do-not-tell'
const set = stage({ vars: { RECOVERY: 'fail', LEASE_MS: 1500, HEARTBEAT_MS: 300 } })
const partial = (...rest) => [...textScript(['Hel', 'lo'], { finish: null }), ...rest]

const faults = [
  { name: '401', steps: [step.status(401, { error: { message: `bad key ${SECRET}` } })], said: '', retryable: false },
  { name: '429', steps: [step.status(429, { error: { message: SECRET } }, { 'retry-after': '3' })], said: '', retryable: true },
  { name: '500 in HTML', steps: [step.status(500, `<html>${SECRET}`, { 'content-type': 'text/html' })], said: '', retryable: true },
  { name: 'a 200 that is no event stream', steps: [step.status(200, { hello: SECRET })], said: '' },
  { name: 'an empty body', steps: [step.end()], said: '' },
  { name: 'an error event in mid-stream', steps: partial(step.error(SECRET, 'server_error')) },
  { name: 'an event of type error', steps: partial(step.named('error', { error: { message: SECRET } })) },
  { name: 'invalid JSON', steps: partial(step.invalidJson()) },
  { name: 'an early end', steps: partial(step.end()), retryable: true },
  { name: 'a broken connection', steps: partial(step.destroy()), retryable: true },
  { name: 'a reset', steps: partial(step.reset()), retryable: true },
  { name: 'silence longer than the lease', steps: partial(step.silence()), retryable: true },
  { name: 'silence before the first event', steps: [step.silence()], said: '', retryable: true },
  { name: 'nothing but comments for longer than the lease', steps: [...textScript(['Hello'], { finish: null }), ...Array(3).fill(step.comment()), step.silence()] },
]

for (const { name, steps, said = 'Hello', retryable } of faults) {
  describe(name, () => {
    test('fails typed for sender, readers and snapshot; the partial reply is kept; the next send works', async () => {
      const s = set.session()
      set.model.enqueue(steps)
      const sent = await s.send('fault')
      const wire = await s.sse(0)
      const got = await sent.collect()
      assert.equal(got.ended, 'clean')
      await assertChatBody(got)
      const chunks = chunksOf(got.frames)
      assert.equal(chunks.at(-1).type, 'error')
      assert.ok(!chunks.some((c) => c.type === 'finish'))
      for (const version of VERSIONS) {
        const folded = await foldAll(version, got.raw, [userMessage('fault')])
        assert.deepEqual([folded.status, folded.text], ['error', said], `ai ${version}`)
      }

      const { terminal } = assertWireBody(await wire.collect())
      assert.deepEqual([terminal.event, terminal.data.recoverable], ['fail', false])

      const { body } = await s.snapshot()
      assert.equal(body.status, 'failed')
      const { code, category, retryable: again } = body.errorDetail
      assert.ok(code.startsWith(`${category}_`), JSON.stringify(body.errorDetail))
      if (retryable !== undefined) assert.equal(again, retryable)
      const reply = body.messages.find((m) => m.role === 'assistant')
      assert.equal(textOf(reply), said)
      if (said) assert.ok(reply.parts.filter((p) => p.type === 'text').every((p) => p.state !== 'streaming'))
      assert.notEqual(reply?.parts.length, 0, 'no message without parts')
      for (const version of VERSIONS) await validateMessages(version, body.messages)

      assert.equal((await s.info()).status, 'failed')
      assert.equal((await (await s.reconnect()).collect()).raw.length, 0, 'nothing to reconnect to')
      const refused = await (await s.resume(0)).collect()
      assert.equal(JSON.parse(refused.text).code, code)
      for (const text of [got.text, JSON.stringify(terminal), JSON.stringify(body), refused.text]) assert.ok(!text.includes(SECRET), text)

      set.model.enqueue(textScript(['better']))
      const next = await s.ask('again', { history: body.messages })
      await assertChatBody(next)
      assert.equal(chunksOf(next.frames).at(-1).type, 'finish')
      assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'better')
    })
  })
}

test('the terminal can be read again and again', async () => {
  const s = set.session()
  set.model.enqueue(partial(step.end()))
  await s.ask('again')
  const bodies = []
  for (let i = 0; i < 5; i++) bodies.push((await (await s.sse(0)).collect()).text)
  assert.equal(new Set(bodies).size, 1)
})

test('a run that nobody watches is settled all the same', async () => {
  const s = set.session()
  set.model.enqueue(partial(step.silence()))
  const sent = await s.send('alone')
  await sent.until((f) => f.data?.includes('lo'))
  sent.cut()
  await eventually(async () => (await s.info()).status === 'failed', { what: 'the lapsed run settled' })
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'Hello')
})

test('the silent model’s request is given up', async () => {
  const s = set.session()
  set.model.script('give up', partial(step.silence()))
  await s.ask('give up')
  await set.model.requests.find((r) => r.lastUserText === 'give up').aborted
})

test('comments on a silent stream keep the client’s connection, not the lease', async () => {
  const s = set.session()
  const held = gate()
  set.model.enqueue(textScript([held, 'late']))
  const sent = await s.send('heartbeat')
  await sent.next()
  await sent.until((f) => f.comment !== undefined)
  await sent.until((f) => f.comment !== undefined)
  held.open()
  await assertChatBody(await sent.collect())
})

test('a refused request is one 409 with the failure’s own code', async () => {
  const s = set.session()
  set.model.enqueue([step.status(429)])
  await s.ask('code')
  const reader = await s.resume(0)
  const text = (await reader.collect()).text
  assertRefused({ status: reader.status, text, body: JSON.parse(text) }, 409)
})
