// The built Worker in plain workerd, which starts in a fraction of a second: configuration from wrangler.toml, storage in a folder, one port
// for its whole life.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { freePort } from '../e2e/harness/server.mjs'

const ROOT = path.resolve(import.meta.dirname, '../..')
// The program itself: the package's own command is a wrapper, which would survive its child.
const WORKERD = createRequire(import.meta.url)('workerd').default
const running = new Set()
process.on('exit', () => running.forEach(killGroup))

/** `vars`: configuration values; objects are written as JSON. The answer: `{origin, state, start(vars?), kill(), close()}`; `state` is the folder of its storage, `kill` is -9 for the process group. */
export async function workerd({ vars = {} } = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rejoin-chaos-'))
  const port = await freePort()
  for (const file of ['index.js', 'index_bg.wasm']) fs.copyFileSync(path.join(ROOT, 'build', file), path.join(folder, file))
  fs.mkdirSync(path.join(folder, 'state'))
  const toml = fs.readFileSync(path.join(ROOT, 'wrangler.toml'), 'utf8')
  const values = { ...variables(toml), TEST_SEAMS: '1', LOG_SESSION_IDS: '1', ...vars }
  let child = null
  let output = ''

  const server = {
    origin: `http://127.0.0.1:${port}`,
    state: path.join(folder, 'state'),
    /** What workerd has printed lately. */
    output: () => output,
    async start(changed = {}) {
      Object.assign(values, changed)
      const file = path.join(folder, 'worker.capnp')
      fs.writeFileSync(file, configuration(toml, values, folder, port))
      const started = spawn(WORKERD, ['serve', '--control-fd=3', file], { stdio: ['ignore', 'pipe', 'pipe', 'pipe'], detached: true })
      running.add(started)
      child = started
      for (const stream of [started.stdout, started.stderr]) stream.on('data', (bytes) => (output = (output + bytes).slice(-20_000)))
      started.gone = new Promise((resolve) => started.once('exit', resolve)).then(() => running.delete(started))
      await new Promise((resolve, reject) => {
        started.stdio[3].on('data', (bytes) => String(bytes).includes('"listen"') && resolve())
        started.gone.then(() => reject(new Error(`workerd ended: ${output}`)))
      })
      return server
    },
    async kill() {
      const was = child
      child = null
      if (!was) return
      killGroup(was)
      await was.gone
    },
    async close() {
      await server.kill()
      fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
  return server.start()
}

/** For `stage({start})`, with what the launcher's servers are given in tests. */
export const plainly = ({ vars, agents }) => workerd({ vars: { MAX_ATTEMPTS: 1, RECOVERY: 'fail', AGENTS: agents, ...vars } })

function killGroup(child) {
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    // It is gone already.
  }
}

const text = (value) => JSON.stringify(value)

function configuration(toml, values, folder, port) {
  const date = /^compatibility_date = "([^"]+)"/m.exec(toml)[1]
  const flags = JSON.parse(/^compatibility_flags = (\[.*\])/m.exec(toml)[1])
  const bindings = Object.entries(values).map(([name, value]) => {
    const written = typeof value === 'object' ? JSON.stringify(value) : String(value)
    return `(name = ${text(name)}, text = ${text(written)})`
  })
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main), (name = "disk", disk = (path = ${text(path.join(folder, 'state'))}, writable = true)),
    (name = "net", network = (allow = ["public", "private", "local"]))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const main :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed "index.js"), (name = "index_bg.wasm", wasm = embed "index_bg.wasm")],
  compatibilityDate = ${text(date)}, compatibilityFlags = [${flags.map(text).join(', ')}], globalOutbound = "net",
  bindings = [(name = "SESSIONS", durableObjectNamespace = "SessionObject"), ${bindings.join(', ')}],
  durableObjectNamespaces = [(className = "SessionObject", uniqueKey = "sessions", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
);
`
}

/** `[vars]` of wrangler.toml: lines of NAME = "text" or 'text'. */
function variables(toml) {
  const section = toml.slice(toml.indexOf('\n[vars]')).split(/\n(?=\[)/)[1]
  return Object.fromEntries([...section.matchAll(/^([A-Z_]+) = (["'])(.*)\2$/gm)].map(([, name, , value]) => [name, value]))
}
