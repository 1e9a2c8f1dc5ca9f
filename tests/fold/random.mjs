// A seeded source of choices and JSON values.

/** The same seed makes the same choices on every machine. */
export function random(seed) {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (n) => Math.floor(next() * n)
  const pick = (list) => list[below(list.length)]
  const chance = (p) => next() < p
  /** One of `[weight, value]`; values of weight 0 never. */
  const weighted = (pairs) => {
    let left = next() * pairs.reduce((sum, [weight]) => sum + weight, 0)
    for (const [weight, value] of pairs) if ((left -= weight) < 0) return value
    return pairs.find(([weight]) => weight > 0)[1]
  }
  /** The keys whose turn it is: `{key: [probability, make]}`. */
  const maybe = (keys) => Object.fromEntries(Object.entries(keys).flatMap(([key, [p, make]]) => (chance(p) ? [[key, make()]] : [])))
  const text = () => pick(['', 'a', 'b c', 'ü', '😀', '"', '\\', '\n', 'line\u2028', '{', '7', 'true', 'constructor'])
  const key = () => pick(['a', 'b', 'c', 'ü', '"', '0', '10', 'toString', 'constructor', '__proto__', 'prototype'])
  const plainKey = () => pick(['a', 'b', 'c', 'ü', '"', '0', 'toString'])
  const leaf = () => pick([null, true, false, 0, -1, 7, 2.5, 1e21, 1e-7, -0.125, text(), text()])
  const json = (depth = 3, name = plainKey) => {
    if (depth === 0 || chance(0.35)) return leaf()
    return chance(0.4) ? list(() => json(depth - 1, name), 3) : record(depth - 1, name)
  }
  const list = (make, most) => Array.from({ length: below(most + 1) }, make)
  const record = (depth = 2, name = plainKey) => Object.fromEntries(list(() => [name(), json(depth, name)], 3))
  const provider = () => Object.fromEntries(list(() => [pick(['p', 'q']), record(1)], 2))
  return { below, pick, chance, weighted, maybe, text, key, json, list, record, provider }
}

/** A JSON text of that value with spaces, escapes and numbers written in unusual ways, cut into pieces between characters. */
export function streamed(r, value) {
  const text = spelled(r, value)
  const pieces = []
  let characters = [...text]
  if (r.chance(0.3)) characters = characters.slice(0, r.below(characters.length + 1))
  if (r.chance(0.04)) characters.splice(r.below(characters.length + 1), 0, r.pick([',', '}', ']', 'x', '"', ':', '\\', '+', '.']))
  while (characters.length) pieces.push(characters.splice(0, 1 + r.below(r.pick([1, 4, 30]))).join(''))
  if (r.chance(0.1)) pieces.splice(r.below(pieces.length + 1), 0, '')
  return pieces
}

function spelled(r, value) {
  const space = r.pick(['', '', ' ', '\n  ', '\t'])
  const write = (v) => {
    if (typeof v === 'number') return r.chance(0.3) ? r.pick(['1e5', '1E-2', '1.50', '-0', '1e+3', '0.0', '-2.5e0', '12']) : JSON.stringify(v)
    if (typeof v === 'string') return r.chance(0.3) ? JSON.stringify(v).replace(/[^ -~]|a/g, escaped) : JSON.stringify(v)
    if (Array.isArray(v)) return `[${space}${v.map(write).join(`,${space}`)}${space}]`
    if (v && typeof v === 'object') {
      return `{${Object.entries(v).map(([k, item]) => `${space}${write(k)}${space}:${space}${write(item)}`).join(`${space},`)}${space}}`
    }
    return JSON.stringify(v)
  }
  return `${r.chance(0.1) ? space : ''}${write(value)}${r.chance(0.1) ? space : ''}`
}

const escaped = (characters) => [...characters].flatMap((c) => c.split('')).map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')
