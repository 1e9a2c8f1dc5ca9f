// Chunk sequences as a run could hold them: mostly streams that a client takes to the end, some that it fails on.
import { random, streamed } from './random.mjs'

const IDS = ['t', 'u', '0']
const CALLS = ['c', 'd', 'e']
const TOOLS = ['x', 'y', 'weather']

/** One case, `{from?, chunks}`, for the newest release of that major version. */
export function generate(seed, major) {
  const g = new Generator(random(seed), major)
  const from = g.r.chance(0.35) ? g.message() : undefined
  return { from, chunks: g.run() }
}

class Generator {
  chunks = []
  /** Open texts and reasoning by id; calls by id. What the client knows, as far as choosing valid chunks needs it. */
  open = { text: new Set(), reasoning: new Set() }
  calls = new Map()
  approvals = 0

  constructor(r, major) {
    this.r = r
    this.seven = major === 7
  }

  put(type, ...keys) {
    this.chunks.push(Object.assign({ type }, ...keys))
  }

  run() {
    const { r } = this
    if (r.chance(0.8)) this.put('start', r.maybe({ messageId: [0.5, () => r.pick(['m', 'm', 'n'])], messageMetadata: [0.4, () => this.metadata()] }))
    for (let step = r.below(3); step >= 0; step -= 1) this.step()
    if (r.chance(0.5)) this.put('finish', r.maybe({ finishReason: [0.7, () => r.pick(['stop', 'length', 'other'])], messageMetadata: [0.4, () => this.metadata()] }))
    if (r.chance(0.1)) this.put(...r.pick([['abort'], ['error', { errorText: 'e' }]]))
    return this.chunks
  }

  step() {
    const { r } = this
    if (r.chance(0.85)) this.put('start-step')
    for (let left = r.below(r.pick([4, 12, 30])); left > 0; left -= 1) r.chance(0.01) ? this.wild() : this.act()
    if (!r.chance(0.85)) return
    // Texts that are open over the end of a step divide the versions.
    for (const kind of ['text', 'reasoning']) {
      for (const id of [...this.open[kind]]) if (r.chance(0.9)) this.end(kind, id)
      if (!this.seven) this.open[kind].clear()
    }
    this.put('finish-step')
  }

  act() {
    const { r, seven } = this
    r.weighted([
      [6, () => this.prose('text')],
      [4, () => this.prose('reasoning')],
      [9, () => this.tool()],
      [1, () => this.put('source-url', { sourceId: 's', url: 'https://a' }, r.maybe({ title: [0.5, r.text], ...this.meta() }))],
      [1, () => this.put('source-document', { sourceId: 's', mediaType: 'm', title: r.text() }, r.maybe({ filename: [0.5, r.text], ...this.meta() }))],
      [1, () => this.put('file', { url: 'data:,', mediaType: 'm' }, r.maybe(this.meta()))],
      [3, () => this.data()],
      [1.5, () => this.put('message-metadata', { messageMetadata: this.metadata() })],
      [seven, () => this.put('reasoning-file', { url: 'data:,', mediaType: 'm' }, r.maybe(this.meta()))],
      [seven, () => this.put('custom', { kind: 'a.b' }, r.maybe(this.meta()))],
      [seven * 0.5, () => this.steering()],
      [seven * 0.5, () => this.reset()],
    ])()
  }

  meta = () => ({ providerMetadata: [0.25, this.r.provider] })

  metadata() {
    const { r } = this
    if (r.chance(0.04)) return r.pick([7, 'ab', '', true, [1, 2], [], null])
    const value = r.record(3, r.chance(0.1) ? () => r.pick(['a', 'constructor', 'prototype']) : undefined)
    return r.chance(0.5) ? { a: { b: r.json(1), c: r.list(() => r.json(1), 2) }, ...value } : value
  }

