// Readers that outlive the server: they keep all that they were given, come back by the client rules, and say what they were given wrongly.
import assert from 'node:assert/strict'
import { setTimeout as pause } from 'node:timers/promises'
import { assertChatBody, idsOf } from '../e2e/harness/assertions.mjs'
import { follow } from '../e2e/harness/follower.mjs'
import { chunksOf, isData } from '../e2e/harness/sse.mjs'

/** A reader of `/sse`; `comes` back: it follows to the run's end, else it reads one response. `{done, chunks(), check()}`. */
export function wireReader(s, { comes }) {
  const opened = []
  const sse = async (from, options) => {
    const stream = await s.sse(from, options)
    opened.push({ from, stream })
    return stream
  }
  const once = async () => void (await (await sse(0).catch(() => null))?.collect().catch(() => {}))
  const framesOf = ({ stream }) => stream.frames.filter((f) => f.event === 'chunk').map((f) => JSON.parse(f.data))
  return {
    done: comes ? follow({ sse }) : once(),
    chunks: () => opened.flatMap(framesOf),
    /** Within each response sequences are contiguous from its cursor, so that no chunk came twice. */
    check() {
      for (const response of opened.filter(({ stream }) => stream.status === 200)) {
        framesOf(response).forEach(({ sequence }, i) => assert.equal(sequence, response.from + i + 1, `contiguous from ${response.from}`))
      }
    },
    leave: () => opened.forEach(({ stream }) => stream.cut()),
  }
}

/** An aware chat client: the run's whole response, then the rest behind its cursor. `first`: an open response. `{done, head(), text(), check()}`. */
export function chatReader(s, { first, comes }) {
  const opened = []
  let left = false
  const cursor = () => Math.max(0, ...opened.flatMap((stream) => idsOf(stream.frames)))
  async function read() {
    for (let tries = 0; tries < 200 && !left; tries++) {
      const at = cursor()
      const ask = () => (at > 0 ? s.resume(at) : s.reconnect({ headers: { 'x-helix-replay-prefix': '0' } }))
      const stream = opened.length === 0 && first ? first : await ask().catch(() => null)
      if (!stream) {
        if (!comes) return
        await pause(30)
        continue
      }
      if (stream.status !== 200) return stream.cut()
      opened.push(stream)
      await stream.collect().catch(() => {})
      if (stream.ended === 'clean' || !comes) return
    }
  }
  return {
    done: read(),
    head: cursor,
    /** What the client shows in the end: what belongs to an attempt that was taken back is not shown any more. */
    text: () =>
      opened
        .flatMap((stream) => chunksOf(stream.frames.filter(isData)))
        .reduce((text, c) => (c.type === 'data-attempt-superseded' ? '' : c.type === 'text-delta' ? text + c.delta : text), ''),
    isWhole: () => opened.at(-1)?.ended === 'clean',
    async check() {
      const ids = opened.flatMap((stream) => idsOf(stream.frames))
      assert.deepEqual(ids, [...new Set(ids)].sort((a, b) => a - b), 'no number came twice to a chat client')
      for (const stream of opened) await assertChatBody({ frames: stream.frames, ended: stream.ended, raw: stream.raw, rest: stream.rest, text: stream.raw.toString() })
    },
    leave() {
      left = true
      opened.forEach((stream) => stream.cut())
    },
  }
}
