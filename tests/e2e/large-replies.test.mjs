// Replies of megabytes: slow readers, readers that stand still, and one delta that no single row can hold.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { VERSIONS, foldAll, textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { chunksOf, isData } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const MEGABYTE = 1024 * 1024
const set = stage()

const saidIn = (got) => chunksOf(got.frames.filter(isData)).map((c) => (c.chunk ?? c).delta ?? '').join('')
// Comparing megabytes must not print them.
const same = (a, b, what) => assert.ok(a === b, `${what}: ${a?.length} characters for ${b.length}, equal up to ${[...(a ?? '')].findIndex((c, i) => c !== b[i])}`)

/** Reads a response with a pause after every piece, as over a slow line. */
async function readSlowly(reader) {
  while (!reader.ended) {
    reader.stall()
    await new Promise((r) => setTimeout(r, 4))
    reader.unstall()
    await Promise.race([reader.next(), new Promise((r) => setTimeout(r, 2))])
  }
  return reader.collect()
}

test('a reply of 5 MB reaches slow readers and fast ones whole', async () => {
  const s = set.session()
  const deltas = Array.from({ length: 320 }, (_, i) => `${i} `.padEnd(16 * 1024, 'x'))
  const text = deltas.join('')
  set.model.script(s.id, textScript(deltas))
  const sent = await s.send(s.id)
  const [slow, wire] = [await s.reconnect(), await s.sse(0)]
  const bodies = await Promise.all([sent.collect(), readSlowly(slow), readSlowly(wire)])
  for (const [index, name] of ['the sender', 'a slow chat reader', 'a slow wire reader'].entries()) {
    assert.equal(bodies[index].ended, 'clean', name)
    same(saidIn(bodies[index]), text, name)
  }
  await assertChatBody(bodies[1])
  assertWireBody(bodies[2])
  same(textOf((await s.snapshot()).body.messages.at(-1)), text, 'the snapshot')
})

test('a tab that stops reading does not delay the other', async () => {
  const s = set.session()
  const flood = Array(300).fill('y'.repeat(16 * 1024))
  const gates = Array.from({ length: 8 }, gate)
  const held = gate()
  set.model.script(s.id, textScript(['first ', held, ...flood, ...gates.flatMap((g, i) => [g, `mark ${i} `])]))
  const sent = await s.send(s.id)
  const stalled = await s.reconnect()
  await stalled.take(1)
  stalled.stall()
  held.open()
  for (const [index, next] of gates.entries()) {
    next.open()
    const begun = performance.now()
    await sent.until((f) => f.data?.includes(`mark ${index} `), 20_000)
    if (index > 0) assert.ok(performance.now() - begun < 5000, `mark ${index} took ${Math.round(performance.now() - begun)} ms`)
  }
  const got = await sent.collect()
  await assertChatBody(got)
  stalled.unstall()
  const late = await stalled.collect()
  assert.equal(late.ended, 'clean')
  same(saidIn(late), saidIn(got), 'the tab that stood still')
})

describe('one delta of 3 MB', () => {
  const text = `<${'ab\u00fc\u{1f44b}'.repeat((3 * MEGABYTE) / 8)}>`
  let s
  let log

  /** Every way to read it. */
  async function assertEverywhere(when) {
    const wire = await (await s.sse(0)).collect()
    same(saidIn(wire), text, `/sse ${when}`)
    const { chunks } = assertWireBody(wire)
    const paged = await s.log()
    assert.ok(JSON.stringify(paged) === JSON.stringify(chunks), `/chunks says what /sse says ${when}`)
    same(paged.map((c) => c.chunk.delta ?? '').join(''), text, `/chunks ${when}`)
    same(textOf((await s.snapshot()).body.messages.at(-1)), text, `the snapshot ${when}`)
    for (const from of [2, paged.findIndex((c) => c.chunk.delta) + 1, paged.length]) {
      const got = await (await s.sse(from)).collect()
      assert.equal(assertWireBody(got, from).chunks.length, paged.length - from)
    }
    return paged
  }

  test('arrives whole, live and from the log', async () => {
    s = set.session()
    const held = gate()
    set.model.script(s.id, textScript([held, text]))
    const sent = await s.send(s.id)
    const readers = [sent, await s.reconnect(), await s.sse(0)]
    held.open()
    const bodies = await Promise.all(readers.map((r) => r.collect()))
    bodies.forEach((got, i) => same(saidIn(got), text, ['the sender', 'a follower', '/sse, live'][i]))
    await assertChatBody(bodies[0])
    for (const version of VERSIONS) same((await foldAll(version, bodies[1].raw, [userMessage('x')])).text, text, `ai ${version}`)
    log = await assertEverywhere('after the run')
  })

  test('is still whole after a crash, and the next turn follows it', async () => {
    await set.server.kill()
    await set.server.start()
    const again = await assertEverywhere('after a restart')
    assert.ok(JSON.stringify(again) === JSON.stringify(log))
    set.model.script(`next ${s.id}`, textScript(['next']))
    await assertChatBody(await s.ask(`next ${s.id}`))
    assert.equal((await s.info()).status, 'ended')
    assert.deepEqual((await s.log()).map((c) => c.sequence), (await s.log()).map((_, i) => i + 1))
  })

  test('is kept when the object dies before the run has ended', async () => {
    const cut = set.session()
    set.model.script(cut.id, textScript([text, gate()]))
    const sent = await cut.send(cut.id)
    await sent.until((f) => f.data?.length > MEGABYTE)
    await set.server.kill()
    await set.server.start()
    const { body } = await cut.snapshot()
    assert.equal(body.status, 'failed')
    same(textOf(body.messages.at(-1)), text, 'the partial reply')
  })
})
