// `make chaos`: SEED=n (default: of the clock), COUNT=200 kills, LANES=4 servers side by side.
import { campaign } from './campaign.mjs'

const seed = Number(process.env.SEED || Date.now() % 1_000_000)
const kills = Number(process.env.COUNT || 200)
const lanes = Number(process.env.LANES || 4)
console.log(`SEED=${seed} COUNT=${kills} LANES=${lanes}`)
const { sessions, failures, targets, ms } = await campaign({ seed, kills, lanes, report: (text) => console.log(`✗ SEED=${seed}: ${text}`) })
const killed = Object.entries(targets).map(([name, count]) => `${name} ${count}`)
console.log(`${kills} kills (${killed.join(', ')}), ${sessions} sessions, ${failures.length} failures, ${(ms / 1000).toFixed(1)} s`)
process.exit(failures.length ? 1 : 0)
