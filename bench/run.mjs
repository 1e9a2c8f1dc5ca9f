// `make bench`: every measure, or the ones that BENCH names (separated by commas), and a table of figure, budget, met or missed.
//
// A figure counts only if what was delivered is right; the exit code says that, not whether a budget is met.

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { append } from './append.mjs';
import { bundle } from './bundle.mjs';
import { now } from './client.mjs';
import { startModel } from './fake-model.mjs';
import { fanout } from './fanout.mjs';
import { history } from './history.mjs';
import { idle } from './idle.mjs';
import { ingest } from './ingest.mjs';
import { latency } from './latency.mjs';
import { model } from './model.mjs';
import { replay } from './replay.mjs';
import { resume } from './resume.mjs';
import { rows } from './rows.mjs';
import { stalled } from './stalled.mjs';
import { AGENTS } from './subjects.mjs';
import { OUTPUT, startBaseline, startOurs, workFolder } from './workerd.mjs';

const MEASURES = { bundle, append, latency, fanout, model, rows, replay, ingest, resume, idle, stalled, history };

const VARIANTS = { followed: { BATCH_WAIT_MS: '50' }, unbatched: { BATCH_WAIT_MS: '0' }, patient: { BATCH_WAIT_MS: '250' } };

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));

const wanted = process.env.BENCH ? process.env.BENCH.split(',') : Object.keys(MEASURES);
const unknown = wanted.find((name) => !MEASURES[name]);
if (unknown) {
  process.stderr.write(`BENCH=${unknown}: choose from ${Object.keys(MEASURES).join(', ')}\n`);
  process.exit(2);
}

const folder = workFolder();
const fake = await startModel();
const bench = {};
let servers = [];

/** Starts both subjects, or starts them again on what they have stored. */
bench.restart = async () => {
  await Promise.all(servers.map((server) => server.stop()));
  const [ours, baseline] = await Promise.all([
    startOurs(folder, { modelOrigin: fake.origin, variants: VARIANTS, agents: AGENTS(fake.origin) }), startBaseline(folder),
  ]);
  servers = [ours, baseline];
  pin(process.pid, 1);
  servers.forEach((server) => pin(server.pid, 0));
  Object.assign(bench, { origins: ours.origins, baseline: baseline.origin, pids: { ours: ours.pid, baseline: baseline.pid } });
};

/** Servers on one core, client on the other, where the machine lets us say so. */
function pin(pid, core) {
  if (os.cpus().length < 2 || process.env.BENCH_PIN === '0') return;
  try {
    execFileSync('taskset', ['-a', '-c', '-p', String(core), String(pid)], { stdio: 'ignore' });
  } catch {
    // Unpinned figures are noisier, not wrong.
  }
}

const report = { when: new Date().toISOString(), cpu: os.cpus()[0]?.model, cores: os.cpus().length, node: process.version, measures: {} };
if (os.loadavg()[0] > 1) process.stderr.write(`This machine has other work (load ${os.loadavg()[0].toFixed(1)}): ratios of short rounds will scatter.\n`);
const lines = [];
let wrong = false;
const began = now();

await bench.restart();
for (const name of wanted) {
  const start = now();
  process.stderr.write(`▸ ${name}\n`);
  const load = os.loadavg()[0];
  try {
    const { figures, log } = await MEASURES[name](bench);
    report.measures[name] = { figures: figures.map((figure) => ({ ...figure, met: verdict(figure) })), log, loadBefore: load };
    lines.push(...figures.map(row));
    for (const [key, value] of Object.entries(log)) process.stderr.write(`    ${key}: ${logged(value)}\n`);
  } catch (error) {
    wrong = true;
    report.measures[name] = { error: error.message };
    lines.push([name, error.message, '', 'WRONG']);
    process.stderr.write(`✗ ${name}: ${error.stack}\n`);
  }
  process.stderr.write(`✓ ${name} (${((now() - start) / 1000).toFixed(0)} s)\n`);
}
report.seconds = (now() - began) / 1000;

function verdict({ value, budget }) {
  if (!budget) return null;
  const [sign, limit] = budget.split(' ');
  return sign === '>=' ? value >= Number(limit) : value <= Number(limit);
}

function short(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2);
}

function row(figure) {
  const unit = figure.unit ? ` ${figure.unit}` : '';
  const range = figure.rounds ? ` (${short(figure.min)}–${short(figure.max)})` : '';
  const met = verdict(figure);
  return [figure.name, `${short(figure.value)}${unit}${range}`, figure.budget ?? '', met === null ? '' : met ? 'met' : 'missed'];
}

function logged(value) {
  if (typeof value === 'number') return short(value);
  return value.rounds ? `${short(value.value)} (${short(value.min)}–${short(value.max)})` : JSON.stringify(value);
}

const head = ['figure', 'median of rounds (min–max)', 'budget', ''];
const widths = head.map((_, column) => Math.max(...[head, ...lines].map((line) => line[column].length)));
for (const line of [head, widths.map((width) => '-'.repeat(width)), ...lines]) {
  process.stdout.write(`| ${line.map((cell, column) => cell.padEnd(widths[column])).join(' | ')} |\n`);
}
const file = path.join(OUTPUT, wanted.length === Object.keys(MEASURES).length ? 'bench.json' : `bench-${wanted.join('-')}.json`);
fs.writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
process.stderr.write(`${path.relative(process.cwd(), file)}, ${report.seconds.toFixed(0)} s\n`);
process.exit(wrong ? 1 : 0);
