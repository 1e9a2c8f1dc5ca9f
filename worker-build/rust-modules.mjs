// Reads the modules of a Rust crate and what each of them names of the others. It knows as much of the language as that takes: comments,
// literals, `mod`, `use`, paths, `#[cfg(test)]`. It expands no macro, and a path that begins with another crate is nobody's.

import fs from 'node:fs';
import path from 'node:path';

const DEFINES = new Set(['struct', 'enum', 'union', 'trait', 'type', 'fn', 'const', 'static']);
// What begins an item that may hold commas; anything else under an attribute ends at the next one.
const ITEMS = new Set([...DEFINES, 'mod', 'use', 'impl', 'let', 'unsafe', 'async', 'extern', 'macro_rules']);
const TO_SEMICOLON = new Set(['use', 'const', 'static', 'let', 'type']);

/**
 * @typedef {object} Module
 * @property {string[]} path names from the crate down; empty for the crate itself
 * @property {string} file where it is written, from the crate's folder of sources
 * @property {Set<string>} children modules that it declares, tests left out
 * @property {Set<string>} items what it defines
 * @property {Map<string, string[]>} names what its `use` lines call something, and the path they say
 * @property {string[][]} globs paths that it takes everything from
 * @property {{path: string[], line: number}[]} mentions each path that it says, in `use` and in the code
 */

/**
 * Every module that is reachable from `lib.rs` and is not for tests only (`#[cfg(test)]`, or a name that ends in `_tests`).
 * @param {string} sources the folder of `lib.rs`
 * @returns {Map<string, Module>} by path, joined by `::`
 */
export function readCrate(sources) {
  const modules = new Map();
  const waiting = [{ path: [], file: 'lib.rs' }];
  while (waiting.length > 0) {
    const { path: names, file } = waiting.pop();
    const read = readFile(fs.readFileSync(path.join(sources, file), 'utf8'), names, file);
    for (const module of read.modules) modules.set(module.path.join('::'), module);
    for (const { path: child, file: said } of read.elsewhere) waiting.push({ path: child, file: said ?? fileOf(sources, file, names, child) });
  }
  return modules;
}

/** The module in which the thing is defined that `said` means inside `module`: re-exports are followed. Null for another crate's. */
export function meaning(modules, module, said) {
  return follow(modules, module, said, new Set());
}

function follow(modules, module, said, seen) {
  const at = (names) => modules.get(names.join('::'));
  const key = `${module.path.join('::')} ${said.join('::')}`;
  if (seen.has(key)) return module;
  seen.add(key);
  const [first, ...rest] = said;
  if (first === 'crate') return within(at([]), rest);
  if (first === 'self') return within(module, rest);
  if (first === 'super') {
    const parent = at(module.path.slice(0, -1));
    return rest[0] === 'super' ? follow(modules, parent, rest, seen) : within(parent, rest);
  }
  if (module.children.has(first)) return within(module, said);
  if (module.names.has(first)) return follow(modules, module, [...module.names.get(first), ...rest], seen);
  return null;

  function within(place, names) {
    if (!place || names.length === 0) return place ?? null;
    const [name, ...more] = names;
    if (place.children.has(name)) return within(at([...place.path, name]), more);
    if (place.items.has(name)) return place;
    if (place.names.has(name)) return follow(modules, place, [...place.names.get(name), ...more], seen) ?? place;
    for (const glob of place.globs) {
      const source = follow(modules, place, glob, seen);
      if (source && source !== place && knows(source, name)) return within(source, names);
    }
    return place;
  }
}

const knows = (module, name) => module.children.has(name) || module.items.has(name) || module.names.has(name);

function fileOf(sources, parent, parentNames, child) {
  const own = path.basename(parent, '.rs');
  const folder = own === 'mod' || own === 'lib' ? path.dirname(parent) : path.join(path.dirname(parent), own);
  // A module that is declared inside one written in braces lies in a folder of that one's name.
  const base = path.join(folder, ...child.slice(parentNames.length));
  const found = [`${base}.rs`, path.join(base, 'mod.rs')].find((file) => fs.existsSync(path.join(sources, file)));
  if (!found) throw new Error(`${parent} declares ${child.join('::')}, which has no file`);
  return found;
}