  prose(kind) {
    const { r } = this
    const open = [...this.open[kind]]
    if (open.length === 0 || r.chance(0.2)) {
      const id = r.pick(IDS)
      this.open[kind].add(id)
      return this.put(`${kind}-start`, { id }, r.maybe(this.meta()))
    }
    const id = r.pick(open)
    if (r.chance(0.25)) return this.end(kind, id)
    this.put(`${kind}-delta`, { id, delta: r.text() }, r.maybe(this.meta()))
  }

  end(kind, id) {
    const { r } = this
    this.open[kind].delete(id)
    const source = { type: 'source', sourceType: 'url', id: 's', url: 'u' }
    const citations = [this.seven && kind === 'text' ? 0.2 : 0, () => r.list(() => ({ source, startIndex: 1 }), 2)]
    this.put(`${kind}-end`, { id }, r.maybe({ citations, ...this.meta() }))
  }

  data() {
    const { r } = this
    const id = r.pick(['d', 'd', 'f', ''])
    this.put(r.pick(['data-x', 'data-y']), { data: r.json(2) }, r.maybe({ id: [0.7, () => id], transient: [0.3, () => r.chance(0.5)] }))
  }

  steering() {
    const { r } = this
    const part = () => r.pick([{ type: 'text', text: r.text() }, { type: 'file', url: 'data:,', mediaType: 'm', filename: 'f' }])
    this.put('steering-message', { id: 'q', parts: r.list(part, 2) })
  }

  reset() {
    this.put('reset-step')
    this.open.text.clear()
    this.open.reasoning.clear()
    this.calls.clear()
  }

  tool() {
    const { r } = this
    const waiting = [...this.calls.keys()]
    if (waiting.length === 0 || r.chance(0.3)) return this.input(r.pick(CALLS))
    const id = r.pick(waiting)
    const call = this.calls.get(id)
    if (r.chance(0.07)) return this.input(id)
    if (call.pieces?.length) return this.put('tool-input-delta', { toolCallId: id, inputTextDelta: call.pieces.shift() })
    if (call.pieces && r.chance(0.9)) return this.available(id, call)
    this.answer(id)
  }

  callKeys() {
    const { r } = this
    return { title: [0.3, r.text], providerExecuted: [0.3, () => r.chance(0.5)], toolMetadata: [0.3, () => r.record(1)], ...this.meta() }
  }

  input(id) {
    const { r } = this
    const call = { toolName: r.pick(TOOLS), ...r.maybe({ dynamic: [0.4, () => r.chance(0.8)] }) }
    if (r.chance(0.4)) return this.available(id, call)
    call.pieces = streamed(r, r.chance(0.8) ? r.record(3, r.chance(0.1) ? r.key : undefined) : r.json(3))
    this.calls.set(id, call)
    const inputEncoding = [this.seven ? 0.2 : 0, () => r.pick(['text', 'json'])]
    const { pieces, ...told } = call
    this.put('tool-input-start', { toolCallId: id, ...told }, r.maybe({ ...this.callKeys(), inputEncoding }))
  }

  available(id, call) {
    const { r } = this
    const { pieces, ...told } = call
    if (r.chance(0.05)) told.toolName = r.pick(TOOLS)
    const failed = r.chance(0.15)
    this.calls.set(id, { ...told })
    const keys = { toolCallId: id, ...told, input: r.json(2), ...(failed && { errorText: r.text() }) }
    this.put(failed ? 'tool-input-error' : 'tool-input-available', keys, r.maybe(this.callKeys()))
  }

  answer(id) {
    const { r, seven } = this
    const { title, ...keys } = this.callKeys()
    const call = this.calls.get(id)
    const more = { preliminary: [0.3, () => r.chance(0.8)], dynamic: [0.1, () => true] }
    r.weighted([
      [4, () => this.put('tool-output-available', { toolCallId: id, output: r.json(2) }, r.maybe({ ...keys, ...more }))],
      [2, () => this.put('tool-output-error', { toolCallId: id, errorText: r.text() }, r.maybe(keys))],
      [1, () => this.put('tool-output-denied', { toolCallId: id })],
      [2, () => this.approval(id)],
      [call.approval ? 4 * seven : 0, () => this.response(call.approval)],
    ])()
  }

