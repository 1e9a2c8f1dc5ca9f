// Rows that nobody can read: the session settles, says so, and can be deleted.
import assert from 'node:assert/strict'
import { closeSync, openSync, readFileSync, readdirSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { plainly } from '../chaos/workerd.mjs'
import { assertChatBody } from './harness/assertions.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ start: plainly })

test('an unreadable block under a dead run neither keeps it running nor the session from being deleted', async () => {
  const s = set.session()
  const never = gate()
  set.model.script('damaged', textScript(['said ', never]))
  const sent = await s.send('damaged')
  await sent.until((frame) => frame.data?.includes('said '))
  const { head, runId } = await s.info()
  const block = { key: (head + 1) * 1024, last: head + 1, run: runId, attempt: null, bytes: [...Buffer.from('no frame')] }
  assert.deepEqual((await s.seam('storage', { json: { apply: [{ OpenBlock: block }] } })).body, { ok: 'applied' })
  await set.server.kill()
  never.open()
  await set.server.start()

  const { status, body } = await s.snapshot()
  assert.deepEqual([status, body.status, body.errorDetail.code], [200, 'failed', 'producer_lost'])
  assert.equal((await s.page(0, 500)).status, 409, 'what cannot be read is not left out in silence')
  assert.equal((await s.delete()).status, 200)
  assert.deepEqual(await s.info(), { exists: false })
})

/** Damages the first page of a table in the session's own database file; the server is down. */
function damage(folder, mark, table) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
  const own = files.filter((f) => f.isFile() && f.name.endsWith('.sqlite') && f.name !== 'metadata.sqlite')
  const roots = own.map((f) => {
    const path = join(f.parentPath, f.name)
    const database = new DatabaseSync(path)
    database.exec('PRAGMA wal_checkpoint(TRUNCATE)')
    const { page_size: size } = database.prepare('PRAGMA page_size').get()
    const root = database.prepare('SELECT rootpage FROM sqlite_master WHERE name = ?').get(table)?.rootpage
    database.close()
    return { path, size, root }
  })
  const [found, ...more] = roots.filter(({ path, root }) => root && readFileSync(path).includes(mark))
  assert.ok(found && more.length === 0, `one file holds ${mark}`)
  const file = openSync(found.path, 'r+')
  writeSync(file, Buffer.alloc(found.size, 0xa5), 0, found.size, (found.root - 1) * found.size)
  closeSync(file)
}

// `load`: whether the session itself cannot be read, and not only what lies in the table.
for (const [table, load] of [['message', false], ['run', true], ['chunk_block', true]]) {
  test(`a database file whose table ${table} is damaged is no passing failure, and the session can be deleted`, async () => {
    const s = set.session()
    set.model.script(s.id, textScript(['fine ', 'until '.repeat(4000), 'now']))
    await s.ask(s.id)
    await set.server.kill()
    damage(set.server.state, s.id, table)
    await set.server.start()

    const asks = [() => s.snapshot(), () => call(s.chat), () => call(`${s.chat}/stop`, { json: {} }), () => s.page(0, 10)]
    for (const ask of load ? asks : asks.slice(0, 1)) {
      const answer = await ask()
      const { code, cause, retryable } = answer.body
      assert.deepEqual([answer.status, code, cause, retryable], [409, 'state_history_incomplete', 'corrupt_row', false], answer.text)
      assert.doesNotMatch(answer.text, /SQLITE|malformed|database/)
    }
    const gone = await s.delete()
    assert.equal(gone.status, 200, gone.text)
    assert.deepEqual(await s.info(), { exists: false })
    await set.server.kill()
    await set.server.start()
    assert.deepEqual(await s.info(), { exists: false })
    set.model.script(`new ${s.id}`, textScript(['new']))
    await assertChatBody(await s.ask(`new ${s.id}`))
    assert.equal((await s.snapshot()).body.messages.length, 2, 'and begun anew')
  })
}
