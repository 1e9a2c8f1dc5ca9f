// Reloads near a reply's end: a page reads its seed at a random moment, mounts a random while later, and reconnects. The reply may end in between.
import assert from 'node:assert/strict'
import { setTimeout as pause } from 'node:timers/promises'
import { makeChat, textOf } from '../e2e/harness/clients.mjs'
import { startFakeModel, step, textScript } from '../e2e/harness/fake-model.mjs'
import { mulberry32 } from '../e2e/harness/seeded.mjs'
import { openaiAgent } from '../e2e/harness/server.mjs'
import { session } from '../e2e/harness/session.mjs'
import { within } from '../e2e/harness/wait.mjs'
import { workerd } from './workerd.mjs'

const VERSIONS = ['6-latest', '7-latest']
const WORDS = 12

/** `{reloads, gap, failures: [text]}` of so many reloads, `lanes` at a time; `gap`: how many replies ended between seed and reconnect. */
export async function reloads({ seed, count, lanes = 8, report = () => {} }) {
  const model = await startFakeModel()
  const server = await workerd({ vars: { AGENTS: openaiAgent(model) } })
  const total = { reloads: 0, gap: 0, failures: [] }
  const lane = async (name) => {
    const random = mulberry32(seed * 64 + name)
    for (let n = name; n < count; n += lanes) {
      await one({ model, server, random, total }).catch((error) => {
        const text = `reload ${n}: ${error.message}`
        total.failures.push(text)
        report(text)
      })
      total.reloads++
    }
  }
  try {
    await Promise.all(Array.from({ length: lanes }, (_, name) => lane(name)))
    return total
  } finally {
    await server.close()
    await model.close()
  }
}

async function one({ model, server, random, total }) {
  const s = session(server)
  const paceMs = 1 + Math.floor(random() * 8)
  const version = VERSIONS[Math.floor(random() * VERSIONS.length)]
  const words = Array.from({ length: WORDS }, (_, i) => `w${i} `)
  const script = textScript(words, { usage: { total_tokens: 1 } })
  model.script(s.id, [step.mode({ paceMs }), ...script])
  const sent = await s.send(s.id)
  const last = WORDS - 1 - Math.floor(random() * 5)
  await sent.until((frame) => frame.data?.includes(`w${last} `))
  sent.cut()
  await pause(random() * paceMs * 8)
  const { body } = await s.snapshot('?seed=1')
  await pause(random() * paceMs * 10)
  const chat = await makeChat(version, {
    id: s.id,
    origin: server.origin,
    messages: body.messages,
    transport: { prepareReconnectToStreamRequest: () => ({ api: `${server.origin}${body.reconnect}` }) },
  })
  const over = (await s.info()).status !== 'active'
  await within(chat.resumeStream())
  const [answer] = chat.seen.answers
  const { body: kept } = await s.snapshot()
  const where = `ai ${version}, seeded ${body.status} at ${body.streamSequence}, answered ${answer}`
  assert.equal(chat.status, 'ready', `${where}: ${chat.error?.message}`)
  assert.deepEqual(chat.messages.map((m) => [m.role, m.id, textOf(m)]), kept.messages.map((m) => [m.role, m.id, textOf(m)]), where)
  assert.equal(textOf(chat.messages.at(-1)), script.text, where)
  assert.equal(answer, body.status === 'active' ? 200 : 204, where)
  if (body.status === 'active' && over) total.gap++
}
