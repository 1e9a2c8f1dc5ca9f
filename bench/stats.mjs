// Numbers out of samples.

/** A size, or a part of it: `BENCH_SCALE=0.1` shows quickly that a long measure works. Its figures then mean nothing. */
export const scaled = (size) => Math.max(1, Math.round(size * Number(process.env.BENCH_SCALE ?? 1)));

export function quantile(samples, q) {
  const sorted = Float64Array.from(samples).sort();
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] : NaN;
}

export const median = (samples) => {
  const sorted = Float64Array.from(samples).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/** One ratio per round, of rounds measured one after the other; what the rounds say together. */
export function ratio(ours, theirs) {
  const rounds = ours.map((value, round) => value / theirs[round]);
  return { value: median(rounds), min: Math.min(...rounds), max: Math.max(...rounds), rounds: rounds.length };
}

export const spread = (samples) => ({
  value: median(samples), min: Math.min(...samples), max: Math.max(...samples), rounds: samples.length,
});

/** Runs every subject once per round, A B C, A B C, …; `subjects` is name → async (round) => number or record. */
export async function interleave(rounds, subjects) {
  const results = Object.fromEntries(Object.keys(subjects).map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, measure] of Object.entries(subjects)) results[name].push(await measure(round));
  }
  return results;
}
