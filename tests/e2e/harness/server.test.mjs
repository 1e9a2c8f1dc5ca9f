import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseEnv } from 'node:util'
import { envText, freePort } from './server.mjs'

test('an env file gives the values back', () => {
  const agents = { default: { producer: 'demo', system: `it's "quoted" \\ and #hash\nnewline $HOME` } }
  const read = parseEnv(envText({ AGENTS: agents, LEASE_MS: 500, RECOVERY: 'fail' }))
  assert.deepEqual(JSON.parse(read.AGENTS), agents)
  assert.deepEqual([read.LEASE_MS, read.RECOVERY], ['500', 'fail'])
})

test('free ports differ', async () => {
  assert.notEqual(await freePort(), await freePort())
})
