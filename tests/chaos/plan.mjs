// What a pushed run says, the same for every process that writes it: items in the order of their numbers.

const PER_STEP = 6

/** `[{chunk} | {commit}]`, then the end; `vocabulary`: 'ui', 'helix' or 'opaque'. */
export function plan(vocabulary, run, count) {
  const deltas = Array.from({ length: count }, (_, i) => `${run}.${i} `)
  if (vocabulary === 'opaque') return deltas.map((said, n) => ({ chunk: { n, said } }))
  const items = []
  for (let step = 0; step * PER_STEP < count; step++) {
    const said = deltas.slice(step * PER_STEP, (step + 1) * PER_STEP)
    const id = `t${step}`
    const chunks = [{ type: 'start-step' }, { type: 'text-start', id }, ...said.map((delta) => ({ type: 'text-delta', id, delta })), { type: 'text-end', id }, { type: 'finish-step' }]
    items.push(...chunks.map((chunk) => ({ chunk })), { commit: {} })
  }
  return items
}

/** What of a stored chunk the plan said; undefined when the chunk is the service's own. */
export const saidBy = ({ chunk }) => (chunk.type === 'text-delta' ? chunk.delta : chunk.type === 'opaque' ? chunk.value.said : undefined)

/** The same of the whole plan. */
export const saidIn = (items) => items.flatMap(({ chunk }) => chunk?.delta ?? chunk?.said ?? [])
