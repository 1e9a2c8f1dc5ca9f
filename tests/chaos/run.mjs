// `make chaos`: SEED=n (default: of the clock), COUNT=200 kills, LANES=4 servers side by side, then RELOADS=500 reloads near a reply's end.
import { campaign } from './campaign.mjs'
import { reloads } from './reloads.mjs'

const number = (name, otherwise) => (process.env[name] ? Number(process.env[name]) : otherwise)
const seed = number('SEED', Date.now() % 1_000_000)
const [kills, lanes, pages] = [number('COUNT', 200), number('LANES', 4), number('RELOADS', 500)]
console.log(`SEED=${seed} COUNT=${kills} LANES=${lanes} RELOADS=${pages}`)
const report = (text) => console.log(`✗ SEED=${seed}: ${text}`)

const { sessions, failures, targets, ms } = await campaign({ seed, kills, lanes, report })
const killed = Object.entries(targets).map(([name, count]) => `${name} ${count}`)
console.log(`${kills} kills (${killed.join(', ')}), ${sessions} sessions, ${failures.length} failures, ${(ms / 1000).toFixed(1)} s`)

const reloaded = await reloads({ seed, count: pages, report })
console.log(`${reloaded.reloads} reloads, ${reloaded.gap} replies over by the time of the reconnect, ${reloaded.failures.length} failures`)
process.exit(failures.length || reloaded.failures.length ? 1 : 0)
