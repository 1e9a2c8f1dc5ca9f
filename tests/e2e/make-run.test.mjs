// The README's first command as a newcomer gives it: `make run` with its three variables, and its end.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { freePort } from './harness/server.mjs'
import { call, userMessage } from './harness/session.mjs'
import { LONG, within } from './harness/wait.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))

// It builds what is stale; that has no bound.
before(() => void spawnSync('make', ['build'], { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] }))

test('make run takes PORT, STATE and ENV_FILE, and ends cleanly on SIGTERM', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'rejoin-make-'))
  const port = await freePort()
  writeFileSync(path.join(folder, 'my.env'), 'AGENTS={"only":{"producer":"demo","deltas":3,"paceMs":0}} # not part of it\n')
  const make = spawn('make', ['run', `PORT=${port}`, `STATE=${folder}/state`, `ENV_FILE=${folder}/my.env`], { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = new Promise((resolve) => make.once('exit', (code, signal) => resolve(code ?? signal)))
  try {
    const line = new Promise((resolve) => {
      let text = ''
      make.stdout.setEncoding('utf8').on('data', (piece) => {
        text += piece
        const said = /Rejoin serves on (\S+)/.exec(text)
        if (said) resolve(said[1])
      })
    })
    const origin = await within(line, LONG)
    assert.equal(new URL(origin).port, String(port))
    const answer = await call(`${origin}/api/chat/made`, { json: { messages: [userMessage('hi')] } })
    assert.equal(answer.status, 200)
    assert.equal(answer.text.match(/"text-delta"/g).length, 3, 'the configuration of ENV_FILE counts')
    assert.ok(existsSync(`${folder}/state`) && readdirSync(`${folder}/state`).length > 0, 'the objects are stored in STATE')
    make.kill('SIGTERM')
    await within(exited, LONG)
    await assert.rejects(fetch(`${origin}/health`), 'nothing serves any more')
  } finally {
    make.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
})
