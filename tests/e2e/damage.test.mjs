// Rows that nobody can read: the session settles, says so, and can be deleted.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gate, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { TEST_SEAMS: '1' } })

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
