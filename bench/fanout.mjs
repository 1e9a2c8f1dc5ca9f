// One object, many readers: deliveries per second while one client appends as fast as it is answered.

import { now } from './client.mjs';
import { interleave, quantile, ratio, spread } from './stats.mjs';
import { jsdo, mustEqual, ours } from './subjects.mjs';

const ROUNDS = 5;
const SIZES = [100, 500];
// A round appends until it has made so many deliveries, or for so long.
const DELIVERIES = 25_000;
const ROUND_MS = 1_000;

export async function fanout({ origins, baseline }) {
  const figures = [];
  const log = {};
  for (const readers of SIZES) {
    const measure = (name, subject) => async (round) => {
      const session = `fanout-${name}-${readers}-${round}`;
      await subject.open(session);
      const streams = [];
      while (streams.length < readers) {
        streams.push(...await Promise.all(Array.from({ length: Math.min(25, readers - streams.length) }, () => subject.follow(session))));
      }
      const sent = [];
      const moments = [];
      // Whatever came at the start has come.
      await new Promise((resolve) => setTimeout(resolve, 50));
      const before = streams.map((stream) => stream.frames);
      const began = now();
      for (let index = 0; index * readers < DELIVERIES && now() - began < ROUND_MS; index++) {
        sent.push(String(index).padEnd(64, 'x'));
        moments.push(now());
        await subject.append(session, sent[index]);
      }
      const appended = now() - began;
      const appends = sent.length;
      await Promise.all(streams.map((stream, index) => stream.until(before[index] + appends)));
      const ms = now() - began;
      const latencies = [];
      for (const stream of streams) {
        stream.close();
        const got = subject.read(stream);
        mustEqual(got, sent, name);
        got.forEach(([, , at], index) => latencies.push(at - moments[index]));
      }
      return {
        rate: (readers * appends / ms) * 1000, appends: (appends / appended) * 1000, p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99),
      };
    };
    const got = await interleave(ROUNDS, {
      sse: measure('sse', ours(origins.followed)),
      jsdo: measure('jsdo', jsdo(baseline)),
      chat: measure('chat', ours(origins.followed, 'chat')),
    });
    const of = (name, key) => got[name].map((round) => round[key]);
    figures.push(
      { name: `fan-out to ${readers} on /sse, deliveries/s: ours / jsdo`, budget: '>= 1.0', ...ratio(of('sse', 'rate'), of('jsdo', 'rate')) },
      { name: `fan-out to ${readers} on chat, deliveries/s: ours / jsdo`, ...ratio(of('chat', 'rate'), of('jsdo', 'rate')) },
      { name: `fan-out to ${readers} on /sse, p99: ours / jsdo`, ...ratio(of('sse', 'p99'), of('jsdo', 'p99')) },
    );
    for (const name of Object.keys(got)) {
      for (const [key, unit] of [['rate', 'deliveries/s'], ['appends', 'appends/s'], ['p50', 'p50 ms'], ['p99', 'p99 ms']]) {
        log[`${name} ${readers} ${unit}`] = spread(of(name, key));
      }
    }
  }
  return { figures, log };
}
