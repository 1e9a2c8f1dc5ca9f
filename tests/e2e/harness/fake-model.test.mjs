import assert from 'node:assert/strict'
import http from 'node:http'
import { after, before, test } from 'node:test'
import { gate, replayScript, startFakeModel, step, textScript } from './fake-model.mjs'
import { chatRecordings, contentOf } from './recordings.mjs'
import { chunksOf, isDone, openSse, readSse } from './sse.mjs'

let model
before(async () => (model = await startFakeModel()))
after(() => model.close())

const ask = (text) => ({ json: { model: 'm', stream: true, messages: [{ role: 'user', content: text }] } })
const url = () => `${model.baseUrl}/chat/completions`
const contents = (frames) => contentOf(chunksOf(frames).map((c) => JSON.stringify(c)))

test('a script is chosen by the last user text, else by the queue', async () => {
  model.script('hello', textScript(['Hel', 'lo'], { reasoning: ['hm'], usage: { total_tokens: 3 } }))
  model.enqueue(textScript(['queued']))
  const queued = await readSse(url(), ask('other'))
  const matched = await readSse(url(), ask('hello'))
  assert.equal(contents(queued.frames).text, 'queued')
  const said = contents(matched.frames)
  assert.deepEqual([said.text, said.reasoning, said.finish, said.usage], ['Hello', 'hm', 'stop', { total_tokens: 3 }])
  assert.ok(isDone(matched.frames.at(-1)))
  assert.equal(matched.ended, 'clean')
  const request = await model.nextRequest()
  assert.equal(request.lastUserText, 'other')
  assert.equal(request.headers['content-type'], 'application/json')
  assert.equal(await request.over, 'complete')
  assert.equal((await model.nextRequest()).lastUserText, 'hello')
})

test('tool calls are streamed in pieces', async () => {
  model.enqueue(textScript([], { tool: { id: 'c1', name: 'weather', arguments: '{"city":"Bern"}' } }))
  const said = contents((await readSse(url(), ask('tool'))).frames)
  assert.deepEqual(said.tools, [{ id: 'c1', name: 'weather', arguments: '{"city":"Bern"}' }])
  assert.equal(said.finish, 'tool_calls')
  await model.nextRequest()
})

test('a gate holds the stream, and the caller leaving is seen', async () => {
  const held = gate()
  model.enqueue(textScript(['one', held, 'two']))
  const first = await openSse(url(), ask('gate'))
  await first.take(2)
  assert.equal(first.ended, null)
  held.open()
  assert.equal(contents((await first.collect()).frames).text, 'onetwo')

  model.enqueue(textScript(['one', gate(), 'two']))
  await model.nextRequest()
  const second = await openSse(url(), ask('gate'))
  await second.take(2)
  second.cut()
  const request = await model.nextRequest()
  await request.aborted
  assert.equal(await request.over, 'aborted')
})

test('cuts: a proper early end, a closed socket, a reset', async () => {
  for (const [cut, ended] of [[step.end(), 'clean'], [step.destroy(), 'broken'], [step.reset(), 'broken']]) {
    model.enqueue([...textScript(['part'], { finish: null }), cut])
    const got = await readSse(url(), ask('cut'))
    assert.equal(got.ended, ended)
    assert.ok(!got.frames.some(isDone))
    assert.equal(await (await model.nextRequest()).over, ended === 'clean' ? 'complete' : 'cut')
  }
})

test('faults: status, error event, invalid JSON, silence', async () => {
  model.enqueue([step.status(429, { error: { message: 'slow down' } }, { 'retry-after': '7' })])
  const refused = await readSse(url(), ask('fault'))
  assert.deepEqual([refused.status, refused.headers['retry-after']], [429, '7'])
  assert.match(refused.text, /slow down/)

  model.enqueue([step.error('boom', 'overloaded'), step.invalidJson('{oops'), step.silence()])
  const stream = await openSse(url(), ask('fault'))
  assert.equal(JSON.parse((await stream.next()).data).error.code, 'overloaded')
  assert.equal((await stream.next()).data, '{oops')
  await model.nextRequest()
  const request = await model.nextRequest()
  stream.reset()
  await request.aborted
})

test('one-byte writes, CRLF and comments arrive as the same events', async () => {
  const script = textScript(['grüße ', '👋🏽'])
  model.enqueue([step.mode({ bytes: 1, crlf: true }), step.comment('hi'), ...script])
  const got = await readSse(url(), ask('bytes'))
  assert.equal(got.frames[0].comment, 'hi')
  assert.equal(contents(got.frames).text, script.text)
  assert.ok(got.text.includes('\r\n\r\n'))
  await model.nextRequest()
})

test('what nobody scripted is refused and remembered', async () => {
  const got = await readSse(url(), ask('nobody'))
  assert.equal(got.status, 500)
  assert.equal(model.unexpected.at(-1).lastUserText, 'nobody')
  const other = await new Promise((resolve) => http.get(`${model.baseUrl}/models`, resolve))
  assert.equal(other.resume().statusCode, 404)
  await model.nextRequest()
})

test('every recording replays to what it says', async () => {
  for (const { name, lines } of chatRecordings()) {
    model.script(name, replayScript(lines))
    const got = await readSse(url(), ask(name))
    assert.deepEqual(contents(got.frames), contentOf(lines), name)
    const said = contentOf(lines)
    assert.ok(said.text || said.reasoning || said.tools.length, `${name} says something`)
    assert.ok(said.finish, name)
  }
})
