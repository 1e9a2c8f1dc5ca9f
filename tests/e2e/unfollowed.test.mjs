// Nobody connected: the run goes on to its end, is stored whole, and costs few rows.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { VERSIONS, textOf, validateMessages } from './harness/clients.mjs'
import { gate, step, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const set = stage({ vars: { HEARTBEAT_MS: 150 } })
const WORDS = Array.from({ length: 300 }, (_, i) => `w${i} `)

/** A run of three seconds; how many rows it writes after its first frame. */
async function run(stay) {
  const s = set.session()
  const held = gate()
  set.model.script(s.id, textScript(['first ', held, step.mode({ paceMs: 10 }), ...WORDS]))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('first '))
  const over = stay ? sent.collect() : sent.cut()
  await eventually(async () => (await s.info()).readers === (stay ? 1 : 0), { what: 'the readers as wanted' })
  const before = (await s.info()).rowsWritten
  held.open()
  // Only requests that are no readers, and few of them.
  await eventually(async () => (await s.info()).status === 'ended', { every: 250, what: 'the end of the run' })
  await over
  return { s, rows: (await s.info()).rowsWritten - before }
}

test('the reply is whole, and is flushed about once a second instead of twenty times', async () => {
  const [alone, followed] = await Promise.all([run(false), run(true)])
  for (const { s } of [alone, followed]) {
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, textOf(body.messages.at(-1))], ['ended', `first ${WORDS.join('')}`])
    const log = await s.log()
    assert.deepEqual(log.map((c) => c.sequence), log.map((_, i) => i + 1))
    for (const version of VERSIONS) await validateMessages(version, body.messages)
  }
  assert.ok(followed.rows > 30, `${followed.rows} rows while somebody follows`)
  assert.ok(alone.rows <= 25, `${alone.rows} rows while nobody does`)
  assert.ok(alone.rows * 2 < followed.rows, `${alone.rows} and ${followed.rows} rows`)
})

test('whoever comes back sees at once what was said meanwhile', async () => {
  const s = set.session()
  const [held, end] = [gate(), gate()]
  set.model.script(s.id, textScript(['first ', held, 'meanwhile ', end, 'last']))
  const sent = await s.send(s.id)
  await sent.until((f) => f.data?.includes('first '))
  sent.cut()
  await eventually(async () => (await s.info()).readers === 0, { what: 'nobody' })
  held.open()
  const back = await s.reconnect()
  await back.until((f) => f.data?.includes('meanwhile '), 5000)
  end.open()
  assert.equal((await back.collect()).ended, 'clean')
})
