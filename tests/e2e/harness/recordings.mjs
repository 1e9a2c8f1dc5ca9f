// The recorded streams of model APIs that lie beside the project, and what each of those of chat completions says.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = process.env.RECORDINGS ?? fileURLToPath(new URL('../../../../shared/recordings', import.meta.url))
if (process.env.RECORDINGS !== undefined && !existsSync(root)) throw new Error('RECORDINGS names no folder')

/**
 * `[{name, lines}]`; empty where the recordings are not at hand: they are not part of the project. `RECORDINGS` names another folder: one with
 * a folder for each API (`chat-completions`, `anthropic-messages`), or one that holds the files themselves, of which those of the API are taken.
 */
export const chatRecordings = () => recordings('chat-completions')
/** The same of the Messages API, without streams into which a second answer was spliced. */
export const messagesRecordings = () => recordings('anthropic-messages').filter(({ lines }) => lines.filter((line) => line.includes('"message_start"')).length === 1)

function recordings(api) {
  const own = `${root}/${api}`
  const dir = existsSync(own) ? own : root
  if (!existsSync(dir)) return []
  return readdirSync(dir)
    .filter((file) => file.endsWith('.jsonl'))
    .sort()
    .map((file) => ({
      name: file.replace('.jsonl', ''),
      lines: readFileSync(`${dir}/${file}`, 'utf8').split('\n').filter((line) => line.trim() !== ''),
    }))
    .filter(({ lines }) => apiOf(lines) === api)
}

/** Events of the Messages API have a `type`, those of chat completions have none. */
const apiOf = ([first = '{}']) => (typeof JSON.parse(first).type === 'string' ? 'anthropic-messages' : 'chat-completions')

/** Text, reasoning, tool calls, sources, finish reason and usage that a list of recorded events adds up to. */
export function contentOf(lines) {
  const said = { text: '', reasoning: '', tools: [], sources: [], finish: null, usage: null }
  for (const line of lines) {
    const event = JSON.parse(line)
    if (event.usage) said.usage = event.usage
    const urls = [...(event.search_results ?? []).map((r) => r.url), ...(event.citations ?? [])]
    said.sources = [...new Set([...said.sources, ...urls])]
    const choice = event.choices?.[0]
    if (!choice) continue
    const { content, reasoning_content, reasoning, tool_calls = [] } = choice.delta ?? {}
    if (typeof content === 'string') said.text += content
    for (const part of Array.isArray(content) ? content : []) {
      said.text += part.text ?? ''
      said.reasoning += (part.thinking ?? []).map((thought) => thought.text ?? '').join('')
    }
    said.reasoning += reasoning_content ?? reasoning ?? ''
    for (const [position, call] of (tool_calls ?? []).entries()) {
      const known = (said.tools[call.index ?? position] ??= { id: call.id, name: call.function?.name, arguments: '' })
      known.arguments += call.function?.arguments ?? ''
    }
    if (choice.finish_reason) said.finish = choice.finish_reason
  }
  return said
}
