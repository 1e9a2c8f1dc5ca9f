// Long conversations: what is sent to a model is bounded, by whole turns, and everything stays stored.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { startFakeModel, textScript } from './harness/fake-model.mjs'
import { blockScript } from './harness/messages-api.mjs'
import { startRejoin } from './harness/server.mjs'
import { session } from './harness/session.mjs'
import { checkCompletionRequest, checkMessagesRequest } from './harness/vendor-requests.mjs'

const APIS = {
  openai: { answer: (said, tool) => textScript([said], { tool: tool && { id: tool, name: 'f', arguments: '{}' } }), text: (m) => m.content },
  anthropic: {
    answer: (said, tool) => blockScript([{ type: 'text', text: said }, ...(tool ? [{ type: 'tool_use', id: tool, name: 'f', input: {} }] : [])], { stop: tool ? 'tool_use' : 'end_turn' }),
    text: (m) => m.content.filter((b) => b.type === 'text').map((b) => b.text).join(''),
  },
}
const BYTES = 4000

let model
let server
before(async () => {
  model = await startFakeModel({ check: (request) => (request.path.endsWith('/messages') ? checkMessagesRequest(request) : checkCompletionRequest(request)) })
  const agents = {}
  for (const producer of Object.keys(APIS)) {
    const shared = { producer, baseUrl: model.baseUrl, model: 'm', apiKey: 'KEY', system: 'Be brief.', tools: [{ name: 'f' }] }
    Object.assign(agents, { [`${producer} by count`]: { ...shared, maxHistory: 5 }, [`${producer} by bytes`]: { ...shared, maxHistoryBytes: BYTES } })
  }
  server = await startRejoin({ agents, vars: { KEY: 'sk-key' } })
})
after(async () => {
  await server?.close()
  await model?.close()
})

for (const [api, { answer, text }] of Object.entries(APIS)) {
  describe(api, () => {
    /** One turn; answers what the model was sent, as texts of users and assistants. */
    async function turn(s, agent, question, said, tool) {
      model.enqueue(answer(said, tool))
      await assertChatBody(await s.ask(question, { agent: `${api} ${agent}` }))
      assert.deepEqual(model.refused, [])
      const { messages, system } = model.requests.at(-1).body
      assert.equal(system ?? messages[0].content, 'Be brief.', 'the system prompt stays')
      return messages.filter((m) => m.role !== 'system' && m.role !== 'tool').map((m) => text(m) ?? '')
    }

    test('beyond the number of messages the oldest turns are left out, whole', async () => {
      const s = session(server)
      const sent = []
      // The user goes on behind the results of the third turn's call; what answers those stands between.
      const between = api === 'openai' ? ['(interrupted)'] : []
      for (let n = 0; n < 6; n++) sent.push(await turn(s, 'by count', `q${n}`, `a${n}`, n === 2 ? 'call_2' : undefined))
      assert.deepEqual(sent, [
        ['q0'],
        ['q0', 'a0', 'q1'],
        ['q0', 'a0', 'q1', 'a1', 'q2'],
        ['q1', 'a1', 'q2', 'a2', ...between, 'q3'],
        ['q2', 'a2', ...between, 'q3', 'a3', 'q4'],
        ['q3', 'a3', 'q4', 'a4', 'q5'],
      ])
      assert.equal((await s.snapshot()).body.messages.length, 12, 'all of it is stored')
    })

    test('beyond the number of bytes as well; the newest turn goes whole, however large', async () => {
      const s = session(server)
      const large = (name) => `${name} ${'ü'.repeat(700)}`
      const sent = []
      for (const name of ['A', 'B', 'C']) sent.push(await turn(s, 'by bytes', large(name), 'yes'))
      const names = sent.map((list) => list.filter((t) => t !== 'yes').map((t) => t[0]).join(''))
      assert.deepEqual(names, ['A', 'AB', 'BC'])
      assert.ok(Buffer.byteLength(JSON.stringify(model.requests.at(-1).body.messages)) <= BYTES)

      const huge = `H ${'x'.repeat(2 * BYTES)}`
      assert.deepEqual(await turn(s, 'by bytes', huge, 'yes'), [huge])
      assert.deepEqual(await turn(s, 'by bytes', 'after', 'yes'), ['after'])
      assert.deepEqual(await turn(s, 'by bytes', 'and then', 'yes'), ['after', 'yes', 'and then'])
      const { messages } = (await s.snapshot()).body
      assert.deepEqual(messages.filter((m) => m.role === 'user').map((m) => textOf(m)[0]), ['A', 'B', 'C', 'H', 'a', 'a'])
    })
  })
}
