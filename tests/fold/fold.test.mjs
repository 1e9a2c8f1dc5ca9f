// The fold against the published clients on generated sequences. A failure prints the seed and the case; `FOLD_SEED=<seed> FOLD_CASES=1`
// runs that one again, and the printed JSON put into tests/fold/cases/ keeps it.
import assert from 'node:assert/strict'
import { readFile, readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { load } from '../e2e/harness/clients.mjs'
import { fold } from './client.mjs'
import { generate } from './generate.mjs'
import { ask } from './native.mjs'
import { RULES, deliberateRefusal, expected } from './rules.mjs'

const CASES = Number(process.env.FOLD_CASES || 3000)
/** Always the same, so that a change is blamed for what it broke; `FOLD_SEED=random` looks further. */
const SEED = process.env.FOLD_SEED === 'random' ? Date.now() % 2 ** 31 : Number(process.env.FOLD_SEED || 1)
const VERSIONS = ['6-latest', '7-latest']
/** Enough to ask what the sequences have in common. */
const MANY = CASES >= 1000
const used = new Set()

for (const version of VERSIONS) {
  test(`ai ${version}: ${CASES} sequences from seed ${SEED}`, async (t) => {
    t.diagnostic(`FOLD_SEED=${SEED}`)
    const major = Number(version[0])
    const sequences = Array.from({ length: CASES }, (_, at) => ({ seed: SEED + at, ...generate(SEED + at, major) }))
    await assertAccepted(version, sequences)
    if (MANY) await assertEveryType(major, sequences)
    const refusals = await compare(version, sequences)
    t.diagnostic(`${refusals} of them end at a chunk that the client refuses`)
    if (MANY) assert.ok(refusals < CASES / 2, 'most sequences are valid')
  })

  test(`ai ${version}: kept cases`, async () => {
    const folder = new URL('cases/', import.meta.url)
    const files = (await readdir(folder)).filter((name) => name.endsWith('.json'))
    const cases = await Promise.all(files.map(async (name) => ({ seed: name, ...JSON.parse(await readFile(new URL(name, folder), 'utf8')) })))
    await compare(version, cases.filter((one) => !one.versions || one.versions.includes(version)))
  })
}

test('every rule of difference is needed', { skip: !MANY }, () => {
  assert.deepEqual(RULES.filter((rule) => !used.has(rule)), [])
})

/** The generator makes only chunks that this version's own schema takes. */
async function assertAccepted(version, sequences) {
  const schema = (await load(version)).uiMessageChunkSchema()
  const seen = new Set()
  for (const chunk of sequences.flatMap(({ chunks }) => chunks)) {
    const form = JSON.stringify(Object.entries(chunk).map(([key, value]) => (key === 'type' ? value : `${key} ${typeof value}`)).sort())
    if (seen.has(form)) continue
    seen.add(form)
    const { success, error } = await schema.validate(chunk)
    assert.ok(success, `${JSON.stringify(chunk)}: ${error?.message.slice(0, 300)}`)
  }
}

const ONLY_SEVEN = ['tool-approval-response', 'reasoning-file', 'custom', 'steering-message', 'reset-step']

async function assertEveryType(major, sequences) {
  const [shapes] = await ask([{ shapes: true }])
  const made = new Set(sequences.flatMap(({ chunks }) => chunks).map(({ type }) => (type.startsWith('data-') ? 'data-' : type)))
  const types = shapes.map(({ type }) => type).filter((type) => major === 7 || !ONLY_SEVEN.includes(type))
  assert.deepEqual([...made].sort(), types.sort())
}

/** Fails at the first sequence on which the two differ; answers how many the client refuses a chunk of. */
async function compare(version, sequences) {
  const answers = await ask(sequences.map(question))
  let refusals = 0
  for (const [at, sequence] of sequences.entries()) {
    const result = await difference(version, sequence, answers[at])
    if (result.refused) refusals += 1
    if (result.differs) assert.fail(await report(version, sequence))
  }
  return refusals
}

const question = ({ from, chunks }) => ({ fold: chunks, from, id: 'm' })

/** Whether client and fold differ beyond the rules; with both results. */
async function difference(version, sequence, answer) {
  let client = await fold(version, sequence)
  if (answer.refused !== undefined && answer.refused < (client.refused ?? Infinity)) {
    const rule = deliberateRefusal(sequence, answer, version)
    if (rule) {
      used.add(rule)
      client = { ...(await fold(version, { ...sequence, chunks: sequence.chunks.slice(0, answer.refused) })), refused: answer.refused }
    }
  }
  const taken = { ...sequence, chunks: sequence.chunks.slice(0, client.refused) }
  const message = expected(client.message, taken, version, (rule) => used.add(rule), answer.message)
  const want = { refused: client.refused, message }
  const have = { refused: answer.refused, message: JSON.parse(JSON.stringify(answer.message)) }
  const differs = answer.invalid !== undefined || !isDeepStrictEqual(want, have)
  const why = { client: client.error, fold: answer.error, invalid: answer.invalid }
  return { differs, refused: client.refused !== undefined, want, have, why }
}

/** The failing case without the chunks that it fails without as well. */
async function report(version, sequence) {
  let { from, chunks } = sequence
  for (let smaller = true; smaller; ) {
    smaller = false
    const fewer = [...chunks.map((_, at) => ({ from, chunks: chunks.toSpliced(at, 1) })), ...(from ? [{ chunks }] : [])]
    const answers = await ask(fewer.map(question))
    for (const [at, one] of fewer.entries()) {
      if (!(await difference(version, one, answers[at])).differs) continue
      ;({ from, chunks } = one)
      smaller = true
      break
    }
  }
  const small = { from, chunks }
  const { want, have, why } = await difference(version, small, (await ask([question(small)]))[0])
  const lines = [`ai ${version} and the fold differ (FOLD_SEED=${sequence.seed} FOLD_CASES=1); to keep the case, save this in tests/fold/cases/:`]
  lines.push(JSON.stringify({ versions: [version], from, chunks }), `wanted ${JSON.stringify(want)}`, `got    ${JSON.stringify(have)}`, JSON.stringify(why))
  return lines.join('\n')
}
