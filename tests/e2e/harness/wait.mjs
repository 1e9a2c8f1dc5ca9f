// Waiting: for an event, for a gate that the test opens, for a fact that only polling can show.

export const LONG = 30_000

/** A promise that the test opens; it has `open(value)`, `opened`, and can be awaited any number of times. */
export function gate() {
  let resolve
  const promise = new Promise((r) => (resolve = r))
  return {
    opened: false,
    open(value) {
      this.opened = true
      resolve(value)
    },
    then: (...args) => promise.then(...args),
  }
}

/** The promise's value, or an error that names what did not happen in time. */
export async function within(promise, ms = LONG, what = 'the awaited event') {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not happen within ${ms} ms`)), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Asks `probe` again and again until it answers something truthy; for facts that no event announces. */
export async function eventually(probe, { ms = LONG, every = 25, what = 'the condition' } = {}) {
  const deadline = Date.now() + ms
  for (;;) {
    const last = await probe()
    if (last) return last
    if (Date.now() > deadline) throw new Error(`${what} did not hold within ${ms} ms (last: ${JSON.stringify(last)})`)
    await new Promise((r) => setTimeout(r, every))
  }
}
