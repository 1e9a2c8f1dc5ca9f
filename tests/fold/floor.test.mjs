// What leaves for clients of a floor is accepted by every version from that floor on: chunks by the version's own schema, committed
// messages by its own validator.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { load } from '../e2e/harness/clients.mjs'
import { generate } from './generate.mjs'
import { ask } from './native.mjs'

/** The floors, and the versions that are installed from each on. */
const FLOORS = {
  '6.0.0': ['6.0.0', '6.0.230', '6.0.281', '6-latest', '7.0.0', '7-latest'],
  '6.0.230': ['6.0.230', '6.0.281', '6-latest', '7.0.0', '7-latest'],
  '6.0.281': ['6.0.281', '6-latest', '7.0.0', '7-latest'],
  '6.0.326': ['6-latest', '7.0.0', '7-latest'],
  '7.0.0': ['7.0.0', '7-latest'],
  '7.0.173': ['7-latest'],
}
/** Clients of these refuse every key that they do not know. */
const BOOKKEEPING = { runId: 'r', attemptId: 'r-1-1', step: 1, _sequence: 4, sequence: 4, usage: {} }

const METADATA = { p: { k: [1, null] } }
const SOURCE = { type: 'source', sourceType: 'url', id: 's', url: 'u' }

/** For every key a value that clients accept, then some that they do not. */
const VALUES = {
  id: ['t', 7, null],
  delta: ['x', null],
  inputTextDelta: ['{', {}],
  toolCallId: ['c', 1],
  toolName: ['n', null],
  input: [{ a: 1 }, null, 'x'],
  output: [{ a: 1 }, null],
  errorText: ['e', {}],
  providerMetadata: [METADATA, {}, null, { flat: 1 }, 'x', [], { p: [] }],
  toolMetadata: [{ a: null }, null, [], 'x'],
  providerExecuted: [true, 'true', null],
  dynamic: [true, null],
  title: ['T', null, 1],
  preliminary: [true, null, 1],
  inputEncoding: ['text', 'xml', null],
  approvalId: ['p', null],
  approved: [false, null, 'no'],
  signature: ['s', null, {}],
  approvalDescriptor: [{ a: 1 }, 'x', null],
  isAutomatic: [true, 'x', null],
  reason: ['because', null, {}],
  inputSchemaInput: [{ a: 1 }, null],
  sourceId: ['s', null],
  url: ['https://a', null],
  mediaType: ['text/plain', null],
  filename: ['f', null, 1],
  kind: ['a.b', 'plain', 1],
  data: [{ a: 1 }, null],
  transient: [true, null, 'x'],
  messageId: ['m', null, 1],
  messageMetadata: [{ a: 1 }, null, 'x'],
  finishReason: ['stop', 'interrupted', 'unknown', 'tool-calls', null, 7, { unified: 'stop' }],
  citations: [
    [{ source: SOURCE, startIndex: 0, citedText: 'x' }],
    [],
    null,
    [{}],
    [{ source: {} }],
    [{ source: { ...SOURCE, sourceType: 'other' } }],
    [{ source: { ...SOURCE, url: 1 } }],
    [{ source: { type: 'source', sourceType: 'document', id: 's', mediaType: 'm', title: 't', filename: null } }],
    [{ source: SOURCE, startIndex: -1 }],
    [{ source: SOURCE, endIndex: 1.5 }],
    [{ source: SOURCE, citedText: null }],
    [{ source: { ...SOURCE, title: 1 } }],
    [{ source: { ...SOURCE, providerMetadata: { flat: 1 } } }],
  ],
  parts: [
    [{ type: 'text', text: 'x', providerMetadata: METADATA }, { type: 'file', mediaType: 'm', url: 'u', filename: 'f', providerReference: { p: 'r' } }],
    [],
    null,
    [{ type: 'image', url: 'u' }],
    [{ type: 'text', text: null }],
    [{ type: 'text', text: 'x', providerMetadata: { flat: 1 } }],
    [{ type: 'file', mediaType: 'm', url: 'u', filename: null }],
    [{ type: 'file', mediaType: 'm', url: 'u', providerReference: { p: 1 } }],
  ],
}

