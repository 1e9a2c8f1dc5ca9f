// From the model's byte to the client's byte: a chat run against a plain pass-through Worker in the same workerd.

import { must, now, Stream } from './client.mjs';
import { interleave, quantile, spread } from './stats.mjs';
import { chatBody, send } from './subjects.mjs';

const ROUNDS = 5;
const TOKENS = 150;
const PACE_MS = 20;

export const request = (tokens, pace) => `${tokens} tokens every ${pace} ms`;

/** The tokens of a response, each with its age on arrival; throws when one is missing, repeated or out of order. */
export function tokens(stream, count) {
  const found = stream.read().flatMap(({ text, at }) =>
    [...text.matchAll(/<(\d+)@([\d.]+)>/g)].map(([, index, sent]) => ({ index: Number(index), age: at - Number(sent) })));
  must(found.length === count, `${found.length} of ${count} tokens`);
  found.forEach(({ index }, place) => must(index === place, `token ${index} at ${place}`));
  return found.map(({ age }) => age);
}

export async function model({ origins }) {
  const measure = (name, open) => async (round) => {
    const began = now();
    const stream = await open(`model-${name}-${round}`);
    await stream.ended;
    const ages = tokens(stream, TOKENS);
    must(now() - began < TOKENS * PACE_MS * 2, `${name} took too long`);
    return { ages, p50: quantile(ages, 0.5), p99: quantile(ages, 0.99) };
  };
  const chat = (origin) => (session) => send(origin, session, 'model', request(TOKENS, PACE_MS));
  const got = await interleave(ROUNDS, {
    pass: measure('pass', () => Stream.open(origins.pass, 'POST', '/', chatBody('model', request(TOKENS, PACE_MS)))),
    'default': measure('default', chat(origins.followed)),
    unbatched: measure('unbatched', chat(origins.unbatched)),
  });
  const of = (name, key) => got[name].map((round) => round[key]);
  // Between the tokens of all rounds; one round has too few for a 99th percentile. The range is that of the rounds.
  const all = (name, key) => quantile(of(name, 'ages').flat(), key === 'p50' ? 0.5 : 0.99);
  const added = (name, key) => ({
    ...spread(of(name, key).map((value, round) => value - of('pass', key)[round])), value: all(name, key) - all('pass', key),
  });
  const figure = (words, name, key) => ({ name: `model byte to client byte, ${words}: added ${key}`, unit: 'ms', ...added(name, key) });
  return {
    figures: [
      figure('BATCH_WAIT_MS 50', 'default', 'p50'), figure('BATCH_WAIT_MS 50', 'default', 'p99'),
      figure('BATCH_WAIT_MS 0', 'unbatched', 'p50'), figure('BATCH_WAIT_MS 0', 'unbatched', 'p99'),
    ],
    log: Object.fromEntries(Object.keys(got).flatMap((name) => ['p50', 'p99'].map((key) => [`${name} ${key} ms`, spread(of(name, key))]))),
  };
}
