// Durable append of 64 bytes, 16 at once, to one object.

import { load, must } from './client.mjs';
import { interleave, quantile, ratio, spread } from './stats.mjs';
import { jsdo, ours } from './subjects.mjs';

const ROUNDS = 6;
const ROUND_MS = 1_200;
const WIDTH = 16;

export async function append({ origins, baseline }) {
  const measure = (name, subject) => async (round) => {
    const session = `append-${name}-${round}`;
    await subject.open(session);
    const text = (index) => String(index).padEnd(64, 'x');
    // Not measured: connections, compilation.
    const warm = await load(200, WIDTH, (index) => subject.append(session, text(-1 - index)));
    const sequences = [];
    const latencies = [];
    const { count, ms } = await load(ROUND_MS, WIDTH, async (index) => {
      const began = performance.now();
      sequences[index] = await subject.append(session, text(index));
      latencies.push(performance.now() - began);
    });
    const stored = new Map(await subject.stored(session));
    must(stored.size === count + warm.count, `${name}: ${stored.size} chunks stored`);
    sequences.forEach((sequence, index) => must(stored.get(sequence) === text(index), `${name}: ${sequence} is not what was appended`));
    return { rate: (count / ms) * 1000, p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) };
  };
  const got = await interleave(ROUNDS, { ours: measure('ours', ours(origins.followed)), jsdo: measure('jsdo', jsdo(baseline)) });
  const of = (name, key) => got[name].map((round) => round[key]);
  return {
    figures: [{ name: 'durable append, 64 B, 16 at once: ours / jsdo', budget: '>= 0.92', ...ratio(of('ours', 'rate'), of('jsdo', 'rate')) }],
    log: Object.fromEntries(Object.keys(got).flatMap((name) => [
      [`${name} appends/s`, spread(of(name, 'rate'))], [`${name} p50 ms`, spread(of(name, 'p50'))], [`${name} p99 ms`, spread(of(name, 'p99'))],
    ])),
  };
}
