// Strict validation of chat chunks: the schemas of `ai` 6.0.0 and 7.0.0 refuse every key and type they do not know.
import assert from 'node:assert/strict'
import { load } from './clients.mjs'

export const STRICT = ['6.0.0', '7.0.0']

/** null when that version's client accepts the chunk, else what it objects to. */
export async function objection(version, chunk) {
  const { uiMessageChunkSchema } = await load(version)
  const result = await uiMessageChunkSchema().validate(chunk)
  return result.success ? null : `ai ${version} refuses ${JSON.stringify(chunk)}: ${reason(result.error)}`
}

export async function assertStrictChunk(chunk) {
  for (const version of STRICT) assert.equal(await objection(version, chunk), null)
}

/** Every data frame, read by each version's own stream reader (JSON guard included), against its strict schema. */
export async function assertStrictBody(raw) {
  for (const version of STRICT) {
    const { parseJsonEventStream, uiMessageChunkSchema } = await load(version)
    const stream = parseJsonEventStream({ stream: new Blob([raw]).stream(), schema: uiMessageChunkSchema() })
    for await (const result of stream) {
      assert.ok(result.success, result.success || `ai ${version} refuses ${JSON.stringify(result.rawValue)}: ${reason(result.error)}`)
    }
  }
}

/** The objections of the union's branch whose `type` fits; the whole error names every branch. */
function reason(error) {
  const issues = (error.cause?.issues ?? error.issues ?? []).flatMap((issue) => {
    const branch = issue.errors?.find((list) => !list.some((i) => i.path.length === 1 && i.path[0] === 'type'))
    return branch ?? [issue]
  })
  return issues.map((i) => `${i.path.join('.') || '(chunk)'}: ${i.message}`).join('; ') || error.message.slice(0, 200)
}
