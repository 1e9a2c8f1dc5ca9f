// Every chat response names its session, for clients that keep such a name and resume by it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { textScript } from './harness/fake-model.mjs'
import { call, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()

test('every chat response carries the session as x-resumable-stream-id, and the name resumes it', async () => {
  for (const [id, name] of [[undefined, undefined], ["it's (a) name", "it%27s%20%28a%29%20name"], ['grüße', 'gr%C3%BC%C3%9Fe']]) {
    const s = set.session(id)
    set.model.script('hi', textScript(['a']))
    const bare = { json: { id: s.id, messages: [userMessage('hi', 'u1')] } }
    const answers = {
      send: await call(`${set.server.origin}/api/chat`, bare), repeat: await call(s.chat, bare), attach: await call(s.chat), 'reconnect (204)': await call(`${s.chat}/stream`),
      snapshot: await s.snapshot(), stop: await s.stop(), 'refused (400)': await call(s.chat, { body: 'x', headers: { 'content-type': 'application/json' } }),
    }
    const expected = name ?? s.id
    for (const [what, answer] of Object.entries(answers)) assert.equal(answer.headers.get('x-resumable-stream-id'), expected, `${what}: ${answer.status}`)
    assert.match((await call(`${set.server.origin}/api/chat/${answers.send.headers.get('x-resumable-stream-id')}`)).text, /"delta":"a"/)
    assert.equal((await call(`${s.own}/info`)).headers.get('x-resumable-stream-id'), null)
  }
})
