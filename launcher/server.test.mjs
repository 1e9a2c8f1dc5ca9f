// The launcher by itself, with a small JavaScript Worker in the place of the bundle.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { derivedConfig, nodeProgram, ROOT, startServer } from './server.mjs';

const WORKER = `
import { DurableObject } from 'cloudflare:workers';
class Counter extends DurableObject {
  async fetch() {
    const count = ((await this.ctx.storage.get('count')) ?? 0) + 1;
    await this.ctx.storage.put('count', count);
    await this.ctx.storage.sync();
    return new Response(String(count));
  }
}
CLASSES
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === '/env') return Response.json(env);
    if (pathname === '/count') return env.SESSIONS.get(env.SESSIONS.idFromName('a')).fetch(request);
    if (pathname === '/stream') {
      let timer;
      return new Response(new ReadableStream({
        start(controller) {
          const send = () => controller.enqueue(new TextEncoder().encode(': still here\\n\\n'));
          send();
          timer = setInterval(send, 50);
        },
        cancel() { clearInterval(timer); },
      }), { headers: { 'content-type': 'text/event-stream' } });
    }
    if (env.BROKEN) return Response.json({ error: 'LEASE_MS must be a number', code: 'configuration_invalid' }, { status: 500 });
    return new Response('ok');
  },
};
`;

let folder;
let build;

before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rejoin-launcher-'));
  build = path.join(folder, 'build');
  fs.mkdirSync(build);
  const toml = fs.readFileSync(path.join(ROOT, 'wrangler.toml'), 'utf8');
  const classes = new Set([...toml.matchAll(/^\s*class_name\s*=\s*"(\w+)"/gm)].map((found) => found[1]));
  fs.writeFileSync(
    path.join(build, 'index.js'),
    WORKER.replace('CLASSES', [...classes].map((name) => `export class ${name} extends Counter {}`).join('\n')),
  );
});

after(() => fs.rmSync(folder, { recursive: true, force: true }));

const text = async (url) => (await fetch(url)).text();
const refused = (url) => assert.rejects(fetch(url), (error) => error.cause?.code === 'ECONNREFUSED');

test('the derived configuration has no build command', () => {
  assert.equal(derivedConfig('a = 1\n[build]\ncommand = "x"\n[build.upload]\nb = 1\n[vars]\nc = 2'), 'a = 1\n[vars]\nc = 2');
});

test('values reach the Worker exactly', async () => {
  const envFile = path.join(folder, 'values.env');
  fs.writeFileSync(envFile, 'AGENTS={"default":{"system":"costs $5 # it\'s","x":"${HOME}"}}\nFROM_FILE=a b # c\nOVER=file\n');
  const env = {
    OVER: 'given', DOLLAR: 'a$HOME ${PATH} $$ \\$1', QUOTES: `it's "so"`, BACKSLASH: '\\n\\\\', LINES: 'a\nb', EMPTY: '', OBJECT: { a: ["'", '`', '"', '$X'] },
  };
  const server = await startServer({ build, envFile, env });
  try {
    const seen = await (await fetch(`${server.origin}/env`)).json();
    assert.deepEqual(JSON.parse(seen.AGENTS), { default: { system: "costs $5 # it's", x: '${HOME}' } });
    assert.equal(seen.FROM_FILE, 'a b');
    for (const name of ['OVER', 'DOLLAR', 'QUOTES', 'BACKSLASH', 'LINES', 'EMPTY']) assert.equal(seen[name], env[name], name);
    assert.deepEqual(JSON.parse(seen.OBJECT), env.OBJECT);
  } finally {
    await server.stop();
  }
});

test('a killed server starts again on what it stored', async () => {
  const state = path.join(folder, 'state');
  let server = await startServer({ build, state });
  const { port } = server;
  assert.equal(await text(`${server.origin}/count`), '1');
  assert.equal(await text(`${server.origin}/count`), '2');
  await server.kill();
  await refused(server.origin);
  assert.equal(await server.exited, 'ended by SIGKILL');

  server = await startServer({ build, state, port });
  assert.equal(await text(`${server.origin}/count`), '3');
  await server.stop();
  await refused(server.origin);
});

test('an open stream does not hold up the end', async () => {
  const server = await startServer({ build });
  const response = await fetch(`${server.origin}/stream`);
  const reader = response.body.getReader();
  await reader.read();
  const start = performance.now();
  await server.stop();
  assert.ok(performance.now() - start < 3000);
  await refused(server.origin);
  await reader.cancel().catch(() => {});
});

test('two servers run side by side', async () => {
  const [a, b] = await Promise.all([startServer({ build }), startServer({ build })]);
  assert.notEqual(a.origin, b.origin);
  assert.equal(await text(`${a.origin}/count`), '1');
  assert.equal(await text(`${b.origin}/count`), '1');
  await Promise.all([a.stop(), b.stop()]);
});

test('a taken port is an error that names it', async () => {
  const server = await startServer({ build });
  await assert.rejects(startServer({ build, port: server.port }), new RegExp(`${server.port}.*EADDRINUSE`));
  await server.stop();
});

test('a launcher that is killed takes its server along', async () => {
  const script = `
    const { startServer } = await import(${JSON.stringify(path.join(ROOT, 'launcher/server.mjs'))});
    const server = await startServer({ build: ${JSON.stringify(build)} });
    console.log(server.origin);
    setInterval(() => {}, 1000);`;
  const child = spawn(nodeProgram(), ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const origin = await new Promise((resolve) => child.stdout.once('data', (data) => resolve(String(data).trim())));
  assert.equal(await text(origin), 'ok');
  child.kill('SIGKILL');
  for (let tries = 0; tries < 100; tries += 1) {
    const alive = await fetch(origin).then(() => true, () => false);
    if (!alive) return;
    await sleep(50);
  }
  assert.fail('the server outlived its launcher');
});

test('a configuration that cannot be used ends the start at once, in its own words', async () => {
  const began = Date.now();
  await assert.rejects(startServer({ build, env: { BROKEN: '1' }, readyMs: 60_000 }), /LEASE_MS must be a number/);
  assert.ok(Date.now() - began < 30_000);
});