/** Every chunk type whole, with required keys only, and with each key missing, alone beside the required ones, or of each other value. */
function chunksOf({ type, keys }) {
  const kind = type === 'data-' ? 'data-x' : type
  const good = (chosen) => Object.fromEntries(chosen.map(({ name }) => [name, VALUES[name][0]]))
  const least = { type: kind, ...good(keys.filter((key) => key.required)) }
  const most = { type: kind, ...good(keys) }
  const varied = keys.flatMap(({ name }) => [
    ...VALUES[name].map((value) => ({ ...most, [name]: value })),
    ...VALUES[name].map((value) => ({ ...least, [name]: value })),
    Object.fromEntries(Object.entries(most).filter(([key]) => key !== name)),
  ])
  return [least, most, { ...most, ...BOOKKEEPING }, ...varied]
}

test('every chunk of every floor is accepted by all versions from that floor on', async () => {
  const [shapes] = await ask([{ shapes: true }])
  const chunks = shapes.flatMap(chunksOf)
  assert.ok(chunks.length > 500)
  for (const [floor, versions] of Object.entries(FLOORS)) {
    const frames = await ask(chunks.map((chunk) => ({ chunk, floor })))
    for (const version of versions) {
      const schema = (await load(version)).uiMessageChunkSchema()
      for (const [at, frame] of frames.entries()) {
        if (!frame) continue
        const { success, error } = await schema.validate(frame)
        assert.ok(success, `ai ${version}, floor ${floor}: ${JSON.stringify(chunks[at])} became ${JSON.stringify(frame)}: ${error?.message.slice(-400)}`)
      }
    }
    const words = frames.flatMap((frame) => frame?.finishReason ?? [])
    assert.ok(words.includes('other'), floor)
    for (const frame of frames) for (const key of Object.keys(BOOKKEEPING)) assert.ok(!(key in (frame ?? {})), key)
  }
})

test('nothing that a client of the newest version accepts is kept from it', async () => {
  const [shapes] = await ask([{ shapes: true }])
  const chunks = shapes.flatMap(chunksOf).filter((chunk) => !Object.values(chunk).includes(null))
  const frames = await ask(chunks.map((chunk) => ({ chunk, floor: '7.0.173' })))
  const schema = (await load('7-latest')).uiMessageChunkSchema()
  for (const [at, chunk] of chunks.entries()) {
    if (!(await schema.validate(chunk)).success) continue
    const own = Object.fromEntries(Object.entries(chunk).filter(([key]) => !(key in BOOKKEEPING) || (key === 'id' && chunk.id)))
    assert.deepEqual(frames[at], own)
  }
})

test('the vocabulary holds every type and key of the newest version', async () => {
  const [shapes] = await ask([{ shapes: true }])
  const published = await publishedShapes('ai-7-latest')
  const ours = shapes.map(({ type, keys }) => [type, keys.map(({ name }) => name).sort()])
  assert.deepEqual(Object.fromEntries(ours), published)
})

/** Types and keys as the schema in the package's own source lists them: each branch of the union, its keys one level down. */
async function publishedShapes(name) {
  const file = new URL(`../../node_modules/${name}/src/ui-message-stream/ui-message-chunks.ts`, import.meta.url)
  const branches = (await readFile(file, 'utf8')).split('\n      z.looseObject({\n').slice(1)
  return Object.fromEntries(branches.map((branch) => {
    const lines = branch.slice(0, branch.indexOf('\n      }),')).split('\n')
    const keys = lines.flatMap((line) => line.match(/^ {8}(\w+):/)?.[1] ?? [])
    const type = lines[0].match(/z\.literal\('([^']+)'\)/)?.[1] ?? 'data-'
    return [type, keys.filter((key) => key !== 'type').sort()]
  }))
}

const approval = (keys) => ({ id: 'p', ...keys })