  approval(id) {
    const { r, seven } = this
    const approvalId = r.chance(0.2) ? 'p' : `p${(this.approvals += 1)}`
    this.calls.get(id).approval = approvalId
    const keys = { signature: [0.2, r.text], approvalDescriptor: [0.2, () => r.record(1)] }
    const later = { inputSchemaInput: [0.2, () => r.record(1)], reason: [0.2, r.text], isAutomatic: [0.2, () => r.chance(0.5)] }
    this.put('tool-approval-request', { approvalId, toolCallId: id }, r.maybe(seven ? { ...keys, ...later } : keys))
  }

  response(approvalId) {
    const { r } = this
    const keys = { reason: [0.4, r.text], providerExecuted: [0.2, () => true], ...this.meta() }
    this.put('tool-approval-response', { approvalId, approved: r.chance(0.6) }, r.maybe(keys))
  }

  /** A chunk that may refer to nothing. */
  wild() {
    const { r, seven } = this
    const [id, toolCallId] = [r.pick(IDS), r.pick(CALLS)]
    this.put(
      ...r.pick([
        ['text-delta', { id, delta: 'x' }],
        ['text-end', { id }],
        ['reasoning-delta', { id, delta: 'x' }],
        ['reasoning-end', { id }],
        ['tool-input-delta', { toolCallId, inputTextDelta: '{' }],
        ['tool-output-available', { toolCallId, output: 1 }],
        ['tool-output-error', { toolCallId, errorText: 'e' }],
        ['tool-output-denied', { toolCallId }],
        ['tool-approval-request', { toolCallId, approvalId: 'p' }],
        seven ? ['tool-approval-response', { approvalId: 'p', approved: true }] : ['start-step'],
      ]),
    )
  }

  /** A message that an earlier run has committed, with calls in every state. */
  message() {
    const { r } = this
    const parts = []
    for (let left = 1 + r.below(6); left > 0; left -= 1) {
      parts.push(r.weighted([
        [2, () => ({ type: 'text', text: r.text(), state: r.pick(['done', 'streaming']) })],
        [1, () => ({ type: 'reasoning', text: r.text(), id: 't' })],
        [2, () => ({ type: 'step-start' })],
        [2, () => ({ type: r.pick(['data-x', 'data-y']), id: 'd', data: r.json(1) })],
        [8, () => this.call()],
      ])())
    }
    return { id: 'm', role: 'assistant', ...r.maybe({ metadata: [0.5, () => r.record(3)], createdAt: [0.2, () => 1] }), parts }
  }

  call() {
    const { r } = this
    const toolCallId = r.pick(CALLS)
    const id = `h${(this.approvals += 1)}`
    const reason = r.maybe({ reason: [0.3, r.text] })
    const toolName = r.pick(TOOLS)
    const kind = r.chance(0.4) ? { type: 'dynamic-tool', toolName } : { type: `tool-${toolName}` }
    const input = r.json(1)
    const granted = r.maybe({ approval: [0.3, () => ({ id, approved: true, ...reason })] })
    const [state, keys] = r.pick([
      ['input-streaming', r.maybe({ input: [0.5, () => input], rawInput: [0.5, () => '{"a":'] })],
      ['input-available', { input }],
      ['approval-requested', { input, approval: { id } }],
      ['approval-responded', { input, approval: { id, approved: r.chance(0.6), ...reason } }],
      ['output-available', { input, output: r.json(1), ...granted, ...r.maybe({ preliminary: [0.2, () => true] }) }],
      ['output-error', { input, errorText: r.text(), ...granted }],
      ['output-denied', { input, approval: { id, approved: false, ...reason } }],
    ])
    this.calls.set(toolCallId, { toolName, ...(kind.toolName && { dynamic: true }), approval: keys.approval?.id })
    const extra = { title: [0.2, r.text], providerExecuted: [0.2, () => true], callProviderMetadata: [0.2, r.provider], toolMetadata: [0.2, () => r.record(1)] }
    return { ...kind, toolCallId, state, ...keys, ...r.maybe(extra) }
  }
}
