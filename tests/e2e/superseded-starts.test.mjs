// A POST whose run loses its place before its response begins is told so by a status, never by a reset.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AWARE, contract, deltasIn } from './harness/contract.mjs'
import { textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'

const set = stage({ vars: { BATCH_WAIT_MS: 20 } })
const collected = async (response) => ({ status: response.status, ...(await response.collect()) })

test('two edits of one message at one instant, 20 rounds: one reply, and a typed 409 or a broken body for the other', async () => {
  let told = 0
  for (let round = 0; round < 20; round++) {
    const s = contract(set)
    const { message } = await s.told('first')
    set.model.script(new RegExp(`^edit ${round} `), textScript(['edited']), { times: 3 })
    const edits = ['a', 'b', 'c'].map((text) => ({ ...message, parts: [{ type: 'text', text: `edit ${round} ${text}` }] }))
    const answers = await Promise.all((await Promise.all(edits.map((edit) => s.post({ messages: [edit] })))).map(collected))
    const whole = answers.filter((got) => got.status === 200 && got.ended === 'clean')
    assert.ok(whole.length >= 1, `round ${round}: one of them has the reply`)
    assert.equal(deltasIn(whole.at(-1)), 'edited')
    for (const got of answers.filter((got) => !whole.includes(got))) {
      if (got.status === 200) {
        assert.equal(got.ended, 'broken')
        continue
      }
      const body = JSON.parse(got.text)
      assert.deepEqual([got.status, body.code, body.retryable], [409, 'state_run_superseded', undefined], got.text)
      assert.notEqual(body.supersededBy, body.runId)
      told += 1
    }
    assert.equal((await s.said()).length, 2)
  }
  assert.ok(told > 0, 'some lost their place before their response began')
})

test('two retries at one instant, 10 rounds: both are answered, stock and aware', async () => {
  for (let round = 0; round < 10; round++) {
    const s = contract(set)
    await s.told(`retried ${round}`)
    set.model.script(`retried ${round}`, textScript(['anew']), { times: 2 })
    const answers = await Promise.all((await Promise.all([s.retry(), s.retry({}, AWARE)])).map(collected))
    assert.deepEqual(answers.map((got) => got.status), [200, 200], `round ${round}`)
    assert.equal(deltasIn(answers[1]).endsWith('anew'), true)
  }
})
