import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

import { importFaults } from './imports.mjs';

const ROOMS = 'pub mod core;\npub mod conversation;\npub mod dialect;\npub mod model;\npub mod session;\npub mod streams;\nmod shell;\n';
const EMPTY = Object.fromEntries(['core', 'conversation', 'dialect', 'model', 'session', 'streams', 'shell'].map((room) => [`${room}/mod.rs`, '']));

// What is wrong with a crate of these files; `rooms` declare what is in them by the files' names.
function faults(t, files, { stillToMove = [], knownCircles = [] } = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rejoin-imports-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const all = { 'lib.rs': ROOMS, ...EMPTY, ...files };
  for (const [name, text] of Object.entries(all)) {
    const file = path.join(folder, 'src', name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
  }
  const lists = path.join(folder, 'lists.mjs');
  fs.writeFileSync(lists, ['// What is let through.', ...[...stillToMove, ...knownCircles].map((entry) => `  '${entry}',`)].join('\n'));
  return importFaults(path.join(folder, 'src'), { stillToMove, knownCircles, file: lists }).map((fault) => fault.replaceAll(path.relative(process.cwd(), lists), 'lists.mjs'));
}

const CIRCLE = {
  'core/mod.rs': 'pub mod log;\npub mod view;\n',
  'core/log.rs': '//! The log.\n\nuse super::view::View;\npub struct Log(View);\n',
  'core/view.rs': 'pub struct View;\nimpl View {\n    pub fn of(_: &crate::core::log::Log) {}\n}\n',
};

test('every import that the arrows allow passes', (t) => {
  assert.deepEqual(
    faults(t, {
      'core/mod.rs': 'pub mod ids;\npub mod log;\n',
      'core/ids.rs': 'pub struct Id;\n',
      'core/log.rs': 'use super::ids::Id;\npub struct Log(Id);\n',
      'conversation/mod.rs': 'use crate::core::log::Log;\npub struct Run(Log);\n',
      'dialect/mod.rs': 'use crate::conversation::Run;\npub struct Face(Run);\n',
      'model/mod.rs': 'use crate::{conversation::Run, core::ids::{self, Id}};\npub struct Api(Run, Id, ids::Id);\n',
      'session/mod.rs': 'use crate::dialect::Face;\npub struct Session(Face, crate::model::Api);\n',
      'streams/mod.rs': 'use crate::dialect::Face;\n',
      'shell/mod.rs': 'mod heart;\nmod objects;\nmod worker;\n',
      'shell/heart.rs': 'use crate::core::log::Log;\nuse serde_json::Value;\n',
      'shell/objects.rs': 'mod session;\nuse crate::session::Session;\n',
      'shell/objects/session.rs': 'use crate::streams;\nuse crate::dialect::Face;\n',
      'shell/worker.rs': 'use crate::dialect::Face;\n',
    }),
    [],
  );
});

test('an import against the arrows is refused where it stands', (t) => {
  const found = faults(t, {
    'core/mod.rs': '//! Pure.\n\nuse crate::dialect::Face;\n',
    'dialect/mod.rs': 'pub struct Face;\npub struct Api(\n    crate::model::Api,\n);\n',
    'model/mod.rs': 'pub struct Api;\n',
    'streams/mod.rs': 'pub use crate::session::Session;\n',
    'session/mod.rs': 'pub mod runs;\npub struct Session;\n',
    'session/runs.rs': 'use super::super::shell;\n',
  });
  assert.deepEqual(found.sort(), [
    'core/mod.rs:3: core may not import dialect; it may import no other room',
    'dialect/mod.rs:3: dialect may not import model; it may import conversation, core',
    'session/runs.rs:1: session may not import shell; it may import dialect, model, conversation, core',
    'streams/mod.rs:1: streams may not import session; it may import dialect, model, conversation, core',
  ]);
});

test('a room that no arrow names is refused', (t) => {
  const found = faults(t, { 'lib.rs': `${ROOMS}mod attic;\n`, 'attic/mod.rs': '\nuse crate::core;\n' });
  assert.deepEqual(found, ['attic/mod.rs:2: no arrow is known for the room attic']);
});

test('a file of the shell above core is refused, unless it is still to move', (t) => {
  const shell = {
    'dialect/mod.rs': 'pub mod route;\n',
    'dialect/route.rs': 'pub struct Route;\n',
    'shell/mod.rs': 'mod calls;\nmod host;\nmod works;\n',
    'shell/host.rs': 'use crate::core;\nuse crate::dialect::route::Route;\n',
    'shell/calls/mod.rs': 'mod send;\nuse crate::dialect::route::Route as Way;\n',
    // Through a name of another file of the shell.
    'shell/calls/send.rs': '\n\nuse super::Way;\n',
    'shell/works.rs': 'fn served(_: crate::dialect::route::Route) {}\n',
  };
  const said = (place) => `${place}: only objects and worker of the shell may import dialect::route: it is above core`;
  assert.deepEqual(faults(t, shell).sort(), ['shell/calls/mod.rs:2', 'shell/calls/send.rs:3', 'shell/host.rs:2', 'shell/works.rs:1'].map(said));
  assert.deepEqual(faults(t, shell, { stillToMove: ['shell/calls/mod.rs', 'shell/calls/send.rs', 'shell/works.rs'] }), [said('shell/host.rs:2')]);
});

test('a file that has moved, or is gone, must leave the list', (t) => {
  const shell = { 'shell/mod.rs': 'mod host;\n', 'shell/host.rs': 'use crate::core;\n' };
  assert.deepEqual(faults(t, shell, { stillToMove: ['shell/gone.rs', 'shell/host.rs'] }), [
    'lists.mjs:2: shell/gone.rs imports nothing above core; take it off the list',
    'lists.mjs:3: shell/host.rs imports nothing above core; take it off the list',
  ]);
});

test('a circle of two files is refused with both imports', (t) => {
  assert.deepEqual(faults(t, CIRCLE), [
    'a circle of imports: core/log → core/view → core/log\n    core/log.rs:3 imports core::view\n    core/view.rs:3 imports core::log',
  ]);
});

test('a circle through folders and re-exports is refused', (t) => {
  const found = faults(t, {
    'core/mod.rs': 'pub mod log;\npub mod storage;\npub mod status;\n',
    'core/storage/mod.rs': 'mod rows;\npub use rows::{Row as Stored, Other};\n',
    'core/storage/rows.rs': 'use crate::core::status::*;\npub struct Row(Status);\npub struct Other;\n',
    'core/status.rs': 'use super::log;\npub struct Status(log::Log);\n',
    'core/log.rs': 'pub struct Log;\nfn read(_: super::storage::Stored) {}\n',
  });
  assert.deepEqual(found, [
    'a circle of imports: core/log → core/storage → core/status → core/log\n' +
      '    core/log.rs:2 imports core::storage::rows\n' +
      '    core/storage/rows.rs:1 imports core::status\n' +
      '    core/status.rs:1 imports core::log',
  ]);
});

test('a name that is only passed on counts for the file that defines it', (t) => {
  // log takes View from its map; view names nothing of log.
  const files = { 'core/mod.rs': 'mod view;\nmod log;\npub use view::View;\n', 'core/log.rs': 'use crate::core::View;\npub struct Log;\n', 'core/view.rs': 'pub struct View;\n' };
  assert.deepEqual(faults(t, files), []);
  const closed = faults(t, { ...files, 'core/view.rs': 'use super::log::Log;\npub struct View;\n' });
  assert.match(closed[0], /^a circle of imports: core\/log → core\/view → core\/log\n/);
});

test('a parent and its children close no circle, but its children among themselves do', (t) => {
  const family = {
    'core/mod.rs': 'pub mod session;\n',
    'core/session.rs': 'mod entry;\nmod keeping;\nuse entry::Entry;\npub struct Session(Entry);\n',
    'core/session/entry.rs': 'use super::Session;\npub struct Entry;\nimpl Session { fn enter(&self) {} }\n',
    'core/session/keeping.rs': 'use super::{Session, entry::Entry};\npub struct Kept;\n',
  };
  assert.deepEqual(faults(t, family), []);
  const found = faults(t, { ...family, 'core/session/entry.rs': 'use super::keeping::Kept;\npub struct Entry(Kept);\n' });
  assert.match(found[0], /^a circle of imports: core\/session\/entry → core\/session\/keeping → core\/session\/entry\n/);
});

test('a known circle passes, and its entry must go when it closes none', (t) => {
  const known = { knownCircles: ['core/view → core/log'] };
  assert.deepEqual(faults(t, CIRCLE, known), []);
  const stale = ['lists.mjs:2: core/view → core/log closes no circle; take it off the list'];
  assert.deepEqual(faults(t, { ...CIRCLE, 'core/view.rs': 'pub struct View;\n' }, known), stale, 'the import is gone');
  assert.deepEqual(faults(t, { ...CIRCLE, 'core/log.rs': 'pub struct Log;\n' }, known), stale, 'the way back is gone');
});

test('what only tests compile is free', (t) => {
  const found = faults(t, {
    'core/mod.rs': 'pub mod log;\nmod log_tests;\n#[cfg(test)]\npub(crate) mod world;\n',
    'core/log.rs': [
      '#[cfg(test)]',
      'use crate::shell::{self, Host};',
      '#[cfg(test)]',
      'const LIST: [fn(); 1] = [|| { crate::dialect::speak(); }];',
      'struct Log { #[cfg(test)] seen: Vec<crate::dialect::Face>, size: usize }',
      '#[cfg(test)]',
      '#[allow(dead_code)]',
      'fn seen() -> crate::dialect::Face { if true { todo!() } crate::dialect::face() }',
      '#[cfg(test)]',
      '#[path = "elsewhere.rs"]',
      'mod tests;',
      'fn real() { crate::model::ask() }',
    ].join('\n'),
    'core/log_tests.rs': 'use crate::dialect::Face;\n',
    'core/world.rs': 'use crate::session::Session;\n',
  });
  assert.deepEqual(found, ['core/log.rs:12: core may not import model; it may import no other room']);
});

test('comments, texts and lifetimes are no imports', (t) => {
  const found = faults(t, {
    'core/mod.rs': [
      '/// See [`crate::dialect::Face`].',
      '/* use crate::dialect::Face; /* nested */ crate::model::Api */',
      'const A: &str = "crate::dialect::Face \\" crate::model";',
      'const B: &str = r#"use crate::dialect::Face; "quoted" "#;',
      "fn c<'a>(x: &'a str) -> char { if x == \"}\" { '\\'' } else { '\"' } }",
      "const D: [u8; 2] = [b'\"', b'\\\\'];",
      'fn d() { crate::shell::act() }',
    ].join('\n'),
  });
  assert.deepEqual(found, ['core/mod.rs:7: core may not import shell; it may import no other room']);
});

test('a path in an attribute and one inside a module in braces count', (t) => {
  const found = faults(t, {
    'core/mod.rs': 'pub mod lifecycle {\n    use super::super::dialect::Face;\n}\n#[serde(with = "crate::model::dates")]\nstruct Date;\n',
  });
  assert.deepEqual(found, [
    'core/mod.rs:4: core may not import model; it may import no other room',
    'core/mod.rs:2: core may not import dialect; it may import no other room',
  ]);
});
