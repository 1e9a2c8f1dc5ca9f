// Several sends at one instant: one of them starts the run, the others learn which and can follow it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { foldAll, textOf } from './harness/clients.mjs'
import { gate, textScript } from './harness/fake-model.mjs'
import { userMessage } from './harness/session.mjs'
import { openSse } from './harness/sse.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
const refusal = async (reader) => JSON.parse((await reader.collect()).text)

test('two sends at once, 20 rounds, in new sessions and in known ones: one 200, one 409, one user row', async () => {
  for (let round = 0; round < 20; round++) {
    const known = round % 2 === 1
    const s = set.session()
    const held = gate()
    if (known) {
      set.model.enqueue(textScript(['earlier']))
      await s.ask('earlier')
    }
    set.model.enqueue(textScript(['the ', held, 'reply']))
    const calls = set.model.requests.length
    const answers = await Promise.all([s.send('one'), s.send('two')])
    assert.deepEqual(answers.map((a) => a.status).sort(), [200, 409], `round ${round}`)
    const won = answers.find((a) => a.status === 200)
    const body = await refusal(answers.find((a) => a.status === 409))
    assert.deepEqual([body.code, body.retryable, typeof body.error], ['state_already_running', true, 'string'])
    assert.equal(body.runId, (await s.info()).runId)
    const attached = await openSse(set.server.origin + body.attach)
    assert.equal(attached.status, 200)
    held.open()
    const [own, other] = [await won.collect(), await attached.collect()]
    for (const got of [own, other]) {
      await assertChatBody(got)
      assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, 'the reply')
    }
    const { messages } = (await s.snapshot()).body
    const said = won === answers[0] ? 'one' : 'two'
    assert.deepEqual(messages.map(textOf).slice(known ? 2 : 0), [said, 'the reply'], `round ${round}`)
    assert.equal(set.model.requests.length, calls + 1, 'one model call')
  }
})

test('the same message sent twice at once is one run, which both follow', async () => {
  for (let round = 0; round < 10; round++) {
    const s = set.session()
    set.model.enqueue(textScript(['once']))
    const messages = [userMessage('same', 'same-id')]
    const calls = set.model.requests.length
    const bodies = await Promise.all(Array.from({ length: 3 }, async () => (await s.send('', { messages })).collect()))
    for (const got of bodies) {
      await assertChatBody(got)
      assert.equal((await foldAll('7-latest', got.raw, messages)).text, 'once', `round ${round}: ${got.text.slice(0, 200)}`)
    }
    assert.deepEqual((await s.snapshot()).body.messages.map(textOf), ['same', 'once'])
    assert.equal(set.model.requests.length, calls + 1)
  }
})

test('sends to twenty sessions at once do not meet', async () => {
  const sessions = Array.from({ length: 20 }, () => set.session())
  for (const s of sessions) set.model.script(s.id, textScript([`for ${s.id}`]))
  const bodies = await Promise.all(sessions.map((s) => s.ask(s.id)))
  for (const [index, got] of bodies.entries()) {
    await assertChatBody(got)
    assert.equal((await foldAll('7-latest', got.raw, [userMessage('x')])).text, `for ${sessions[index].id}`)
  }
})
