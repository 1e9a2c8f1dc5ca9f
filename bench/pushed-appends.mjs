// What a chunk of a pushed run costs, one POST a chunk, early in the run and late: it must not grow with the run.
//
//   node bench/pushed-appends.mjs [steps]      (after `make build`)
//
// For each vocabulary: the mean of one append within the first quarter of the steps and within the last; what lies between is sent in
// large bodies. Runs of both are interleaved with nothing else: the ratio is the figure.
import { randomUUID } from 'node:crypto'
import { startServer } from '../launcher/serve.mjs'

const STEPS = Number(process.argv[2] ?? 1200)
const WINDOW = STEPS / 4

const stepOf = {
  helix: (n) => [
    { type: 'step_start', step: n },
    { type: 'text_delta', delta: 'Let me look. ' },
    { type: 'tool_start', toolCallId: `c${n}`, toolName: 'look', arguments: { n } },
    { type: 'tool_end', toolCallId: `c${n}`, result: 'seen', success: true },
    { type: 'step_committed', step: n },
  ],
  ui: (n) => [
    { type: 'start-step' },
    { type: 'text-start', id: `t${n}` },
    { type: 'text-delta', id: `t${n}`, delta: 'Let me look. ' },
    { type: 'text-end', id: `t${n}` },
    { type: 'tool-input-available', toolCallId: `c${n}`, toolName: 'look', input: { n } },
    { type: 'tool-output-available', toolCallId: `c${n}`, output: 'seen' },
    { type: 'finish-step' },
  ],
}

const server = await startServer({})
try {
  for (const vocabulary of Object.keys(stepOf)) {
    const base = `${server.origin}/sessions/s-${randomUUID()}/runs`
    const json = async (url, body, headers = {}) => {
      const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) })
      const answer = await response.json()
      if (!response.ok) throw new Error(`${url}: ${response.status} ${JSON.stringify(answer)}`)
      return answer
    }
    const message = { id: randomUUID(), role: 'user', parts: [{ type: 'text', text: 'go' }] }
    const { runId, epoch } = await json(base, { vocabulary, message, leaseMs: 600_000 })
    let number = 0
    const append = async (chunks) => {
      await json(`${base}/${runId}/chunks`, chunks, { 'producer-epoch': String(epoch), 'producer-seq': String(number) })
      number += chunks.length
    }
    const steps = (from, count) => Array.from({ length: count }, (_, i) => stepOf[vocabulary](from + i + 1)).flat()
    const single = async (from) => {
      const chunks = steps(from, WINDOW)
      const began = performance.now()
      for (const chunk of chunks) await append([chunk])
      return (performance.now() - began) / chunks.length
    }
    const early = await single(0)
    for (let at = WINDOW; at < STEPS - WINDOW; at += 50) await append(steps(at, Math.min(50, STEPS - WINDOW - at)))
    const late = await single(STEPS - WINDOW)
    console.log(`${vocabulary}: steps 0-${WINDOW}: ${early.toFixed(2)} ms an append; ${STEPS - WINDOW}-${STEPS}: ${late.toFixed(2)} ms; ratio ${(late / early).toFixed(2)}`)
  }
} finally {
  await server.stop()
}
