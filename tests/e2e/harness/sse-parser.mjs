// An incremental parser of server-sent events that keeps what clients throw away: comments, ids per frame, byte offsets.

/**
 * `push(bytes)` answers the frames completed by them. A frame is `{event?, id?, data?, retry?, end}` or
 * `{comment, end}`; `end` is the offset in the whole body just behind the frame. `rest()` is the unfinished tail.
 */
export function sseParser() {
  let pending = Buffer.alloc(0)
  let offset = 0
  let fields = null
  let afterCr = false
  // Bytes of `pending` that hold no line end: a line of megabytes is looked at once.
  let scanned = 0

  function line(text, end, out) {
    if (text === '') {
      if (fields) out.push({ ...fields, end })
      fields = null
      return
    }
    if (text.startsWith(':')) {
      out.push({ comment: text.slice(1).replace(/^ /, ''), end })
      return
    }
    const colon = text.indexOf(':')
    const name = colon < 0 ? text : text.slice(0, colon)
    const value = colon < 0 ? '' : text.slice(colon + 1).replace(/^ /, '')
    if (!['event', 'id', 'data', 'retry'].includes(name)) return
    fields ??= {}
    fields[name] = name === 'data' && 'data' in fields ? `${fields.data}\n${value}` : value
  }

  return {
    push(bytes) {
      pending = pending.length ? Buffer.concat([pending, bytes]) : Buffer.from(bytes)
      const out = []
      let start = 0
      for (let at = scanned; at < pending.length; at++) {
        const byte = pending[at]
        if (byte === 0x0a && afterCr && at === start) {
          afterCr = false
          start = at + 1
          if (out.length) out[out.length - 1].end = offset + start
          continue
        }
        afterCr = false
        if (byte !== 0x0a && byte !== 0x0d) continue
        afterCr = byte === 0x0d
        let text = pending.toString('utf8', start, at)
        if (offset + start === 0) text = text.replace(/^\uFEFF/, '')
        start = at + 1
        line(text, offset + start, out)
      }
      offset += start
      pending = pending.subarray(start)
      scanned = pending.length
      return out
    },
    rest: () => (fields || pending.length ? { fields, bytes: pending } : null),
  }
}

export const parseSse = (bytes) => sseParser().push(Buffer.from(bytes))

/** The JSON chunks of the data frames, `[DONE]` left out. */
export const chunksOf = (frames) =>
  frames.filter((f) => f.data !== undefined && f.data !== '[DONE]').map((f) => JSON.parse(f.data))

export const isDone = (frame) => frame.data === '[DONE]'
export const isData = (frame) => frame.data !== undefined
