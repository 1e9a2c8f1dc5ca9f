// From an append to one reader, 200 a second.

import { setTimeout as sleep } from 'node:timers/promises';

import { now } from './client.mjs';
import { interleave, quantile, ratio, spread } from './stats.mjs';
import { jsdo, mustEqual, ours } from './subjects.mjs';

const ROUNDS = 6;
const APPENDS = 300;
const PACE_MS = 5;

export async function latency({ origins, baseline }) {
  const measure = (name, subject) => async (round) => {
    const session = `latency-${name}-${round}`;
    await subject.open(session);
    const reader = await subject.follow(session);
    // Whatever came at the start has come.
    await sleep(50);
    const sent = [];
    const moments = [];
    const appends = [];
    const began = now();
    const before = reader.frames;
    for (let index = 0; index < APPENDS; index++) {
      const wait = began + index * PACE_MS - now();
      if (wait > 0) await sleep(wait);
      sent.push(String(index).padEnd(64, 'x'));
      moments.push(now());
      const append = subject.append(session, sent[index]);
      appends.push(append);
      // One at a time, so that the order is ours; a late answer delays the next append and is not hidden.
      await append;
    }
    await reader.until(before + APPENDS);
    reader.close();
    const got = subject.read(reader);
    mustEqual(got, sent, name);
    const latencies = got.map(([, , at], index) => at - moments[index]);
    return { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) };
  };
  const got = await interleave(ROUNDS, {
    sse: measure('sse', ours(origins.followed)),
    jsdo: measure('jsdo', jsdo(baseline)),
    chat: measure('chat', ours(origins.followed, 'chat')),
  });
  const of = (name, key) => got[name].map((round) => round[key]);
  return {
    figures: [
      { name: 'append to one reader on /sse, p50: ours / jsdo', budget: '<= 1.15', ...ratio(of('sse', 'p50'), of('jsdo', 'p50')) },
      { name: 'append to one reader on /sse, p99: ours / jsdo', ...ratio(of('sse', 'p99'), of('jsdo', 'p99')) },
      { name: 'append to one chat reader, p50: ours / jsdo', ...ratio(of('chat', 'p50'), of('jsdo', 'p50')) },
    ],
    log: Object.fromEntries(Object.keys(got).flatMap((name) => ['p50', 'p99'].map((key) => [`${name} ${key} ms`, spread(of(name, key))]))),
  };
}
