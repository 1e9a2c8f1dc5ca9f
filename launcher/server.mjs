// Starts the built Worker in `wrangler dev`, in a process group of its own, and ends it again.
//
// The server runs a copy of build/ under a configuration derived from wrangler.toml, both in a temporary folder: a build that goes on
// meanwhile neither reloads nor breaks it, and any number of servers run side by side.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { formatEnv, parseEnv } from './envfile.mjs';

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');

const WRANGLER = path.join(ROOT, 'node_modules/wrangler/wrangler-dist/cli.js');
const GUARD = path.join(ROOT, 'launcher/guard.cjs');
// What Node has made of wrangler's source, so that a start does not compile it again.
const COMPILED = path.join(ROOT, 'node_modules/.cache/rejoin-compiled');
const TEMPORARY = 'rejoin-serve-';
// Between a polite end and a certain one. Everything stored is on disk by then: an object's writes are synced before they are confirmed.
const STOP_GRACE_MS = 1000;

// On any end of this process, also an uncaught error, nothing stays behind.
const running = new Map();
process.on('exit', () => {
  for (const [child, folder] of running) {
    signalGroup(child.pid, 'SIGKILL');
    remove(folder);
  }
});

/**
 * @param {object} [options]
 * @param {number} [options.port] default: a free one
 * @param {string} [options.host] default: 127.0.0.1
 * @param {string} [options.state] folder of the objects' storage; default: a temporary one that ends with the server
 * @param {string} [options.envFile] dotenv file whose values override the configuration
 * @param {Record<string, unknown>} [options.env] values over those of the file; what is no string becomes JSON
 * @param {'debug'|'info'|'log'|'warn'|'error'|'none'} [options.logLevel] of wrangler; `log` shows the Worker's console
 * @param {(text: string) => void} [options.onOutput] what wrangler prints; default: kept for error messages only
 * @param {string} [options.config] TOML that is added to the configuration, for example a service binding
 * @param {string[]} [options.beside] configurations of further Workers that run beside it, for service bindings (`wrangler dev -c … -c …`)
 * @param {string} [options.build] the bundle to serve; default: build/ of the project
 * @param {number} [options.readyMs] how long /health may take to answer 200
 * @returns {Promise<{origin: string, port: number, pid: number, state: string, exited: Promise<string>,
 *   stop: () => Promise<void>, kill: () => Promise<void>}>} once /health answers 200. `exited` tells how it ended.
 */
export async function startServer({
  port, host = '127.0.0.1', state, envFile, env = {}, logLevel = 'warn', onOutput, config = '', beside = [],
  build = path.join(ROOT, 'build'),
  readyMs = 60_000,
} = {}) {
  sweep();
  port = port ? Number(port) : await freePort(host);
  await portIsFree(host, port);

  const folder = fs.mkdtempSync(path.join(os.tmpdir(), `${TEMPORARY}${process.pid}-`));
  const storage = path.resolve(state ?? path.join(folder, 'state'));
  const origin = `http://${urlHost(host)}:${port}`;
  let child;
  try {
    fs.mkdirSync(storage, { recursive: true });
    // A local server takes any Host header; its producers are told the address that it does have, unless the file names another.
    const variables = { PUBLIC_URL: origin, ...readEnvFile(envFile), ...env };
    child = launch({ folder, build, added: config, beside, storage, host, port, logLevel, variables });
  } catch (error) {
    remove(folder);
    throw error;
  }

  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text) => {
      output = (output + text).slice(-8192);
      onOutput?.(text);
    });
  }

  running.set(child, folder);
  const exited = new Promise((resolve) => {
    child.once('error', (error) => resolve(`could not start: ${error.message}`));
    child.once('exit', (code, signal) => resolve(signal ? `ended by ${signal}` : `ended with code ${code}`));
  }).then(async (how) => {
    // Wrangler alone has ended; workerd must not go on serving.
    if (child.pid) await endGroup(child.pid);
    running.delete(child);
    remove(folder);
    return how;
  });

  const kill = async () => {
    signalGroup(child.pid, 'SIGKILL');
    await exited;
  };
  const stop = async () => {
    child.kill('SIGTERM');
    const late = setTimeout(() => signalGroup(child.pid, 'SIGKILL'), STOP_GRACE_MS);
    await exited;
    clearTimeout(late);
  };

  try {
    await ready(origin, exited, readyMs);
  } catch (error) {
    await kill();
    throw new Error(`${error.message}\n${output.trim()}`.trim());
  }
  return { origin, port, pid: child.pid, state: storage, exited, stop, kill };
}

