// Holds the sources to the arrows between their rooms (ARCHITECTURE.md), and every folder to an order without circles.
//
// - A room imports only what is below it.
// - Between the modules of one folder no circle, each taken with all that is under it. A module and what is under it are one subject: a
//   child that names its parent's items, and a parent that names its child's, close no circle.
// - In `shell` only `objects` and `worker` name a room above `core`.
//
// Imports are `use` lines and paths in the code; a re-export counts as what it stands for. What only tests compile is free.
// The two lists below hold what does not keep these rules yet. An entry that is needed no longer is refused, so they only shrink.

import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { meaning, readCrate } from './rust-modules.mjs';

/** What each room may import. */
const BELOW = {
  core: [],
  conversation: ['core'],
  dialect: ['conversation', 'core'],
  model: ['conversation', 'core'],
  session: ['dialect', 'model', 'conversation', 'core'],
  streams: ['dialect', 'model', 'conversation', 'core'],
  shell: ['session', 'streams', 'dialect', 'model', 'conversation', 'core'],
};

/** Files of the shell that name a room above `core` although they are neither `objects` nor `worker`. */
const STILL_TO_MOVE = [
  'shell/admissions.rs',
  'shell/answer.rs',
  'shell/calls/busy.rs',
  'shell/calls/control.rs',
  'shell/calls/mod.rs',
  'shell/calls/refusals.rs',
  'shell/calls/results.rs',
  'shell/calls/resume.rs',
  'shell/calls/runs.rs',
  'shell/calls/runs_append.rs',
  'shell/calls/runs_end.rs',
  'shell/calls/send.rs',
  'shell/config.rs',
  'shell/entry.rs',
  'shell/follower.rs',
  'shell/following.rs',
  'shell/holding.rs',
  'shell/host.rs',
  'shell/object.rs',
  'shell/producers/demo.rs',
  'shell/producers/mod.rs',
  'shell/producers/model.rs',
  'shell/producers/push.rs',
  'shell/producers/route.rs',
  'shell/producers/upstream.rs',
  'shell/production.rs',
  'shell/queue.rs',
  'shell/request.rs',
  'shell/seams.rs',
  'shell/settling.rs',
  'shell/stored.rs',
];

/** Imports that close a circle: without them there is none. `from → to`, two modules of one folder. */
const KNOWN_CIRCLES = [
  'shell/host → shell/lease_watch',
  'shell/host → shell/production',
  'shell/host → shell/queue',
  'shell/host → shell/stored',
];

/**
 * @param {string} sources the folder of `lib.rs`
 * @param {{stillToMove: string[], knownCircles: string[], file: string}} lists what is let through, and the file where that is written
 * @param {(file: string) => string} shown how a file of the sources is called in a message
 * @returns {string[]} what is against the rules, one message each
 */
export function importFaults(sources, lists, shown = (file) => file) {
  const imports = importsOf(sources);
  const listed = lineOf(lists.file);
  return [
    ...againstArrows(imports, shown),
    ...aboveCore(imports, lists.stillToMove, shown, listed),
    ...circles(imports, lists.knownCircles, shown, listed),
  ];
}

function importsOf(sources) {
  const modules = readCrate(sources);
  const imports = [];
  for (const module of modules.values()) {
    const met = new Set();
    for (const { path: said, line } of module.mentions) {
      const target = meaning(modules, module, said);
      if (!target || target === module || met.has(target)) continue;
      met.add(target);
      imports.push({ from: module.path, to: target.path, file: module.file, line });
    }
  }
  return imports;
}

function againstArrows(imports, shown) {
  const crossing = imports.filter(({ from, to }) => from.length > 0 && to.length > 0 && from[0] !== to[0]);
  return crossing.flatMap(({ from, to, file, line }) => {
    const where = `${shown(file)}:${line}`;
    const stranger = [from[0], to[0]].find((room) => !Object.hasOwn(BELOW, room));
    if (stranger) return [`${where}: no arrow is known for the room ${stranger}`];
    if (BELOW[from[0]].includes(to[0])) return [];
    return [`${where}: ${from[0]} may not import ${to.join('::')}; it may import ${BELOW[from[0]].join(', ') || 'no other room'}`];
  });
}

