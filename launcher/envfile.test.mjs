import assert from 'node:assert/strict';
import { test } from 'node:test';

import { formatEnv, parseEnv } from './envfile.mjs';

test('an unquoted JSON value arrives whole', () => {
  const agents = '{"default":{"producer":"openai","baseUrl":"http://127.0.0.1:9000/v1#x","model":"a # b"}}';
  assert.deepEqual(parseEnv(`AGENTS=${agents}\nB=1`), { AGENTS: agents, B: '1' });
  assert.deepEqual(parseEnv(`AGENTS=${agents} # comment\nB=1`), { AGENTS: agents, B: '1' });
});

test('JSON may span lines', () => {
  assert.deepEqual(parseEnv('A={\n  "a": 1,\n  "b": "#"\n}\nB=2\n'), { A: '{\n  "a": 1,\n  "b": "#"\n}', B: '2' });
});

test('what only looks like JSON stays one line', () => {
  assert.deepEqual(parseEnv('A={not json\nB={"x":1}'), { A: '{not json', B: '{"x":1}' });
});

test('quotes, comments, export and blank lines', () => {
  const text = [
    '# head', '', 'export A = one # two', "B='# kept $X'", 'C="a\\nb \\"c\\""', 'D=`x`', 'E=', 'F=a#b', 'G="{"a":1}"', 'H={"a":"it\'s"}', "I='{\"a\":1}'",
  ].join('\r\n');
  assert.deepEqual(parseEnv(text), {
    A: 'one', B: '# kept $X', C: 'a\nb "c"', D: 'x', E: '', F: 'a#b', G: '{"a":1}', H: '{"a":"it\'s"}', I: '{"a":1}',
  });
});

test('a line that is no variable is named', () => {
  assert.throws(() => parseEnv('A=1\nwhat is this\n'), /line 2/);
  assert.throws(() => parseEnv('A={\n"a":1\n}\noops\n'), /line 4/);
});

test('what is written reads back the same', () => {
  const values = { A: "it's", B: 'a\nb', C: '', D: '"x" # y', E: 'a`b"c' };
  assert.deepEqual(parseEnv(formatEnv(values).replaceAll('\\$', '$')), values);
});