function readFile(source, names, file) {
  const tokens = tokensOf(source);
  const made = (names) => ({ path: names, file, children: new Set(), items: new Set(), names: new Map(), globs: [], mentions: [] });
  const modules = [made(names)];
  const elsewhere = [];
  const scopes = [{ module: modules[0], items: true }];
  const text = (at) => tokens[at]?.text;
  let attributes = [];
  let at = 0;

  while (at < tokens.length) {
    const { text: word, line } = tokens[at];
    const { module, items } = scopes.at(-1);
    if (word === '#' && (text(at + 1) === '[' || (text(at + 1) === '!' && text(at + 2) === '['))) {
      const end = closing(tokens, text(at + 1) === '[' ? at + 1 : at + 2);
      const said = source.slice(tokens[at].start, tokens[end - 1].end);
      if (text(at + 1) === '[') attributes.push(said);
      // As in `#[serde(with = "crate::time")]`.
      for (const [found] of said.matchAll(/\b(?:crate|super|self)(?:::\w+)+/g)) module.mentions.push({ path: found.split('::'), line });
      at = end;
      if (/^#!?\[cfg\((all\()?test\b/.test(said.replace(/\s/g, ''))) at = afterItem(tokens, at);
      continue;
    }
    const under = attributes;
    if (word !== 'pub') attributes = [];
    if (word === 'pub' && text(at + 1) === '(') at = closing(tokens, at + 1);
    else if (word === 'mod' && isName(text(at + 1))) {
      const name = plain(text(at + 1));
      const child = [...module.path, name];
      if (name.endsWith('_tests')) {
        at = afterItem(tokens, at);
        continue;
      }
      module.children.add(name);
      if (text(at + 2) === '{') {
        const inner = made(child);
        modules.push(inner);
        scopes.push({ module: inner, items: true });
      } else {
        const elsewhereIs = under.map((said) => /^#\[path\s*=\s*"(.+)"\]$/.exec(said)?.[1]).find(Boolean);
        elsewhere.push({ path: child, file: elsewhereIs && path.join(path.dirname(file), elsewhereIs) });
      }
      at += 3;
    } else if (word === 'use' && text(at - 1) !== '.' && (isName(text(at + 1)) || '{:'.includes(text(at + 1)?.[0] ?? ' '))) {
      at = readUse(tokens, at + 1, [], (leaf) => {
        if (leaf.path[0] === '') return; // `use ::other::Thing`
        module.mentions.push({ path: leaf.path, line: leaf.line });
        if (leaf.name === '*') module.globs.push(leaf.path);
        else if (leaf.name !== '_') module.names.set(leaf.name, leaf.path);
      });
    } else if (word === '{') {
      scopes.push({ module, items: false });
      at += 1;
    } else if (word === '}') {
      if (scopes.length > 1) scopes.pop();
      at += 1;
    } else if (items && (DEFINES.has(word) || (word === 'macro_rules' && text(at + 1) === '!'))) {
      const name = text(word === 'macro_rules' ? at + 2 : at + 1);
      if (isName(name)) module.items.add(plain(name));
      at += 1;
    } else if (isName(word) && text(at + 1) === '::' && text(at - 1) !== '::' && text(at - 1) !== '.') {
      const said = [plain(word)];
      for (at += 1; text(at) === '::' && isName(text(at + 1)); at += 2) said.push(plain(text(at + 1)));
      if (said.length > 1) module.mentions.push({ path: said, line });
    } else at += 1;
  }
  return { modules, elsewhere };
}

// From the first token of a `use` tree to behind its end; `leaf` gets each name that it brings.
function readUse(tokens, at, before, leaf) {
  const said = [...before];
  for (;;) {
    const { text, line } = tokens[at] ?? {};
    if (text === '::') {
      if (said.length === 0) said.push('');
      at += 1;
    } else if (text === '{') {
      at += 1;
      while (at < tokens.length && tokens[at].text !== '}') at = tokens[at].text === ',' ? at + 1 : readUse(tokens, at, said, leaf);
      return at + 1;
    } else if (text === '*') {
      leaf({ path: said, name: '*', line });
      return at + 1;
    } else if (isName(text) && text !== 'as') {
      said.push(plain(text));
      at += 1;
      if (tokens[at]?.text === '::') continue;
      const renamed = tokens[at]?.text === 'as';
      // `self` in braces is the module before them.
      const path = said.at(-1) === 'self' && said.length > 1 ? said.slice(0, -1) : said;
      leaf({ path, name: renamed ? plain(tokens[at + 1].text) : path.at(-1), line });
      return renamed ? at + 2 : at;
    } else return at + 1;
  }
}

function afterItem(tokens, at) {
  while (tokens[at]?.text === '#') at = closing(tokens, at + 1);
  let word = at;
  if (tokens[word]?.text === 'pub') word = tokens[word + 1]?.text === '(' ? closing(tokens, word + 1) : word + 1;
  const kind = tokens[word]?.text;
  for (at = word; at < tokens.length; ) {
    const { text } = tokens[at];
    if (text === ';' || (text === ',' && !ITEMS.has(kind))) return at + 1;
    if (')]}'.includes(text)) return at;
    if ('([{'.includes(text)) {
      at = closing(tokens, at);
      if (text === '{' && !(TO_SEMICOLON.has(kind) && tokens[word + 1]?.text !== 'fn')) return at;
    } else at += 1;
  }
  return at;
}

// Behind the bracket that closes the one at `at`.
function closing(tokens, at) {
  let depth = 0;
  for (; at < tokens.length; at += 1) {
    if ('([{'.includes(tokens[at].text)) depth += 1;
    else if (')]}'.includes(tokens[at].text)) depth -= 1;
    if (depth === 0) return at + 1;
  }
  return at;
}

const isName = (text) => text !== undefined && /^(?:r#)?[A-Za-z_]\w*$/.test(text);
const plain = (name) => name.replace(/^r#/, '');

const LEXEMES = new RegExp(
  [
    /\/\/[^\n]*/, // and what block comments hold is left out by hand: they nest
    /\/\*/,
    /\b[bc]?r(#*)"[^]*?"\1/,
    /\b[bc]?"(?:\\[^]|[^"\\])*"|"(?:\\[^]|[^"\\])*"/,
    /b?'(?:\\(?:u\{[^}]*\}|x..|[^])|[^'\\])'/u,
    /'[A-Za-z_]\w*/,
    /(?:r#)?[A-Za-z_]\w*|\d\w*/,
    /::|\S/,
  ]
    .map((part) => part.source)
    .join('|'),
  'gu',
);

function tokensOf(source) {
  const tokens = [];
  let line = 1;
  let counted = 0;
  LEXEMES.lastIndex = 0;
  for (let found; (found = LEXEMES.exec(source)); ) {
    const [text] = found;
    for (; counted < found.index; counted += 1) if (source[counted] === '\n') line += 1;
    if (text === '/*') LEXEMES.lastIndex = commentEnd(source, found.index);
    else if (!text.startsWith('//') && !/^(?:[bc]?r#*"|[bc]?"|b?'.)/su.test(text)) {
      tokens.push({ text, line, start: found.index, end: found.index + text.length });
    }
  }
  return tokens;
}

function commentEnd(source, from) {
  let depth = 0;
  const marks = /\/\*|\*\//g;
  marks.lastIndex = from;
  for (let mark; (mark = marks.exec(source)); ) {
    depth += mark[0] === '/*' ? 1 : -1;
    if (depth === 0) return marks.lastIndex;
  }
  return source.length;
}
