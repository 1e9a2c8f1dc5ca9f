// The set-up that most test files share: a fake model and the product in front of it, for the length of the file.
import { after, before } from 'node:test'
import { startFakeModel } from './fake-model.mjs'
import { openaiAgent, startRejoin } from './server.mjs'
import { session } from './session.mjs'

/** `stage({vars, agents})` at a file's (or a describe's) top; inside tests: `stage.model`, `stage.server`, `stage.session(id?)`. */
export function stage({ vars = {}, agents = openaiAgent } = {}) {
  const set = { session: (id) => session(set.server, id) }
  before(async () => {
    set.model = await startFakeModel()
    set.server = await startRejoin({ vars, agents: agents(set.model) })
  })
  after(async () => {
    await set.server?.close()
    await set.model?.close()
  })
  return set
}
