// What a chat route is sent of a reply, however it ended, against the validators that routes use: of every published version of `ai`, and
// one that refuses each key it does not know, as routes outside of JavaScript do.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { VERSIONS, load } from '../e2e/harness/clients.mjs'
import { generate } from './generate.mjs'
import { ask } from './native.mjs'

const CASES = Number(process.env.FOLD_CASES || 600)
const SEED = Number(process.env.FOLD_SEED || 1)
/** The keys of parts in ai 6.0.0, which the strictest validators know; a part has beside them what the route itself has said. */
const CALL = ['type', 'toolName', 'toolCallId', 'state', 'input', 'output', 'errorText', 'providerExecuted', 'callProviderMetadata', 'preliminary', 'approval']
const KEYS = { text: ['text', 'state'], reasoning: ['text', 'state'], file: ['mediaType', 'url', 'filename'], 'step-start': [] }
const SAID_BY_THE_ROUTE = ['providerMetadata', 'resultProviderMetadata', 'title', 'toolMetadata', 'citations']

for (const major of [6, 7]) {
  test(`${CASES} replies of ai ${major}, each cut at a random chunk`, async (t) => {
    const cases = Array.from({ length: CASES }, (_, at) => {
      const { chunks } = generate(SEED + at, major)
      const cut = (SEED + at * 7) % (chunks.length + 1)
      return { seed: SEED + at, written: chunks.slice(0, cut), ending: at % 2 ? 'stop' : 'complete' }
    })
    const messages = await ask(cases.map(({ written, ending }) => ({ written, ending, waits: false })))
    let unfinished = 0
    for (const [at, message] of messages.entries()) {
      if (!message) continue
      const context = `FOLD_SEED=${cases[at].seed} FOLD_CASES=1 ${JSON.stringify(message)}`
      unfinished += JSON.stringify(cases[at].written).includes('tool-input-start')
      await accepted([user('before'), { ...message, id: 'reply' }, user('after')], context)
      message.parts.forEach((part) => assertKnown(part, context))
    }
    t.diagnostic(`${unfinished} of them with a tool input that streams`)
    assert.ok(unfinished > CASES / 10)
  })
}

test('a tool input that was cut off is a call that was not executed', async () => {
  const begun = [{ type: 'tool-input-start', toolCallId: 'c', toolName: 'pay' }, { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: '{"amount": 5, "to": "B' }]
  for (const waits of [false, true]) {
    const [message] = await ask([{ written: begun, ending: 'stop', waits }])
    const part = message.parts.find(({ toolCallId }) => toolCallId === 'c')
    assert.deepEqual([part.type, part.toolName, part.state, part.input], ['dynamic-tool', 'pay', 'output-error', { amount: 5, to: 'B' }])
    assert.ok(part.errorText.length > 0 && !('rawInput' in part))
    await accepted([user('u'), { ...message, id: 'a' }, user('v')], 'cut off')
  }
})

test('a call that the route is to execute, because the user granted it, stays one', async () => {
  const chunks = [
    { type: 'tool-input-available', toolCallId: 'c', toolName: 'pay', input: {} },
    { type: 'tool-approval-request', toolCallId: 'c', approvalId: 'p' },
    { type: 'tool-approval-response', approvalId: 'p', approved: true },
  ]
  const [later, now] = await ask([false, true].map((waits) => ({ written: chunks, ending: 'complete', waits })))
  assert.equal(now.parts.at(-1).state, 'approval-responded')
  assert.equal(later.parts.at(-1).state, 'output-error', 'a later turn must not execute it once more')
  await accepted([user('u'), now], 'granted')
})

const user = (id) => ({ id, role: 'user', parts: [{ type: 'text', text: id }] })

async function accepted(messages, context) {
  const sent = JSON.parse(JSON.stringify(messages))
  for (const version of VERSIONS) {
    const { convertToModelMessages, validateUIMessages } = await load(version)
    const known = toKnow(version, sent)
    await assert.doesNotReject(validateUIMessages({ messages: structuredClone(known) }), `ai ${version}: ${context}`)
    const converted = await convertToModelMessages(structuredClone(known))
    if (sent.at(-1).role === 'user') assertAnswered(converted, `ai ${version}: ${context}`)
  }
}

/** Parts that only 7.x has come from a route of 7.x, which knows them. */
function toKnow(version, messages) {
  if (version.startsWith('7')) return messages
  const later = ['custom', 'reasoning-file', 'steering-message']
  return messages.map((message) => ({ ...message, parts: message.parts.filter(({ type }) => !later.includes(type)) })).filter(({ parts }) => parts.length)
}

/** A model API refuses a call without a result. */
function assertAnswered(converted, context) {
  const contents = converted.flatMap(({ content }) => (Array.isArray(content) ? content : []))
  const results = new Set(contents.filter(({ type }) => type === 'tool-result').map(({ toolCallId }) => toolCallId))
  for (const call of contents.filter(({ type }) => type === 'tool-call')) {
    assert.ok(results.has(call.toolCallId) || call.providerExecuted, `${call.toolCallId} has no result: ${context}`)
  }
}

function assertKnown(part, context) {
  const keys = part.type === 'dynamic-tool' || part.type.startsWith('tool-') ? CALL : part.type.startsWith('data-') ? ['id', 'data'] : KEYS[part.type]
  if (!keys) return
  const allowed = ['type', ...keys, ...SAID_BY_THE_ROUTE]
  for (const key of Object.keys(part)) assert.ok(allowed.includes(key), `${key} of ${part.type}: ${context}`)
  assert.notEqual(part.state, 'input-streaming', context)
}
