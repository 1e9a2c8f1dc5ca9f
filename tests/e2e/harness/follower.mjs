// A reader of `/sse` that outlives restarts, by the client rules of stream wire v2; what it opens and how long it waits is the test's to see.
import { setTimeout as pause } from 'node:timers/promises'
import { isData } from './sse.mjs'

const MAX_REOPENS = 8
const NOT_COUNTED = ['slow_consumer', 'stale']

/**
 * Follows `s` (a session) to its end. The answer: `{outcome, chunks, opens, opened, caughtUp, fail?}`; `outcome` is the status of `end`, or
 * 'failed', 'truncated', 'evicted', 'run_changed', 'dropped', 'absent', 'refused'. `opens` counts tries, `opened` those that were answered.
 * `onChunk(chunk, stream)` is called for each; it may cut the stream, which the follower takes for a drop.
 */
export async function follow(s, { from = 0, waitForLive, onChunk = () => {} } = {}) {
  const state = { chunks: [], opens: 0, opened: 0, caughtUp: false }
  let [cursor, run, waits, evicted] = [from, undefined, waitForLive, false]
  let [counted, fruitless, setbacks] = [0, 0, 0]
  const done = (outcome, more = {}) => ({ outcome, ...state, ...more })

  /** One connection, read to its end: `{done}` or `{lost, counted}`. */
  async function connection(stream) {
    let live = false
    for await (const frame of stream) {
      if (!isData(frame)) continue
      const data = JSON.parse(frame.data)
      switch (frame.event) {
        case 'chunk':
          if (data.sequence <= cursor) break
          if (evicted && run !== undefined && data.chunk.runId !== run) return { done: done('run_changed') }
          ;[cursor, run] = [data.sequence, data.chunk.runId]
          if (live) waits = undefined
          state.chunks.push(data)
          onChunk(data, stream)
          break
        case 'caught-up':
          ;[live, evicted, state.caughtUp] = [true, false, true]
          break
        case 'end':
          return { done: done(data.status) }
        case 'fail':
          return data.recoverable ? { lost: 'dropped', counted: true } : { done: done('failed', { fail: data }) }
        case 'truncated':
          return { done: done('truncated') }
        case 'rewound':
          if (!(cursor >= data.head)) return { done: done('truncated') }
          break
        case 'evicted':
          if (cursor < data.resumeFrom) return { done: done('truncated') }
          evicted = true
          return { lost: 'evicted', counted: !NOT_COUNTED.includes(data.reason) }
      }
    }
    return { lost: 'dropped', counted: true }
  }

  for (;;) {
    state.opens++
    const stream = await s.sse(cursor, { waitForLive: waits }).catch(() => null)
    const before = cursor
    let way
    if (!stream || (state.opens > 1 && isPassing(stream.status))) {
      if (state.opens === 1) return done('dropped')
      setbacks++
      way = { lost: 'dropped', counted: true }
    } else if (stream.status !== 200) {
      return done(stream.cut().status === 404 ? 'absent' : 'refused', { status: stream.status })
    } else {
      state.opened++
      way = await connection(stream)
      fruitless = cursor > before ? 0 : fruitless + 1
      setbacks = cursor > before ? 0 : setbacks + 1
    }
    stream?.cut()
    if (way.done) return way.done
    if (fruitless >= 2 || (way.counted && counted++ >= MAX_REOPENS)) return done(way.lost)
    if (setbacks) await pause(Math.min(250 * 2 ** (setbacks - 1), 8000))
  }
}

const isPassing = (status) => [408, 429].includes(status) || status >= 500
