// The inputs that must be refused, as data: ids, bodies and cursors, each with a name.
import { gzipSync } from 'node:zlib'

export const LIMIT = 64 * 1024

/** Path segments, percent-encoded as they go out. */
export const BAD_IDS = {
  'an encoded slash': 'a%2Fb',
  'an encoded question mark': 'a%3Fb',
  'an encoded hash': 'a%23b',
  'an encoded percent sign': 'a%25b',
  'a doubly encoded slash': 'a%252Fb',
  'a backslash': 'a%5Cb',
  'a NUL': 'a%00b',
  'a newline': 'a%0Ab',
  'a DEL': 'a%7Fb',
  'a C1 control character': 'a%C2%85b',
  'bytes that are not UTF-8': 'a%FFb',
  'an overlong encoding': 'a%C0%AFb',
  'a lone surrogate': 'a%ED%A0%80b',
  'a broken percent-encoding': 'a%zzb',
  'an unfinished percent-encoding': 'a%2',
  'one byte too many': 'x'.repeat(257),
  'one byte too many in two-byte characters': encodeURIComponent('é'.repeat(128)) + 'x',
  'a dot': '%2e',
  'two dots': '%2E%2E',
}

/** Ids that are allowed; each is a session of its own. */
export const GOOD_IDS = ['x'.repeat(256), 'é'.repeat(128), '会話', '👩🏽‍💻', 'caf\u00e9', 'cafe\u0301', 'with space', 'a:b', 'a+b', 'a&b=c', '...', '~user', "it's", 'A', 'a', '__proto__', 'constructor', 'stream', 'snapshot']

const user = (parts, more = {}) => ({ id: 'u', role: 'user', parts, ...more })
const text = [{ type: 'text', text: 'hi' }]
const messages = (list) => JSON.stringify({ messages: list })

/** `{body, headers?}` of a send to `/api/chat/:s`. */
export const BAD_BODIES = {
  'an empty body': { body: '' },
  'no JSON': { body: 'hello' },
  'cut JSON': { body: '{"messages":[{"id":"u"' },
  'trailing text': { body: `${messages([user(text)])}x` },
  'bytes that are not UTF-8': { body: Buffer.concat([Buffer.from('{"messages":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]) },
  'a list': { body: '[]' },
  'a string': { body: '"x"' },
  'a number': { body: '1' },
  null: { body: 'null' },
  'messages that are text': { body: messages('hello') },
  'messages that are an object': { body: messages({ 0: user(text) }) },
  'messages of numbers': { body: messages([1]) },
  'messages of null': { body: messages([null]) },
  'messages of lists': { body: messages([[]]) },
  'a message without a role': { body: messages([{ id: 'u', parts: text }]) },
  'a message of an unknown role': { body: messages([user(text, { role: 'wizard' })]) },
  'a message with a number as id': { body: messages([user(text, { id: 7 })]) },
  'a message without parts': { body: messages([{ id: 'u', role: 'user' }]) },
  'parts that are text': { body: messages([user('hi')]) },
  'a part of null': { body: messages([user([null])]) },
  'a part without a type': { body: messages([user([{ text: 'hi' }])]) },
  'a part of an unknown type': { body: messages([user([{ type: 'hologram', text: 'hi' }])]) },
  'a text part with a number': { body: messages([user([{ type: 'text', text: 7 }])]) },
  'a bad part in an earlier message': { body: messages([user([{ type: 'hologram' }]), user(text, { id: 'v' })]) },
  'a __proto__ key': { body: `{"__proto__":{"x":1},"messages":[${JSON.stringify(user(text))}]}` },
  'a __proto__ key deep inside': { body: `{"messages":[{"id":"u","role":"user","metadata":{"a":[{"__proto__":null}]},"parts":${JSON.stringify(text)}}]}` },
  'an escaped __proto__ key': { body: `{"\\u005f_proto__":{"x":1},"messages":[${JSON.stringify(user(text))}]}` },
  'JSON nested too deep': { body: `{"messages":${'['.repeat(20_000)}${']'.repeat(20_000)}}` },
  'an encoding that nobody announced support for': { body: gzipSync(messages([user(text)])), headers: { 'content-encoding': 'gzip' } },
}

/** Ids in the body of `POST /api/chat`. */
export const BAD_BODY_IDS = ['', 'a/b', 'a?b', 'a%b', '.', '..', 'x'.repeat(257), 'a\u0000b', 7, null, {}, ['a'], undefined]

export const BAD_CURSORS = ['-1', '-0.5', '1.5', '1e3', '0x10', '+1', 'NaN', 'Infinity', 'abc', '1,2', '9'.repeat(30), '99999999', String(2 ** 53), '١٢']
export const BAD_LIMITS = ['0', '-1', '1.5', 'abc', '9'.repeat(30)]
