// Starts the product as a user does (the launcher of `make run`), on a free port with a state folder of its own.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const launcher = new URL('../../../launcher/serve.mjs', import.meta.url)

/**
 * `vars`: configuration values; objects are written as JSON. `agents`: the same for `AGENTS`.
 * Everything else goes to the launcher as it is (`config`, `logLevel`, `onOutput`).
 * The answer: `{origin, port, state, pid, stop(), kill(), restart(vars?)}`. `stop` ends it cleanly; `kill` is -9 for its whole process group;
 * `restart` starts it again on the same port and state (with other `vars` if given); `close` stops it and removes what it stored.
 */
export async function startRejoin({ vars = {}, agents, env = {}, port, ...launch } = {}) {
  const { startServer } = await import(launcher)
  const folder = mkdtempSync(join(tmpdir(), 'rejoin-e2e-'))
  const state = join(folder, 'state')
  const envFile = join(folder, 'test.env')
  // A failure is told at once, and log lines name the session; tests of further attempts, of recovery and of digests say otherwise.
  const values = { MAX_ATTEMPTS: 1, RECOVERY: 'fail', LOG_SESSION_IDS: 1, ...(agents ? { AGENTS: agents } : {}), ...vars }
  const taken = port ?? (await freePort())
  let running = null

  const server = {
    port: taken,
    state,
    origin: null,
    get pid() {
      return running?.pid
    },
    async start(changed = {}) {
      Object.assign(values, changed)
      writeFileSync(envFile, envText(values))
      running = await startServer({ ...launch, port: taken, state, envFile, env })
      server.origin = running.origin
      return server
    },
    async stop() {
      const was = running
      running = null
      await was?.stop()
    },
    async kill() {
      const was = running
      running = null
      await was?.kill()
    },
    async restart(changed) {
      await server.stop()
      return server.start(changed)
    },
    async close() {
      await server.stop()
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
  return server.start()
}

/** One producer for every request: the chat-completions API at `model` (a fake model), or the demo. */
export const openaiAgent = (model, more = {}) => ({ default: { producer: 'openai', baseUrl: model.baseUrl, model: 'm', ...more } })
/** The same with the Messages API at `model`. */
export const anthropicAgent = (model, more = {}) => ({ default: { producer: 'anthropic', baseUrl: model.baseUrl, model: 'm', ...more } })
export const demoAgent = (more = {}) => ({ default: { producer: 'demo', paceMs: 5, ...more } })

/** A dotenv file: JSON single-quoted (a quote inside becomes its JSON escape), anything else as text. */
export function envText(values) {
  return Object.entries(values)
    .map(([name, value]) => {
      if (typeof value !== 'object') return `${name}=${value}\n`
      return `${name}='${JSON.stringify(value).replaceAll("'", '\\u0027')}'\n`
    })
    .join('')
}

/**
 * A free port below the range from which the system takes ports for outgoing connections: a restart on the same port must not find it taken
 * by one of the test's own clients.
 */
export async function freePort() {
  for (;;) {
    const probe = createServer().listen(18_000 + Math.floor(Math.random() * 14_000), '127.0.0.1')
    const free = await once(probe, 'listening').then(
      () => true,
      () => false,
    )
    if (!free) continue
    const { port } = probe.address()
    probe.close()
    await once(probe, 'close')
    return port
  }
}
