// Ids of messages are unique in a session, whoever brings them, and a reply that takes another's place has an id of its own.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertRefused } from './harness/assertions.mjs'
import { chunksIn, contract } from './harness/contract.mjs'
import { textScript } from './harness/fake-model.mjs'
import { producer, says } from './harness/producer.mjs'
import { userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'

const set = stage()
const lastId = async (s) => (await s.snapshot()).body.messages.at(-1).id
const startOf = (got) => chunksIn(got).find((c) => c.type === 'start').messageId

describe('a reply', () => {
  test('that is regenerated, retried or answered anew has a fresh id', async () => {
    const s = contract(set)
    const { message, got } = await s.told('again and again')
    const ids = [startOf(got)]
    const once = async (answering) => {
      const body = await (await answering).collect()
      ids.push(startOf(body))
      assert.equal(await lastId(s), ids.at(-1), 'clients and the store call it the same')
    }
    set.model.script('again and again', textScript(['once more']), { times: 2 })
    await once(s.post({ trigger: 'regenerate-message', messageId: ids[0], messages: [message] }))
    await once(s.retry())
    const edited = { ...message, parts: [{ type: 'text', text: 'in other words' }] }
    set.model.script('in other words', textScript(['edited']))
    await once(s.post({ messages: [edited] }))
    assert.equal(new Set(ids).size, 4, ids.join(' '))
  })
})

/** An id that the session gives its replies, with the number at its end changed. */
const coming = (id) => [3, 4, 5].map((n) => id.replace(/\d+$/, String(n))).concat(id.replace(/\d+_\d+$/, '2_3'), id.replace(/_\d+_\d+$/, '_3'))

describe('no message takes an id', () => {
  test('that a reply will have', async () => {
    const s = contract(set)
    const { message } = await s.told('first')
    const reply = await lastId(s)
    const before = (await s.snapshot()).body
    for (const id of coming(reply)) {
      for (const json of [{ messages: [userMessage('mine', id)] }, { messages: [userMessage('mine', id)], messageId: message.id }, { trigger: 'regenerate-message', messages: [userMessage('mine', id)] }]) {
        assertRefused(await s.refused(json), 400)
      }
      assertRefused(await producer(s).ask({ vocabulary: 'ui', message: userMessage('mine', id) }), 400)
    }
    assert.deepEqual((await s.snapshot()).body, before)
    await s.told('second')
    const ids = (await s.snapshot()).body.messages.map((m) => m.id)
    assert.equal(new Set(ids).size, 4)
  })

  test('that is there, or that a reply will have, as a later message of a commit', async () => {
    const s = contract(set)
    const { message } = await s.told('first')
    const reply = await lastId(s)
    const run = await producer(s).open({ message: userMessage('second', 'u2') })
    await run.append(says('Hi').slice(0, 5))
    const say = (id) => ({ id, role: 'assistant', parts: [{ type: 'text', text: id }] })
    for (const id of [message.id, reply, 'u2', run.claim.resumeMessageId, ...coming(reply)]) {
      assertRefused(await run.commit({ messages: [say('own'), say(id)] }), 400)
    }
    assert.equal((await run.commit({ messages: [say('own'), say('another')] })).status, 200)
    assert.equal((await run.commit({ messages: [say('own'), say('another')] })).status, 200, 'its own once more')
    const ids = (await s.snapshot()).body.messages.map((m) => m.id)
    assert.deepEqual(ids, [message.id, reply, 'u2', run.claim.resumeMessageId, 'another'])
  })
})