/** A tool part's keys in every state; with what versions accept beside the state. */
const STATES = [
  { state: 'input-streaming' },
  { state: 'input-streaming', input: { a: 1 }, rawInput: '{"a":1', inputEncoding: 'json' },
  { state: 'input-available', input: null },
  { state: 'approval-requested', input: 1, approval: approval() },
  { state: 'approval-requested', input: 1, approval: approval({ signature: 's', descriptor: {}, requestReason: 'r', isAutomatic: true, inputSchemaInput: 1 }) },
  { state: 'approval-responded', input: 1, approval: approval({ approved: true }) },
  { state: 'approval-responded', input: 1, approval: approval({ approved: false, reason: 'r', signature: 's', isAutomatic: true }) },
  { state: 'output-available', input: 1, output: null, preliminary: true },
  { state: 'output-available', input: 1, output: { a: 1 }, approval: approval({ approved: true, reason: 'r', descriptor: {} }), resultProviderMetadata: METADATA },
  { state: 'output-error', errorText: 'e' },
  { state: 'output-error', rawInput: '{', errorText: 'e' },
  { state: 'output-error', input: 1, errorText: 'e', approval: approval({ approved: true }), resultProviderMetadata: METADATA },
  { state: 'output-denied', input: 1, approval: approval({ approved: false, reason: 'r' }) },
]
const CALL = { toolCallId: 'c', title: 'T', toolMetadata: { a: 1 }, providerExecuted: true, callProviderMetadata: METADATA }
const PARTS = [
  ...STATES.flatMap((keys) => [
    { type: 'tool-x', toolCallId: 'c', ...keys },
    { type: 'tool-x', ...CALL, ...keys },
    { type: 'dynamic-tool', toolName: 'x', ...CALL, ...keys },
  ]),
  { type: 'text', text: '', state: 'streaming', providerMetadata: METADATA },
  { type: 'text', text: 'x', state: 'done', citations: VALUES.citations[0] },
  { type: 'reasoning', id: 't', text: '', state: 'done', providerMetadata: METADATA },
  { type: 'step-start' },
  { type: 'source-url', sourceId: 's', url: 'u', title: 'T', providerMetadata: METADATA },
  { type: 'source-document', sourceId: 's', mediaType: 'm', title: 't', filename: 'f', providerMetadata: METADATA },
  { type: 'file', mediaType: 'm', url: 'u', filename: 'f', providerMetadata: METADATA, providerReference: { p: 'r' } },
  { type: 'data-x', id: 'd', data: null, transient: false },
  { type: 'data-x', data: { a: 1 } },
  { type: 'reasoning-file', mediaType: 'm', url: 'u', providerMetadata: METADATA },
  { type: 'custom', kind: 'a.b', providerMetadata: METADATA },
  { type: 'steering-message', id: 'q', parts: VALUES.parts[0] },
]

const assertValid = async (version, floor, message) => {
  const { success, error } = await (await load(version)).safeValidateUIMessages({ messages: [message] })
  assert.ok(success, `ai ${version}, floor ${floor}: ${JSON.stringify(message)}: ${error?.message.slice(-400)}`)
}

test('every part of a committed message is accepted by all versions from the floor on', async () => {
  const messages = PARTS.map((part) => ({ id: 'm', role: 'assistant', metadata: { a: 1 }, createdAt: 1, parts: [part] }))
  for (const [floor, versions] of Object.entries(FLOORS)) {
    const shown = await ask(messages.map((committed) => ({ committed, floor })))
    for (const version of versions) {
      for (const message of shown) if (message) await assertValid(version, floor, message)
    }
    const lost = messages.filter((_, at) => shown[at] === null).map(({ parts }) => parts[0].type)
    assert.deepEqual(new Set(lost), new Set(LOST[floor] ?? ['custom', 'reasoning-file', 'steering-message']), floor)
  }
})

/** Parts that no client before these floors has. */
const LOST = { '7.0.0': ['steering-message'], '7.0.173': [] }

test('what the fold makes of generated sequences is accepted by all versions', async () => {
  const cases = Array.from({ length: 300 }, (_, at) => generate(1_000_000 + at, at % 2 ? 6 : 7))
  const folded = (await ask(cases.map(({ chunks, from }) => ({ fold: chunks, from, id: 'm' })))).filter(({ message }) => message)
  for (const [floor, versions] of Object.entries(FLOORS)) {
    const shown = await ask(folded.map(({ message }) => ({ committed: message, floor })))
    for (const version of versions) for (const message of shown) if (message) await assertValid(version, floor, message)
  }
})
