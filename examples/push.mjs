// Writes a reply into a session from outside; killed and started again, it goes on where the log ends. No dependency.
//   node push.mjs http://localhost:8787 SESSION RUN
const [origin = 'http://localhost:8787', session = 'demo', run = 'reply-1'] = process.argv.slice(2)
const url = `${origin}/sessions/${encodeURIComponent(session)}/runs`
const pace = Number(process.env.PACE_MS ?? 100)
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// The reply must be the same on every start, because what is stored is told by its number only.
const words = 'This reply is written from outside, word by word, and survives the death of its writer.'.split(/(?<= )/)
const chunks = [
  { type: 'start-step' },
  { type: 'text-start', id: 't' },
  ...words.map((delta) => ({ type: 'text-delta', id: 't', delta })),
  { type: 'text-end', id: 't' },
  { type: 'finish-step' },
  { type: 'finish', finishReason: 'stop' },
]

/** One request, repeated while the server is away. */
async function post(path, body, headers = {}) {
  for (let tries = 0; ; tries++) {
    try {
      const response = await fetch(url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      })
      if (response.status < 500) return { ...(await response.json()), status: response.status }
    } catch {} // refused or cut: the numbers make a repeat harmless
    if (tries >= 60) throw new Error(`no answer from ${url}`)
    await sleep(500)
  }
}

// Opens the run, or claims it again: then `epoch` is higher, and `expected` says how much is stored.
const message = { id: `${run}-question`, role: 'user', parts: [{ type: 'text', text: 'Are you there?' }] }
const claim = await post('', { runId: run, vocabulary: 'ui', message })
if (claim.code === 'state_run_ended') done(`the run is over already: ${claim.runStatus}`)
if (claim.status >= 300) throw new Error(claim.error)
console.log(`epoch ${claim.epoch}, ${claim.expected} stored`)
const at = (number) => ({ 'producer-epoch': String(claim.epoch), 'producer-seq': String(number) })

let next = claim.expected
for (; next < chunks.length; next++) {
  const answer = await post(`/${run}/chunks`, [chunks[next]], at(next))
  if (answer.stopRequested) done('stopped by a client')
  if (answer.status !== 200) throw new Error(answer.error) // 403: another process has claimed the run
  await sleep(pace)
}
if (next === chunks.length) await post(`/${run}/commit`, {}, at(next++))
const ended = await post(`/${run}/end`, { status: 'completed' }, at(next))
if (ended.status !== 200) throw new Error(ended.error)
done('written')

function done(why) {
  console.log(why)
  process.exit(0)
}
