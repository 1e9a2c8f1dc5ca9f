// Where the fold means to differ from the clients: docs/protocol.md, section "Fold", argues each rule by its name.

import { isDeepStrictEqual } from 'node:util'

/** A refusal of the fold that the client does not share, by rule; null when there is none. */
export function deliberateRefusal(sequence, answer, version) {
  const { chunks, from } = sequence
  const chunk = chunks[answer.refused]
  const before = chunks.slice(0, answer.refused)
  if (/^(text|reasoning)-(delta|end)$/.test(chunk.type) && version.startsWith('7')) {
    const start = before.findLastIndex((c) => c.type === chunk.type.replace(/-.*/, '-start') && c.id === chunk.id)
    if (start >= 0 && before.slice(start).some((c) => c.type === 'finish-step')) return 'finish-step-closes'
  }
  const streaming = (part) => part.toolCallId === chunk.toolCallId && part.state === 'input-streaming'
  if (chunk.type === 'tool-input-delta' && from?.parts.some(streaming)) return 'input-of-an-earlier-run'
  return null
}

/** The client's message as the fold should have it; every rule that changed something is told to `applied`. `answered`: the fold's message. */
export function expected(message, sequence, version, applied, answered) {
  if (!message || message.parts.length === 0) return null
  const parts = message.parts.map((part, at) => {
    if (!isTool(part)) return part
    const own = answered?.parts[at]
    return settled(begun(part, sequence, version, applied, own), sequence, version, applied, own)
  })
  return { ...message, parts }
}

const isTool = (part) => part.type === 'dynamic-tool' || part.type.startsWith('tool-')

/** A part whose input streams or was streaming; `answered` is the fold's. */
function begun(given, { chunks }, version, applied, answered) {
  const part = { ...given }
  if (!('input' in part) && version.startsWith('6') && answered && 'input' in answered && textsOf(part.toolCallId, chunks).some(isMisread)) {
    part.input = answered.input
    applied('begin-of-a-list')
  }
  const whole = withoutHalves(part.input)
  if (JSON.stringify(whole) !== JSON.stringify(part.input)) {
    part.input = whole
    applied('half-a-pair')
  }
  return part
}

/** The newest 6.x cannot read a text that ends so, until its next character. */
const isMisread = (text) => /\[\s*[^\s\]"[{0-9tfn]/.test(text)

/** The input texts of a call, each up to the next `tool-input-start`. */
function textsOf(call, chunks) {
  const texts = ['']
  for (const chunk of chunks.filter((c) => c.toolCallId === call)) {
    if (chunk.type === 'tool-input-start') texts.push('')
    if (chunk.type === 'tool-input-delta') texts.push(texts.pop() + chunk.inputTextDelta)
  }
  return texts
}

const withoutHalves = (value) => {
  if (typeof value === 'string') return value.isWellFormed() ? value : value.replace(/[\ud800-\udbff]$/, '')
  if (Array.isArray(value)) return value.map(withoutHalves)
  if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withoutHalves(item)]))
  return value
}

/** Keys that may stand only beside these states. */
const ONLY_IN = {
  output: ['output-available'],
  preliminary: ['output-available'],
  errorText: ['output-error'],
  inputEncoding: ['input-streaming'],
}

function settled(given, { chunks }, version, applied, answered) {
  const part = { ...given }
  const { state } = part
  for (const [key, states] of Object.entries(ONLY_IN)) {
    if (key in part && !states.includes(state)) {
      delete part[key]
      applied('left-over-keys')
    }
  }
  if (state !== 'input-streaming') {
    // 6.x keeps the input of a static failure as `rawInput`, and only until the part changes.
    if (!('input' in part) && version.startsWith('6') && part.type !== 'dynamic-tool') {
      const failures = chunks.filter((c) => c.type === 'tool-input-error' && c.toolCallId === part.toolCallId)
      if (answered && failures.some((c) => isDeepStrictEqual(c.input, answered.input))) {
        part.input = answered.input
        applied('failed-input')
      }
    }
    if ('rawInput' in part) {
      if (!('input' in part)) part.input = part.rawInput
      delete part.rawInput
      applied('raw-input')
    }
    if (!('input' in part)) {
      part.input = null
      applied('input-null')
    }
  }
  const approval = approvalFor(part)
  if (JSON.stringify(approval) !== JSON.stringify(part.approval)) {
    delete part.approval
    if (approval) part.approval = approval
    applied('approval-fits-state')
  }
  return part
}

function approvalFor({ state, approval, toolCallId }) {
  switch (state) {
    case 'input-streaming':
    case 'input-available':
      return undefined
    case 'output-available':
    case 'output-error':
      return approval && approval.approved !== false ? { ...approval, approved: true } : undefined
    case 'output-denied':
      return approval ? { ...approval, approved: false } : { id: toolCallId, approved: false }
    default:
      return approval
  }
}

export const RULES = [
  'finish-step-closes',
  'input-of-an-earlier-run',
  'begin-of-a-list',
  'half-a-pair',
  'left-over-keys',
  'failed-input',
  'raw-input',
  'input-null',
  'approval-fits-state',
]