function launch({ folder, build, added, beside, storage, host, port, logLevel, variables }) {
  if (!fs.existsSync(path.join(build, 'index.js'))) throw new Error(`${build} holds no bundle: make build`);
  fs.cpSync(build, path.join(folder, 'build'), { recursive: true });

  const config = path.join(folder, 'wrangler.toml');
  fs.writeFileSync(config, `${derivedConfig(fs.readFileSync(path.join(ROOT, 'wrangler.toml'), 'utf8'))}\n${added}\n`);
  const envFile = path.join(folder, 'vars.env');
  fs.writeFileSync(envFile, formatEnv(variables), { mode: 0o600 });

  const options = [
    '--config', config, ...beside.flatMap((file) => ['--config', path.resolve(file)]), '--env-file', envFile, '--persist-to', storage,
    '--ip', host, '--port', String(port), '--inspector-port', '0',
    '--log-level', logLevel, '--show-interactive-dev-session=false',
  ];
  const child = spawn(nodeProgram(), ['--no-warnings', '--require', GUARD, WRANGLER, 'dev', ...options], {
    cwd: folder,
    detached: true,
    // The fourth is the tether of guard.cjs.
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    env: {
      ...process.env,
      PWD: folder,
      NODE_COMPILE_CACHE: COMPILED,
      WRANGLER_HIDE_BANNER: 'true', // and with it the look for updates
      WRANGLER_SEND_METRICS: 'false',
      WRANGLER_WRITE_LOGS: 'false',
      WRANGLER_CI_DISABLE_CONFIG_WATCHING: 'true',
      WRANGLER_REGISTRY_PATH: path.join(folder, 'registry'), // servers do not find each other
      CLOUDFLARE_CF_FETCH_ENABLED: 'false',
      CLOUDFLARE_INCLUDE_PROCESS_ENV: 'false',
      X_LOCAL_EXPLORER: 'false',
      X_LOCAL_OBSERVABILITY: 'false',
    },
  });
  child.stdio[3]?.on('error', () => {}).unref();
  return child;
}

/** wrangler.toml without its build command; `main` already points into the copied build/. */
export function derivedConfig(toml) {
  let table = '';
  return toml
    .split('\n')
    .filter((line) => {
      const header = /^\s*\[+\s*([^\]]+?)\s*\]+/.exec(line);
      if (header) table = header[1];
      return table !== 'build' && !table.startsWith('build.');
    })
    .join('\n');
}

function readEnvFile(file) {
  if (!file) return {};
  let text;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (error) {
    throw new Error(`the env file cannot be read: ${error.message}`);
  }
  try {
    return parseEnv(text);
  } catch (error) {
    throw new Error(`${file}, ${error.message}`);
  }
}

/** The Node of the npm packages, or the one that runs this where they have none. */
export function nodeProgram() {
  const own = path.join(ROOT, 'node_modules/.bin/node');
  return fs.existsSync(own) ? own : process.execPath;
}

async function ready(origin, exited, readyMs) {
  const deadline = Date.now() + readyMs;
  let ended;
  exited.then((how) => (ended = how));
  let last = 'no answer';
  let refused;
  while (ended === undefined) {
    // A configuration does not get better by waiting.
    if (refused) throw new Error(refused);
    if (Date.now() > deadline) throw new Error(`${origin}/health did not answer 200 in ${readyMs} ms (${last})`);
    try {
      const response = await fetch(`${origin}/health`, { signal: AbortSignal.timeout(5000) });
      const text = await response.text();
      if (response.status === 200 && ended === undefined) return;
      last = `answered ${response.status}`;
      if (text.includes('"configuration_invalid"')) refused = JSON.parse(text).error;
    } catch (error) {
      last = error.cause?.code ?? error.message;
    }
    await sleep(25);
  }
  throw new Error(`wrangler ${ended} before it served`);
}

function urlHost(host) {
  if (host === '0.0.0.0' || host === '*') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

function freePort(host) {
  return listenOnce(host, 0);
}

async function portIsFree(host, port) {
  try {
    await listenOnce(host, port);
  } catch (error) {
    throw new Error(`cannot listen on ${host}:${port}: ${error.code ?? error.message}`);
  }
}

function listenOnce(host, port) {
  return new Promise((resolve, reject) => {
    const probe = net.createServer();
    probe.once('error', reject);
    probe.listen(port, host === '*' ? undefined : host, () => {
      const taken = probe.address().port;
      probe.close(() => resolve(taken));
    });
  });
}

function signalGroup(pid, signal) {
  try {
    process.kill(-pid, signal);
    return true;
  } catch {
    return false;
  }
}

async function endGroup(pid) {
  for (let tries = 0; tries < 500 && signalGroup(pid, 'SIGKILL') && groupLives(pid); tries += 1) await sleep(5);
}

// A group exists until its last zombie is reaped, which may take the reaper a second; only a process with threads left still holds files
// and ports.
function groupLives(group) {
  if (process.platform !== 'linux') return true;
  return fs.readdirSync('/proc').some((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      // "PID (NAME) STATE PPID PGRP …"; the name may hold anything.
      const [state, , itsGroup] = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ');
      if (Number(itsGroup) !== group) return false;
      return !'ZX'.includes(state) || fs.readdirSync(`/proc/${pid}/task`).length > 1;
    } catch {
      return false;
    }
  });
}

function remove(folder) {
  try {
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  } catch {
    // A next start sweeps it.
  }
}

// Folders of launchers that were killed before they could remove them; they may hold keys.
function sweep() {
  for (const name of fs.readdirSync(os.tmpdir())) {
    const pid = name.startsWith(TEMPORARY) && Number(name.slice(TEMPORARY.length).split('-')[0]);
    if (!pid) continue;
    try {
      process.kill(pid, 0);
    } catch (error) {
      if (error.code === 'ESRCH') remove(path.join(os.tmpdir(), name));
    }
  }
}
