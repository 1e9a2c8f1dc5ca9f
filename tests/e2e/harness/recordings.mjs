// The recorded streams of model APIs that lie beside the project, and what each of those of chat completions says.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const folder = process.env.RECORDINGS ?? fileURLToPath(new URL('../../../../shared/recordings', import.meta.url))

/** `[{name, lines}]`; empty where the recordings are not at hand (they are not part of the project; `RECORDINGS` names their folder). */
export const chatRecordings = () => recordings('chat-completions')
/** The same of the Messages API. */
export const messagesRecordings = () => recordings('anthropic-messages')

function recordings(api) {
  const dir = `${folder}/${api}`
  if (!existsSync(dir)) return []
  return readdirSync(dir)
    .filter((file) => file.endsWith('.jsonl'))
    .sort()
    .map((file) => ({
      name: file.replace('.jsonl', ''),
      lines: readFileSync(`${dir}/${file}`, 'utf8').split('\n').filter((line) => line.trim() !== ''),
    }))
}

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
    said.reasoning += reasoning_content ?? reasoning ?? ''
    for (const [position, call] of (tool_calls ?? []).entries()) {
      const known = (said.tools[call.index ?? position] ??= { id: call.id, name: call.function?.name, arguments: '' })
      known.arguments += call.function?.arguments ?? ''
    }
    if (choice.finish_reason) said.finish = choice.finish_reason
  }
  return said
}