function aboveCore(imports, stillToMove, shown, listed) {
  const reaching = new Map();
  for (const found of imports) {
    const [room, part = ''] = found.from;
    if (room !== 'shell' || ['shell', 'core', undefined].includes(found.to[0])) continue;
    if (!/^(?:objects|worker)(?:_|$)/.test(part) && !reaching.has(found.file)) reaching.set(found.file, found);
  }
  const faults = [];
  for (const [file, { to, line }] of reaching) {
    if (stillToMove.includes(file)) continue;
    faults.push(`${shown(file)}:${line}: only objects and worker of the shell may import ${to.join('::')}: it is above core`);
  }
  for (const file of stillToMove.filter((file) => !reaching.has(file))) {
    faults.push(`${listed(file)}: ${shown(file)} imports nothing above core; take it off the list`);
  }
  return faults;
}

function circles(imports, known, shown, listed) {
  const folders = new Map();
  for (const found of imports) {
    const { from, to } = found;
    let common = 0;
    while (common < from.length && common < to.length && from[common] === to[common]) common += 1;
    // One is under the other; or two rooms, which have their arrows.
    if (common === from.length || common === to.length || common === 0) continue;
    const folder = from.slice(0, common).join('/');
    const [a, b] = [from, to].map((names) => names.slice(0, common + 1).join('/'));
    if (!folders.has(folder)) folders.set(folder, new Map());
    const graph = folders.get(folder);
    if (!graph.has(a)) graph.set(a, new Map());
    if (!graph.get(a).has(b)) graph.get(a).set(b, found);
  }

  const faults = [];
  const needed = new Set();
  for (const graph of folders.values()) {
    const allowed = [];
    for (const [a, targets] of graph) {
      for (const b of [...targets.keys()]) {
        if (!known.includes(`${a} → ${b}`)) continue;
        allowed.push([a, b]);
        targets.delete(b);
      }
    }
    for (const [a, b] of allowed) if (way(graph, b, a)) needed.add(`${a} → ${b}`);
    const told = new Set();
    for (const a of [...graph.keys()].sort()) {
      if (told.has(a)) continue;
      const circle = [...graph.get(a).keys()].map((b) => way(graph, b, a)).filter(Boolean).sort((x, y) => x.length - y.length)[0];
      if (!circle) continue;
      for (const member of circle) told.add(member);
      const round = [a, ...circle];
      const steps = circle.map((to, at) => {
        const { file, line, to: item } = graph.get(round[at]).get(to);
        return `\n    ${shown(file)}:${line} imports ${item.join('::')}`;
      });
      faults.push(`a circle of imports: ${round.join(' → ')}${steps.join('')}`);
    }
  }
  for (const entry of known.filter((entry) => !needed.has(entry))) {
    faults.push(`${listed(entry)}: ${entry} closes no circle; take it off the list`);
  }
  return faults;
}

// The shortest way along imports, `from` and `to` included.
function way(graph, from, to) {
  const before = new Map([[from, null]]);
  for (const at of before.keys()) {
    if (at === to) {
      const found = [];
      for (let step = at; step; step = before.get(step)) found.unshift(step);
      return found;
    }
    for (const next of graph.get(at)?.keys() ?? []) if (!before.has(next)) before.set(next, at);
  }
  return null;
}

function lineOf(file) {
  const lines = fs.readFileSync(file, 'utf8').split('\n');
  const name = path.relative(process.cwd(), file);
  return (entry) => `${name}:${lines.findIndex((line) => line.includes(`'${entry}'`)) + 1}`;
}

const self = fileURLToPath(import.meta.url);
if (process.argv[1] && fs.realpathSync(process.argv[1]) === self) {
  const sources = path.resolve(path.dirname(self), '../src');
  const shown = (file) => path.relative(process.cwd(), path.join(sources, file));
  const faults = importFaults(sources, { stillToMove: STILL_TO_MOVE, knownCircles: KNOWN_CIRCLES, file: self }, shown);
  for (const fault of faults) console.error(fault);
  process.exit(faults.length > 0 ? 1 : 0);
}
