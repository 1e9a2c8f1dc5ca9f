// Numbers that look random and come again under the same seed.

/** `SEED` of the environment, or one of the clock; a test prints it. */
export const seed = Number(process.env.SEED ?? Date.now() % 1_000_000)

/** Numbers from 0 up to 1, excluded. */
export function mulberry32(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}
