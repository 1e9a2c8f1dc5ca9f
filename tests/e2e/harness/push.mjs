// A producer outside, as a test plays it: the run's routes, its epoch and its numbers.
import { randomUUID } from 'node:crypto'
import { call, userMessage } from './session.mjs'

export const TEXT = (...deltas) => [
  { type: 'start-step' },
  { type: 'text-start', id: 't' },
  ...deltas.map((delta) => ({ type: 'text-delta', id: 't', delta })),
]

/** Opens a run in `s` (or claims it again by its id). `{claim, runId, append(chunks), end(status?), fail(), renew(), control()}`, each an answer. */
export async function pushRun(s, { runId = `run-${randomUUID()}`, leaseMs, text = s.id, vocabulary = 'ui' } = {}) {
  const claim = await call(`${s.own}/runs`, { json: { runId, vocabulary, leaseMs, messages: [userMessage(text)] } })
  const base = `${s.own}/runs/${runId}`
  const self = {
    claim,
    runId,
    next: claim.body.expected ?? 0,
    headers: () => ({ 'producer-epoch': String(claim.body.epoch), 'producer-seq': String(self.next) }),
    async append(chunks) {
      const answer = await call(`${base}/chunks`, { json: chunks, headers: self.headers() })
      if (answer.status === 200) self.next += chunks.length
      return answer
    },
    end: (status = 'completed') => call(`${base}/end`, { json: { status }, headers: self.headers() }),
    fail: (code) => call(`${base}/fail`, { json: { error: { code, message: 'gave up' } }, headers: self.headers() }),
    renew: () => call(`${base}/renew`, { json: {}, headers: self.headers() }),
    control: (wait = 5000) => call(`${base}/control?wait=${wait}`),
  }
  return self
}
