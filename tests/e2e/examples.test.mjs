// The programs in examples/: each is killed in the middle of its reply and started again, and so is the server; the reply is whole, once.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { test } from 'node:test'
import { assertChatBody, assertWireBody } from './harness/assertions.mjs'
import { textOf } from './harness/clients.mjs'
import { deltasIn } from './harness/contract.mjs'
import { stage } from './harness/stage.mjs'
import { eventually, within } from './harness/wait.mjs'

const folder = fileURLToPath(new URL('../../examples/', import.meta.url))
const REPLY = 'This reply is written from outside, word by word, and survives the death of its writer.'
const has = (program) => spawnSync(program, ['--version']).status === 0
const PROGRAMS = [
  { name: 'push.mjs', command: process.execPath, needs: () => true },
  { name: 'push.py', command: 'python3', needs: () => has('python3') },
  { name: 'push.sh', command: 'sh', needs: () => has('curl') },
]
const set = stage({ vars: { BATCH_WAIT_MS: 20 } })

function start({ name, command }, s) {
  const args = [folder + name, set.server.origin, s.id, 'reply']
  const env = { ...process.env, PACE_MS: '60', PACE_S: '0.06' }
  const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (more) => (text += more))
  const exit = once(child, 'exit')
  return {
    said: () => text,
    /** The whole group: what a shell has started dies with it. */
    async kill() {
      process.kill(-child.pid, 'SIGKILL')
      await exit
    },
    async ended() {
      const [code] = await within(exit, 30_000, `the end of ${name}`)
      assert.equal(code, 0, text)
      return text
    },
  }
}

const words = async (s) => ((await s.info()).head ?? 0) - 4

for (const program of PROGRAMS) {
  const skip = program.needs() ? false : `${program.command} or curl is not installed here`
  test(`${program.name} survives its own death, twice, and the server's`, { skip }, async () => {
    const s = set.session()
    const reached = (count) => eventually(async () => (await words(s)) >= count, { what: `${count} words in the log` })
    const first = start(program, s)
    await reached(3)
    const reader = await s.reconnect()
    await first.kill()
    const second = start(program, s)
    await reached(6)
    assert.match(second.said(), /epoch 2, \d+ stored/)
    await second.kill()
    const third = start(program, s)
    const text = await third.ended()
    assert.match(text, /epoch 3[^]*written/)
    const got = await reader.collect()
    await assertChatBody(got)
    const { body } = await s.snapshot()
    assert.deepEqual([body.status, body.messages.length, textOf(body.messages[1]).trim(), deltasIn(got).trim()], ['ended', 2, REPLY, REPLY])
    assertWireBody(await (await s.sse(0)).collect())
    assert.match(await start(program, s).ended(), /over already/)

    const stopped = set.session()
    const told = start(program, stopped)
    await eventually(async () => (await words(stopped)) >= 2, { what: 'words in the log' })
    await stopped.stop()
    assert.match(await told.ended(), /stopped by a client/)

    const other = set.session()
    const running = start(program, other)
    await eventually(async () => (await words(other)) >= 4, { what: 'words in the log' })
    await set.server.kill()
    await set.server.start()
    await running.ended()
    const after = (await other.snapshot()).body
    assert.deepEqual([after.status, textOf(after.messages[1]).trim()], ['ended', REPLY])
  })
}
