// The set-up that most test files share: a fake model and the product in front of it, for the length of the file.
import { after, before } from 'node:test'
import { startFakeModel } from './fake-model.mjs'
import { openaiAgent, startRejoin } from './server.mjs'
import { session } from './session.mjs'

/**
 * `stage({vars, agents, ready})` at a file's (or a describe's) top; inside tests: `stage.model`, `stage.server`, `stage.session(id?)`.
 * `ready(stage)` runs once both serve: hooks of one level do not wait for each other. `start` starts another server than the launcher's.
 */
export function stage({ vars = {}, agents = openaiAgent, ready, start = startRejoin, ...launch } = {}) {
  const set = { session: (id) => session(set.server, id) }
  before(async () => {
    set.model = await startFakeModel()
    set.server = await start({ vars, agents: agents(set.model), ...launch })
    await ready?.(set)
  })
  after(async () => {
    await set.server?.close()
    await set.model?.close()
  })
  return set
}
