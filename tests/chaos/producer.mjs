// A producer outside, as its own process: `node producer.mjs '{origin, runs: [{session, run, vocabulary, count, lines}], leaseMs, paceMs, epochs}'`.
// Each run is opened, or claimed again and compared: what is stored is skipped, the rest is sent. It comes back after a server that went away.
// One line of output for every run: {run, outcome, claims}.
import { setTimeout as pause } from 'node:timers/promises'
import { plan } from './plan.mjs'

// Whoever started it is gone, however that ended.
process.stdin.on('end', () => process.exit()).resume()

const { origin, runs, leaseMs, paceMs } = JSON.parse(process.argv[2])

const lines = runs.map((run) => write(run).then((line) => process.stdout.write(`${JSON.stringify({ run: run.run, ...line })}\n`)))
await Promise.all(lines)
process.exit()

async function write({ session, run, vocabulary, count, lines }) {
  const base = `${origin}/sessions/${session}/runs`
  const items = plan(vocabulary, run, count)
  const messages = [{ id: `u-${run}`, role: 'user', parts: [{ type: 'text', text: `push ${session}` }] }]
  for (let claims = 1; ; claims++) {
    try {
      const claim = await ask(base, { runId: run, vocabulary, leaseMs, messages })
      if (claim.status === 409 && claim.body?.code === 'state_run_ended') return { outcome: claim.body.runStatus ?? 'ended', claims }
      if (claim.status > 201) return { outcome: 'refused', claims, answer: claim }
      const outcome = await rest(base, run, items, claim.body, lines && vocabulary !== 'opaque')
      if (outcome) return { ...outcome, claims }
    } catch {
      // The server went away: it is claimed again once it is back.
    }
    await pause(40)
  }
}

/** Sends what the log lacks, and ends the run; undefined when the claim must be made again. */
async function rest(base, run, items, { epoch, expected }, lines) {
  const headers = (number) => ({ 'producer-epoch': String(epoch), 'producer-seq': String(number) })
  for (let at = expected; at < items.length; ) {
    const commit = items[at].commit
    // Up to the next commit, in one request.
    const until = commit ? at : items.findIndex((item, i) => i > at && item.commit)
    const end = until < 0 ? items.length : until
    let answer
    if (commit) {
      answer = await ask(`${base}/${run}/commit`, commit, headers(at))
      at++
    } else if (lines) {
      answer = await ask(`${base}/${run}/chunks`, slowly(items.slice(at, end)), { ...headers(at), 'content-type': 'application/x-ndjson' })
      at = end
    } else {
      await pause(paceMs)
      const some = items.slice(at, Math.min(end, at + 3)).map((item) => item.chunk)
      answer = await ask(`${base}/${run}/chunks`, some, headers(at))
      at += some.length
    }
    if (answer.status !== 200) return refused(answer)
  }
  const ended = await ask(`${base}/${run}/end`, { status: 'completed' }, headers(items.length))
  return ended.status === 200 ? { outcome: ended.body.status } : refused(ended)
}

function refused(answer) {
  if (answer.status >= 500) return undefined
  if (answer.status === 409 && answer.body?.code === 'state_run_ended') return { outcome: answer.body.runStatus ?? 'ended' }
  return { outcome: 'refused', answer }
}

async function* slowly(items) {
  for (const { chunk } of items) {
    await pause(paceMs)
    yield Buffer.from(`${JSON.stringify(chunk)}\n`)
  }
}

async function ask(url, body, headers = {}) {
  const streams = typeof body[Symbol.asyncIterator] === 'function'
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: streams ? ReadableStream.from(body) : JSON.stringify(body),
    duplex: 'half',
  })
  const text = await response.text()
  return { status: response.status, body: text ? JSON.parse(text) : undefined }
}
