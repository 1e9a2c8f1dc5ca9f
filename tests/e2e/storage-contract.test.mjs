// The storage contract, step by step over HTTP on the real object: the same script runs on the double and on native SQLite.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { TEST_SEAMS: '1' } })
const steps = JSON.parse(readFileSync(new URL('../contract/storage.json', import.meta.url), 'utf8'))

test(`the real object gives the contract's outcome in all of its ${steps.length} steps`, async () => {
  const s = set.session()
  for (const [index, { about, operation, outcome }] of steps.entries()) {
    const answer = await s.seam('storage', { json: operation })
    assert.equal(answer.status, 200, `step ${index}, ${about}: ${answer.text}`)
    assert.deepEqual(answer.body, outcome, `step ${index}: ${about}`)
  }
})

test('what it stored outlives a crash', async () => {
  const s = set.session()
  const first = steps.find((step) => step.about === 'the first write creates the schema')
  // Its blocks hold no frames, and a run that is found running would be settled from them.
  const apply = first.operation.apply.map((write) => (write.Run ? { Run: { ...write.Run, status: 'completed', end: 2, ended: 2000 } } : write))
  assert.deepEqual((await s.seam('storage', { json: { apply } })).body, first.outcome)
  const read = async () => {
    const answers = []
    for (const json of ['load', 'counts', { blocks: [0, 1000] }, { messages: 1 }]) answers.push((await s.seam('storage', { json })).body)
    return answers
  }
  const before = await read()
  assert.ok(before.every((answer) => answer.ok), JSON.stringify(before))
  await set.server.kill()
  await set.server.start()
  assert.deepEqual(await read(), before)
})
