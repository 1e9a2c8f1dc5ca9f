// The kill campaign: live runs of every kind, the server or their producer killed -9 at a random moment, started again on the same storage.
import { spawn } from 'node:child_process'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { startFakeModel } from '../e2e/harness/fake-model.mjs'
import { mulberry32 } from '../e2e/harness/seeded.mjs'
import { openaiAgent } from '../e2e/harness/server.mjs'
import { within } from '../e2e/harness/wait.mjs'
import { BOUND_MS, LEASE_MS, assertKept, member, settled, settledByItself } from './cast.mjs'
import { workerd } from './workerd.mjs'

const PRODUCER = path.join(import.meta.dirname, 'producer.mjs')
/** Quiet sessions are looked at so many kills later. */
const BATCH = 10

/** `{kills, sessions, failures: [text], ms, targets}` of so many kills, in `lanes` servers side by side; `report(text)` hears each failing moment. */
export async function campaign({ seed, kills, lanes = 2, report = () => {} }) {
  const began = Date.now()
  const shares = Array.from({ length: lanes }, (_, lane) => Math.floor(kills / lanes) + (lane < kills % lanes ? 1 : 0))
  const total = { kills: 0, sessions: 0, failures: [], targets: {} }
  const fail = (text) => {
    total.failures.push(text)
    report(text)
  }
  await Promise.all(shares.map((share, lane) => runLane({ random: mulberry32(seed * 64 + lane), share, name: `lane ${lane}`, total, fail })))
  return { ...total, ms: Date.now() - began }
}

async function runLane({ random, share, name, total, fail }) {
  const model = await startFakeModel()
  const agents = { ...openaiAgent(model), demo: { producer: 'demo', paceMs: 2 } }
  const server = await workerd({ vars: { AGENTS: agents, LEASE_MS, MAX_ATTEMPTS: 3, BATCH_WAIT_MS: 20, RECOVERY: 'retry' } })
  const stage = { model, server, random, total, quiet: [] }
  try {
    for (let kill = 1; kill <= share; kill++) {
      const ends = kill === share || kill % BATCH === 0
      await round(stage, (what) => fail(`${name}, kill ${kill}: ${what}`), ends)
      total.kills++
    }
  } finally {
    await server.close()
    await model.close()
  }
}

/** One kill. `ends` a batch: the sessions that were left alone are looked at. */
async function round(stage, fail, ends) {
  const { model, server, random, total } = stage
  const chance = (of) => random() < of
  const cast = ['model', 'model', 'demo', 'ui', 'lines', 'opaque'].map((kind) => member(server, kind, random, { quiet: chance(0.2) }))
  // Its lease has lapsed once, and the next look of its alarm lies ahead.
  if (ends) cast.push(member(server, 'slow', random, { quiet: true }))
  const pushed = cast.filter((me) => me.pushed)
  total.sessions += cast.length

  const task = { origin: server.origin, runs: pushed.map((me) => me.run), leaseMs: LEASE_MS, paceMs: 2 + Math.floor(random() * 14) }
  let producer = produce(task)
  await Promise.all(cast.map((me) => (me.pushed ? me.join() : me.send(model))))
  const delay = ends ? LEASE_MS + Math.floor(random() * 1000) : Math.floor(random() * 700)
  const hit = chance(0.65) ? 'server' : chance(0.6) ? 'producer' : 'both'
  // The run that is slow is to die, too.
  const target = ends && hit === 'producer' ? 'both' : hit
  const returns = chance(0.7)
  total.targets[target] = (total.targets[target] ?? 0) + 1
  await pause(delay * random())
  await Promise.all(cast.map((me) => (me.quiet ? null : me.look())))
  await pause(delay / 2)

  if (target !== 'server') await producer.kill()
  if (target !== 'producer') {
    await server.kill()
    await server.start({ RECOVERY: chance(0.7) ? 'retry' : 'fail' })
  }
  const restarted = Date.now()
  if (target !== 'server') producer = returns ? produce(task) : null
  const moment = `${target} after ${delay} ms${target === 'server' || returns ? '' : ', the producer stays away'}`

  const expected = async (me) => {
    if (!me.pushed) return undefined
    if (!producer) return undefined
    const said = await within(producer.outcome(me.run.run), BOUND_MS, `the producer's last word on ${me.run.run}`)
    return said.outcome === 'completed' ? 'ended' : `what the producer was told: ${JSON.stringify(said)}`
  }
  const check = (me, look) =>
    Promise.resolve()
      .then(look)
      .catch((error) => fail(`${moment}; a ${me.quiet ? 'quiet ' : ''}run of kind ${me.kind} (${me.s.id}): ${error.message}`))
      .finally(me.leave)
  await Promise.all(
    cast.map((me) =>
      check(me, async () => {
        const end = await expected(me)
        if (me.quiet) return void stage.quiet.push({ me, end })
        await settled(me, restarted + BOUND_MS)
        await assertKept(me, model, end)
      }),
    ),
  )
  await producer?.kill()
  if (!ends) return
  await pause(Math.max(0, restarted + BOUND_MS - Date.now()))
  await Promise.all(
    stage.quiet.splice(0).map(({ me, end }) =>
      check(me, async () => {
        await settledByItself(me, restarted)
        await assertKept(me, model, end)
      }),
    ),
  )
}

/** A producer's process: `{outcome(run), kill()}`. */
function produce(task) {
  const child = spawn(process.execPath, [PRODUCER, JSON.stringify(task)], { stdio: ['pipe', 'pipe', 'inherit'] })
  const gone = new Promise((resolve) => child.once('exit', resolve))
  const words = new Map(task.runs.map(({ run }) => [run, Promise.withResolvers()]))
  createInterface({ input: child.stdout }).on('line', (line) => {
    const said = JSON.parse(line)
    words.get(said.run).resolve(said)
  })
  return {
    outcome: (run) => words.get(run).promise,
    async kill() {
      child.kill('SIGKILL')
      await gone
    },
  }
}
