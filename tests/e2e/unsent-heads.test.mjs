// What a client gets whose response broke, or whose storage failed, before a byte of it had left: a typed answer, never the runtime's words.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openSse } from './harness/sse.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const set = stage({ vars: { TEST_SEAMS: '1' } })
const fail = async (s, of, count) => assert.equal((await call(`${s.own}/__seam/x?name=fail-storage&of=${of}&count=${count}`)).status, 200)

for (const headers of [{}, { 'x-helix-request-key': 'k' }]) {
  test(`statements that fail behind a run's start (${Object.keys(headers)[0] ?? 'stock'}) are answered in the service's words`, async () => {
    for (const count of [1, 2, 3, 4, 6, 9, 14]) {
      const s = set.session()
      set.model.script(`first ${s.id}`, textScript(['ok']))
      await s.ask(`first ${s.id}`)
      await fail(s, 'behind-transaction', count)
      set.model.script(s.id, textScript(['ok']), { times: 3 })
      const sent = await openSse(s.chat, { json: { id: s.id, messages: [userMessage(s.id)] }, headers })
      const got = await sent.collect()
      if (sent.status === 200) {
        assert.match(sent.headers['content-type'], /^text\/event-stream/, `${count} failures`)
        assert.ok(got.raw.length > 0, `${count} failures`)
      } else {
        const body = JSON.parse(got.text)
        assert.ok(sent.status !== 503 && typeof body.error === 'string' && typeof body.code === 'string', `${count} failures: ${got.text}`)
      }
      assert.doesNotMatch(got.text, /Network connection lost|\bat \w|\.js:\d|a test asked/)
      await fail(s, 'statements', 0)
      await eventually(async () => (await s.snapshot()).body.status !== 'active')
      assert.equal((await s.snapshot()).body.messages.filter((m) => m.parts[0].text === s.id).length, 1, 'stored once')
    }
  })
}

test('a body that breaks before its head has left is a typed status', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['part', gate()]))
  const first = await call(s.chat, { json: { id: s.id, messages: [userMessage(s.id)] }, headers: { 'x-test-break': 'early' } })
  assert.deepEqual([first.status, first.body], [500, { error: 'Internal error', code: 'framework_internal_error' }])
  const again = await call(s.chat, { headers: { 'x-test-break': 'early' } })
  assert.deepEqual([again.status, again.body], [500, { error: 'Internal error', code: 'framework_internal_error' }])
  await s.stop()
})
