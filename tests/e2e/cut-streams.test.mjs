// The same answer of a model in other writes: cut at random bytes, byte by byte, with CRLF, with comments. `SEED=n` repeats the same cuts.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { assertChatBody } from './harness/assertions.mjs'
import { foldAll } from './harness/clients.mjs'
import { startFakeModel, step, textScript } from './harness/fake-model.mjs'
import { blockScript } from './harness/messages-api.mjs'
import { chatRecordings, messagesRecordings } from './harness/recordings.mjs'
import { startRejoin } from './harness/server.mjs'
import { session } from './harness/session.mjs'

const SEED = Number(process.env.SEED ?? Date.now() % 1_000_000)

let model
let server
before(async () => {
  model = await startFakeModel()
  const at = { baseUrl: model.baseUrl, model: 'm' }
  server = await startRejoin({ agents: { openai: { producer: 'openai', ...at }, anthropic: { producer: 'anthropic', ...at } } })
})
after(async () => {
  await server?.close()
  await model?.close()
})

/** A small generator of numbers below `n` that a seed repeats. */
function numbers(seed) {
  let state = seed >>> 0
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * n)
  }
}

/** The bytes in pieces: cut at `count` random places, and at those of `middles`. */
function cut(bytes, count, below, middles) {
  const places = new Set(middles)
  while (places.size < Math.min(count + middles.length, bytes.length - 1)) places.add(1 + below(bytes.length - 1))
  const sorted = [0, ...[...places].sort((a, b) => a - b), bytes.length]
  return sorted.slice(1).map((end, i) => bytes.subarray(sorted[i], end))
}

/** Some places inside a character of several bytes. */
const insideCharacters = (bytes, most = 20) => bytes.reduce((found, byte, at) => (at && (byte & 0xc0) === 0x80 && found.length < most ? [...found, at] : found), [])

const framed = {
  openai: (events) => [...events.map((data) => ({ data })), { data: '[DONE]' }],
  anthropic: (events) => events.map((data) => ({ name: JSON.parse(data).type, data })),
}
function body(api, events, { end = '\n', between = '' } = {}) {
  const frame = ({ name, data }) => `${between}${name ? `event: ${name}${end}` : ''}data: ${data}${end}${end}`
  return Buffer.from(framed[api](events).map(frame).join(''))
}

async function reply(api, steps) {
  const s = session(server)
  model.enqueue(steps)
  const got = await s.ask('cut', { agent: api })
  await assertChatBody(got)
  const folded = await foldAll('7-latest', got.raw)
  assert.equal(folded.status, 'ready', folded.error?.message)
  // Only the message's own id may differ.
  const { id, ...said } = folded.reply
  return { said, finish: folded.finishes.at(-1).finishReason }
}

const linesOf = (steps) => steps.filter((s) => s.step === 'event' && s.data !== '[DONE]').map((s) => JSON.stringify(s.data))
const INPUT = { 'schlüssel': 'wért "👋🏽" \\ \n', list: [1, { deep: null }] }
const own = {
  openai: linesOf(textScript(['grüße ', '👋🏽', ' 漢字\r\n end'], { reasoning: ['ünd '], tool: { id: 'c', name: 't', arguments: JSON.stringify(INPUT) } })),
  anthropic: linesOf(
    blockScript(
      [
        { type: 'thinking', thinking: 'ünd 漢字', signature: 'c2ln' },
        { type: 'text', text: 'grüße 👋🏽\r\n end' },
        { type: 'tool_use', id: 'c', name: 't', input: INPUT },
      ],
      { stop: 'tool_use' },
    ),
  ),
}
const streams = [
  ...Object.entries(own).map(([api, events]) => ({ api, name: 'a made one with every part', events, isSmall: true })),
  ...chatRecordings().map(({ name, lines }) => ({ api: 'openai', name, events: lines })),
  ...messagesRecordings().map(({ name, lines }) => ({ api: 'anthropic', name, events: lines })),
]

test('recorded streams', { skip: streams.length === 2 && 'the recordings are not at hand' }, () => {})

for (const { api, name, events, isSmall } of streams) {
  describe(`${api}, ${name}`, () => {
    let whole
    before(async () => (whole = await reply(api, [step.raw(body(api, events))])))
    const same = async (steps, what) => assert.deepEqual(await reply(api, steps), whole, what)

    test(`cut at random bytes (SEED=${SEED})`, async () => {
      const below = numbers(SEED)
      for (let round = 0; round < (isSmall ? 5 : 2); round++) {
        const bytes = body(api, events)
        await same(cut(bytes, 40, below, insideCharacters(bytes)).map(step.raw), `round ${round}`)
      }
    })

    test('in other line ends, with comments between, and in small writes', async () => {
      const comments = body(api, events, { end: '\r\n', between: ': ping\r\n\r\n:\r\n' })
      await same([step.raw('\uFEFF'), ...cut(comments, 40, numbers(SEED), []).map(step.raw)], 'CRLF and comments')
      await same([step.raw(body(api, events, { end: '\r', between: ': a\r' }))], 'CR')
      // The platform hands over what has arrived; a long stream byte by byte takes long and shows nothing more.
      const bytes = body(api, events)
      const ones = [...bytes.subarray(0, 4000)].map((byte) => step.raw(Buffer.of(byte)))
      await same([...ones, step.raw(bytes.subarray(4000))], 'byte by byte')
    })
  })
}

test('the made streams hold what they are made of', async () => {
  const { said, finish } = await reply('openai', [step.raw(body('openai', own.openai))])
  const other = await reply('anthropic', [step.raw(body('anthropic', own.anthropic))])
  for (const parts of [said.parts, other.said.parts]) {
    assert.deepEqual(parts.find((p) => p.toolCallId).input, INPUT)
    assert.match(parts.find((p) => p.type === 'text').text, /^grüße 👋🏽.*\r\n end$/su)
    assert.match(parts.find((p) => p.type === 'reasoning').text, /^ünd /)
  }
  assert.deepEqual([finish, other.finish], ['tool-calls', 'tool-calls'])
})
