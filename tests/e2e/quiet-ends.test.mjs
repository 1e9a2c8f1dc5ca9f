// A body that is broken on purpose is no fault: the server does not log it, and a console that must say something says that it was meant.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { workerd } from '../chaos/workerd.mjs'
import { gate, startFakeModel, textScript } from './harness/fake-model.mjs'
import { openaiAgent } from './harness/server.mjs'
import { call, session, userMessage } from './harness/session.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

/** What a console says of such a body; the server itself says nothing. */
const MEANT = /Uncaught (\[object body ended on purpose\]|#<Object>)/g
let model
before(async () => void (model = await startFakeModel()))
after(() => model?.close())

/** Breaks a stock response in each way that the service has: `[name, ended]`. */
async function breakAll(server, at) {
  const live = async (more = {}) => {
    const s = session(server)
    at.script(s.id, textScript(['a', gate()], more), { times: 9 })
    const sent = await s.send(s.id)
    await sent.until((frame) => frame.data?.includes('"a"'))
    return { s, sent }
  }
  const ways = {
    'the session is deleted': ({ s }) => s.delete(),
    'the message is edited': async ({ s }) => {
      const { body } = await s.snapshot()
      at.script('edited', textScript(['b']))
      await call(s.chat, { json: { messages: [{ ...userMessage('edited'), id: body.messages[0].id }] } })
    },
    'there are too many': async ({ s }) => {
      for (let i = 0; i < 2; i++) await (await s.reconnect()).until((frame) => frame.data?.includes('"a"'))
    },
  }
  for (const [name, way] of Object.entries(ways)) {
    const stood = await live()
    await way(stood)
    assert.equal((await stood.sent.collect()).ended, 'broken', name)
  }
}

test('in plain workerd', async () => {
  const server = await workerd({ vars: { AGENTS: openaiAgent(model), MAX_READERS: 2 } })
  try {
    await breakAll(server, model)
    assert.doesNotMatch(server.output(), /uncaught|exception/i)
  } finally {
    await server.close()
  }
})

const output = []
const set = stage({ vars: { MAX_READERS: 2 }, logLevel: 'log', onOutput: (text) => output.push(text) })

test('in wrangler dev', async () => {
  await breakAll(set.server, set.model)
  await eventually(() => output.join('').match(MEANT), { what: 'the console’s line' })
  assert.doesNotMatch(output.join('').replaceAll(MEANT, ''), /uncaught|exception|wasm:\/\//i)
})
