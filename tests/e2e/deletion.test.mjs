// What leaves no trace: looking at ids that do not exist, refused sends, and a session that was deleted.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertChatBody, assertRefused } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { within } from './harness/wait.mjs'

const LEASE_MS = 1000
const set = stage({ vars: { TEST_SEAMS: '1', LEASE_MS } })
const rows = async (s) => (await s.seam('counts')).body

test('a hundred unknown ids, probed on every reading route, have no table', async () => {
  await Promise.all(
    Array.from({ length: 100 }, async () => {
      const s = set.session()
      const statuses = []
      for (const url of [`${s.own}/info`, `${s.own}/chunks`, `${s.own}/sse`, `${s.own}/snapshot`, s.chat, `${s.chat}/stream`, `${s.chat}/${s.id}/stream`, `${s.chat}/snapshot`]) {
        statuses.push((await call(url)).status)
      }
      assert.deepEqual(statuses, [200, 200, 404, 404, 404, 204, 204, 404])
      assert.equal((await s.stop()).status, 404)
      assert.equal((await s.delete()).status, 404)
      assert.deepEqual(await rows(s), {})
    }),
  )
})

test('a refused send has no table', async () => {
  const s = set.session()
  for (const json of [{}, { messages: [] }, { messages: 'x' }, { messages: [{ role: 'user' }] }]) {
    assertRefused(await call(s.chat, { json }))
    assert.deepEqual(await rows(s), {}, JSON.stringify(json))
  }
})

test('a send has rows: the counts do count', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['x']))
  await s.ask(s.id)
  const counts = await rows(s)
  assert.deepEqual([counts.session, counts.run, counts.message], [1, 1, 2])
  assert.ok(counts.chunk_block >= 1 && counts.checkpoint >= 1, JSON.stringify(counts))
})

/** The wire says that it saw no end, a chat body breaks. */
function assertParted(got) {
  assert.doesNotMatch(got.text, /\[DONE\]|"abort"|event: end/)
  if (!got.text.includes('event: ')) return assert.equal(got.ended, 'broken')
  const last = got.frames.findLast((f) => f.data !== undefined)
  assert.deepEqual([last.event, JSON.parse(last.data).recoverable], ['fail', true])
}

describe('deleting', () => {
  /** A live session with a sender, a follower and a wire reader. */
  async function live() {
    const s = set.session()
    set.model.script(s.id, textScript(['part', gate()]))
    const sent = await s.send(s.id)
    await sent.until((f) => f.data?.includes('part'))
    const readers = [sent, await s.reconnect(), await s.sse(0)]
    for (const reader of readers.slice(1)) await reader.until((f) => f.data?.includes('part'))
    return { s, readers, request: set.model.requests.find((r) => r.lastUserText === s.id) }
  }

  test('a live session parts with its readers without an end, and gives the model call up', async () => {
    const { s, readers, request } = await live()
    const gone = await s.delete()
    assert.deepEqual([gone.status, gone.body], [200, { success: true }])
    for (const reader of readers) assertParted(await reader.collect(5000))
    await within(request.aborted, 5000, 'the end of the model call')
    assert.deepEqual(await rows(s), {})
  })

  test('a finished session parts with the readers that wait for its next run', async () => {
    const s = set.session()
    set.model.script(s.id, textScript(['x']))
    await s.ask(s.id)
    const parked = await s.sse((await s.info()).head, { waitForLive: 1 })
    await parked.until((f) => f.event === 'caught-up')
    await s.delete()
    const got = await parked.collect(5000)
    assertParted(got)
  })

  test('leaves nothing for the alarm to do', async () => {
    const { s } = await live()
    await s.delete()
    // The lease that the alarm guarded lapses: only time can show that nothing comes of it.
    await new Promise((r) => setTimeout(r, LEASE_MS + 1000))
    assert.deepEqual(await rows(s), {})
    assert.deepEqual(await s.info(), { exists: false })
  })

  test('makes the id as good as new', async () => {
    const { s } = await live()
    await s.delete()
    assertRefused(await s.delete(), 404)
    assertRefused(await s.snapshot(), 404)
    assertRefused(await s.stop(), 404)
    assert.equal((await s.reconnect()).status, 204)
    assert.deepEqual((await s.page(0)).body, { exists: false, chunks: [] })
    set.model.script(s.id, textScript(['afresh']))
    await assertChatBody(await s.ask(s.id))
    const { body } = await s.snapshot()
    assert.deepEqual(body.messages.map(textOf), [s.id, 'afresh'])
    assert.equal((await s.log())[0].sequence, 1)
  })

  const reads = {
    'in pages': (s) => s.log(40),
    'for one chunk': (s) => s.page(0, 1),
    'from the wire': async (s) => (await s.sse(0)).collect(),
    'by a reader that left': async (s) => (await s.sse(0)).cut(),
  }
  for (const [how, read] of Object.entries(reads)) {
    test(`works when a long log has just been read ${how}`, async () => {
      const s = set.session()
      set.model.script(s.id, textScript(Array(100).fill('z'.repeat(16 * 1024))))
      await s.ask(s.id)
      await read(s)
      const gone = await s.delete()
      assert.deepEqual([gone.status, gone.body], [200, { success: true }])
      assert.deepEqual([await s.info(), await rows(s)], [{ exists: false }, {}])
    })
  }

  test('outlives a crash', async () => {
    const { s } = await live()
    const kept = set.session()
    set.model.script(kept.id, textScript(['kept']))
    await kept.ask(kept.id)
    await s.delete()
    await set.server.kill()
    await set.server.start()
    assert.deepEqual([await s.info(), await rows(s)], [{ exists: false }, {}])
    assert.equal((await kept.snapshot()).body.messages.length, 2)
  })
})
