// The subjects, each in the workerd that the project is locked to, all started the same way: `workerd serve`, storage in a local folder.
//
// `wrangler dev` would put a proxy in front, so ours gets a configuration derived from wrangler.toml.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
export const OUTPUT = path.join(ROOT, 'target/bench');
// The program itself: the package's own command is a wrapper, which passes neither signals nor file descriptors on.
const WORKERD = createRequire(import.meta.url)('workerd').default;

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

/** A folder for one run of the bench, on the project's own disk; gone when the process ends. */
export function workFolder() {
  fs.mkdirSync(OUTPUT, { recursive: true });
  const folder = fs.mkdtempSync(path.join(OUTPUT, 'run-'));
  process.on('exit', () => {
    running.forEach((child) => child.kill('SIGKILL'));
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
  return folder;
}

/** The frozen baseline: bench/w.js under its own configuration. */
export async function startBaseline(folder) {
  const state = path.join(folder, 'state-jsdo');
  fs.mkdirSync(state, { recursive: true });
  const options = ['--socket-addr', 'http=127.0.0.1:0', '--directory-path', `disk=${state}`];
  const server = await serve(path.join(ROOT, 'bench/c_js.capnp'), ['http'], options);
  return { ...server, origin: server.origins.http };
}

/**
 * Ours, once per variant, and the pass-through Worker, side by side in one workerd.
 * @param {string} folder where configuration and state go; the same folder finds the same state again
 * @param {{modelOrigin: string, variants: Record<string, Record<string, string>>, agents: object}} options
 * @returns {Promise<{origins: Record<string, string>, stop: () => Promise<void>}>} origins of the variants and of `pass`
 */
export async function startOurs(folder, { modelOrigin, variants, agents }) {
  const toml = fs.readFileSync(path.join(ROOT, 'wrangler.toml'), 'utf8');
  const date = /^compatibility_date = "([^"]+)"/m.exec(toml)[1];
  const flags = JSON.parse(/^compatibility_flags = (\[.*\])/m.exec(toml)[1]);
  for (const file of ['index.js', 'index_bg.wasm']) fs.copyFileSync(path.join(ROOT, 'build', file), path.join(folder, file));
  fs.copyFileSync(path.join(ROOT, 'bench/passthrough.js'), path.join(folder, 'passthrough.js'));

  const common = { ...variables(toml), AGENTS: JSON.stringify(agents), TEST_SEAMS: '1', LEASE_MS: '3600000', HEARTBEAT_MS: '3600000' };
  const names = Object.keys(variants);
  const workers = names.map((name) => {
    const bindings = Object.entries({ ...common, ...variants[name] }).map(([key, value]) => `(name = ${text(key)}, text = ${text(value)})`);
    fs.mkdirSync(path.join(folder, `state-${name}`), { recursive: true });
    return `const ${name} :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed "index.js"), (name = "index_bg.wasm", wasm = embed "index_bg.wasm")],
  compatibilityDate = ${text(date)}, compatibilityFlags = [${flags.map(text).join(', ')}], globalOutbound = "net",
  bindings = [(name = "SESSIONS", durableObjectNamespace = "SessionObject"), ${bindings.join(', ')}],
  durableObjectNamespaces = [(className = "SessionObject", uniqueKey = "sessions", enableSql = true)],
  durableObjectStorage = (localDisk = "disk-${name}"),
);`;
  });
  const services = names.flatMap((name) => [
    `(name = ${text(name)}, worker = .${name})`,
    `(name = "disk-${name}", disk = (path = ${text(path.join(folder, `state-${name}`))}, writable = true))`,
  ]);
  const sockets = [...names, 'pass'].map((name) => `(name = ${text(name)}, address = "127.0.0.1:0", http = (), service = ${text(name)})`);
  const config = path.join(folder, 'ours.capnp');
  fs.writeFileSync(config, `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [${services.join(',\n    ')},
    (name = "pass", worker = .pass), (name = "net", network = (allow = ["public", "private", "local"]))],
  sockets = [${sockets.join(',\n    ')}],
);
${workers.join('\n')}
const pass :Workerd.Worker = (
  modules = [(name = "passthrough.js", esModule = embed "passthrough.js")],
  compatibilityDate = ${text(date)}, globalOutbound = "net",
  bindings = [(name = "MODEL", text = ${text(`${modelOrigin}/v1/chat/completions`)})],
);
`);
  return serve(config, [...names, 'pass'], []);
}

/** `[vars]` of wrangler.toml: lines of NAME = "text" or 'text'. */
function variables(toml) {
  const section = toml.slice(toml.indexOf('\n[vars]')).split(/\n(?=\[)/)[1];
  return Object.fromEntries([...section.matchAll(/^([A-Z_]+) = (["'])(.*)\2$/gm)].map(([, name, , value]) => [name, value]));
}

const text = (value) => JSON.stringify(value);

async function serve(config, sockets, options) {
  const arguments_ = ['serve', ...options, '--control-fd=3', config];
  const child = spawn(WORKERD, arguments_, { stdio: ['ignore', 'pipe', 'pipe', 'pipe'] });
  running.add(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => { output = (output + bytes).slice(-4096); });
  const gone = new Promise((resolve) => child.once('exit', resolve)).then(() => running.delete(child));

  const origins = {};
  await new Promise((resolve, reject) => {
    let heard = '';
    child.stdio[3].on('data', (bytes) => {
      heard += bytes;
      const lines = heard.split('\n');
      heard = lines.pop();
      for (const line of lines) {
        const event = JSON.parse(line);
        if (event.event === 'listen') origins[event.socket] = `http://127.0.0.1:${event.port}`;
      }
      if (sockets.every((socket) => origins[socket])) resolve();
    });
    gone.then(() => reject(new Error(`workerd ended: ${output}`)));
  });
  gone.then(() => { if (!stopping) process.stderr.write(`workerd ended by itself:\n${output}\n`); });
  let stopping = false;
  const stop = async () => {
    stopping = true;
    child.kill('SIGKILL');
    await gone;
  };
  return { origins, pid: child.pid, stop, output: () => output };
}
