// What a vendor wants back of its answer goes back to it over every client version, and pictures are shown.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { answerCall, assertAsStored, callingChat, saidLast } from './harness/calls.mjs'
import { VERSIONS } from './harness/clients.mjs'
import { step, textScript } from './harness/fake-model.mjs'
import { stage } from './harness/stage.mjs'
import { eventually } from './harness/wait.mjs'

const set = stage({
  agents: ({ baseUrl }) => ({
    default: { producer: 'openai', baseUrl, model: 'gemini', tools: [{ name: 'weather' }] },
    strict: { producer: 'openai', baseUrl, model: 'deepseek', sendReasoning: true, tools: [{ name: 'weather' }] },
  }),
})

const delta = (said, finish_reason = null) => step.event({ id: 'x', choices: [{ index: 0, delta: said, finish_reason }] })
const SIGNED = { google: { thought_signature: 'AY89a18IwQ==' } }
const DETAILS = [{ type: 'reasoning.encrypted', data: 'gAAAA', id: 'rs_1', format: 'openai-responses-v1', index: 0 }]
const call = (more) => ({ index: 0, id: 'c1', type: 'function', function: { name: 'weather', arguments: '{}' }, ...more })
const requests = (text) => set.model.requests.filter((r) => r.lastUserText === text).map((r) => r.body.messages)

const answers = {
  'with its call': [delta({ tool_calls: [call({ extra_content: SIGNED })] })],
  'in a delta of its own': [delta({ tool_calls: [call()] }), delta({ tool_calls: [{ index: 0, extra_content: SIGNED }] })],
}
for (const version of VERSIONS) {
  describe(`ai ${version}`, () => {
    for (const [where, deltas] of Object.entries(answers)) {
      test(`a thought’s signature that came ${where} goes back with the call`, async () => {
        const s = set.session()
        set.model.script(s.id, [...deltas, delta({ reasoning_details: DETAILS }), delta({}, 'tool_calls'), step.done()])
        set.model.script(s.id, textScript(['Sunny.']))
        const chat = await callingChat(version, s, set.server.origin, { auto: 'calls' })
        await chat.sendMessage({ text: s.id })
        await answerCall(chat, 'c1', 'weather', 'fine')
        await saidLast(chat, 'Sunny.')
        await assertAsStored(version, chat, s)
        const sent = requests(s.id)[1].find((m) => m.role === 'assistant')
        assert.deepEqual(sent.tool_calls, [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{}' }, extra_content: SIGNED }])
        assert.deepEqual(sent.reasoning_details, DETAILS)
      })
    }

    test('a picture is a file', async () => {
      const s = set.session()
      const url = 'data:image/png;base64,iVBORw0KGgo='
      set.model.script(s.id, [delta({ content: 'Here.', images: [{ type: 'image_url', image_url: { url } }] }), delta({}, 'stop'), step.done()])
      const chat = await callingChat(version, s, set.server.origin)
      await chat.sendMessage({ text: s.id })
      // 6.0.0 leaves out who drew it, which the store keeps.
      for (const message of [chat.lastMessage, (await s.snapshot()).body.messages.at(-1)]) {
        const file = message.parts.find((p) => p.type === 'file')
        assert.deepEqual([file.url, file.mediaType], [url, 'image/png'])
      }
    })
  })
}

test('with reasoning, a step without any sends the empty one', async () => {
  const s = set.session()
  set.model.script(s.id, textScript(['Hello.']))
  await s.ask(s.id, { agent: 'strict' })
  set.model.script(`more ${s.id}`, textScript(['more']))
  await s.ask(`more ${s.id}`, { agent: 'strict' })
  assert.deepEqual(requests(`more ${s.id}`)[0][1], { role: 'assistant', content: 'Hello.', reasoning_content: '' })
})

test('after a first reply that failed, and one that was stopped before a word, the next request has one message of the user', async () => {
  const s = set.session()
  set.model.script(`one ${s.id}`, [step.status(400)])
  await s.ask(`one ${s.id}`)
  set.model.script(`two ${s.id}`, [step.silence()])
  const sent = await s.send(`two ${s.id}`)
  await eventually(() => requests(`two ${s.id}`).length, { what: 'the second request' })
  await s.stop()
  await sent.collect()
  set.model.script(`three ${s.id}`, textScript(['Hello.']))
  await s.ask(`three ${s.id}`)
  assert.deepEqual(requests(`three ${s.id}`)[0], [{ role: 'user', content: `one ${s.id}\n\ntwo ${s.id}\n\nthree ${s.id}` }])
})
