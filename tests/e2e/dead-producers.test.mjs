// What public bug reports say of dead producers, stops and alarms (`spec/pitfalls.md`, sections 1 to 4), where no other file tests it.
//
// | entry | file |
// |---|---|
// | 3, 4, 22, 32 | stop, stop-races |
// | 5, 31, 49 to 52, 55 | disconnects, unfollowed |
// | 34, 40, 54, 64 | settling, alarms |
// | 37 | run-start |
// | 42 | retention |
// | 47 | stop |
// | 53 | evictions |
// | 23, 25, 39, and 31 and 55 together | here |
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { workerd } from '../chaos/workerd.mjs'
import { assertChatBody, assertWireBody, idsOf } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, startFakeModel, step, textScript } from './harness/fake-model.mjs'
import { follow } from './harness/follower.mjs'
import { TEXT, pushRun } from './harness/push.mjs'
import { openaiAgent } from './harness/server.mjs'
import { session } from './harness/session.mjs'
import { within } from './harness/wait.mjs'

const LEASE_MS = 3000
let model, server
before(async () => {
  model = await startFakeModel()
  server = await workerd({ vars: { AGENTS: openaiAgent(model), LEASE_MS, MAX_ATTEMPTS: 1, RECOVERY: 'fail' } })
})
after(async () => {
  await server?.close()
  await model?.close()
})
const restart = async () => {
  await server.kill()
  await server.start()
}

test('23 a server that dies right behind the end leaves no follower waiting for it', async () => {
  for (let i = 0; i < 5; i++) {
    const s = session(server)
    const run = await pushRun(s)
    await run.append(TEXT('whole'))
    const followed = follow({ sse: s.sse })
    const chat = await s.reconnect()
    await chat.until((f) => f.data?.includes('whole'))
    assert.equal((await run.end()).status, 200)
    await restart()
    assert.equal((await within(followed, 2000, 'the end of the follower')).outcome, 'completed')
    const cursor = idsOf((await chat.collect()).frames).at(-1)
    const again = await s.resume(cursor)
    if (again.status === 200) await assertChatBody(await again.collect(2000))
    assert.equal((await s.snapshot()).body.status, 'ended')
  }
})

test('25 all that was said is read at once while the producer, here or outside, says nothing', async () => {
  const [here, outside] = [session(server), session(server)]
  const held = gate()
  model.script(here.id, textScript(['one ', 'two ', held, 'three']))
  const sent = await here.send(here.id)
  await sent.until((f) => f.data?.includes('"two "'))
  const run = await pushRun(outside)
  await run.append(TEXT('one ', 'two '))
  for (const s of [here, outside]) {
    const readers = [await s.reconnect({ ms: 1000 }), await s.resume(0, { headers: {} }), await s.sse(0, { ms: 1000 })]
    for (const reader of readers) await reader.until((f) => f.data?.includes('"two "'), 1000)
    readers.forEach((reader) => reader.cut())
  }
  held.open()
  await assertChatBody(await sent.collect())
  assert.equal((await run.end()).status, 200)
})

test('39 the end of a failed run reads the same ten times, also behind a restart', async () => {
  const s = session(server)
  model.script(s.id, [...textScript(['part'], { finish: null }), step.error()])
  await s.ask(s.id)
  const read = async () => {
    const wire = await (await s.sse(0)).collect()
    assert.equal(assertWireBody(wire).terminal.event, 'fail')
    return JSON.stringify([wire.text, (await s.snapshot()).body, (await s.reconnect()).status])
  }
  const bodies = []
  for (let i = 0; i < 10; i++) {
    if (i === 5) await restart()
    bodies.push(await read())
  }
  assert.equal(new Set(bodies).size, 1)
})

test('31 and 55 a client that vanished is no stop: the run is whole when it comes back, however late', async () => {
  const s = session(server)
  const held = gate()
  model.script(s.id, textScript(['part ', held, 'whole']))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('"part "'))
  const cursor = idsOf(sent.frames).at(-1)
  sent.reset()
  held.open()
  await within(model.requests.find((r) => r.lastUserText === s.id).over, 3000, 'the end of the model’s answer')
  assert.equal((await follow({ sse: s.sse }, { from: cursor })).outcome, 'completed')
  const types = (await s.log()).map((c) => c.chunk.type)
  assert.deepEqual([types.filter((t) => t === 'finish').length, types.includes('abort')], [1, false], 'one end, and it is the reply’s own')
  assert.equal(textOf((await s.snapshot()).body.messages.at(-1)), 'part whole')
})
