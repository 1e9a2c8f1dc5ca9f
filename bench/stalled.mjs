// One of a hundred readers stops reading while megabytes flow: what the others notice of it, and what becomes of it.

import { must, now, Stream } from './client.mjs';
import { settled } from './memory.mjs';
import { interleave, quantile, ratio, scaled, spread } from './stats.mjs';
import { field, ours } from './subjects.mjs';

const ROUNDS = 2;
const READERS = 100;
const CHUNK_BYTES = 64 << 10;
const CHUNKS = Math.ceil(scaled(32 << 20) / CHUNK_BYTES);
// With less, all of it may lie in the buffers on the way, and the server sees nobody stall.
const EVICTS = CHUNKS * CHUNK_BYTES > 24 << 20;

const text = (index) => `<${index}>`.padEnd(CHUNK_BYTES, 'x');

/** The frames of a body that has ended: `[sequence, text]` of its chunks, and its last frame. */
function frames(stream) {
  const all = stream.read().map((frame) => frame.text);
  return { chunks: all.flatMap((frame) => (field(frame, 'id') ? [[Number(field(frame, 'id')), frame]] : [])), last: all.at(-1) ?? '' };
}

/** The stalled reader reads on: it was sent away with its last frame, or its connection broke; from its cursor the log is whole. */
async function revive(stalled, follow, head) {
  stalled.unstall();
  const gone = await Promise.race([
    stalled.ended.then(() => 'ended', () => 'broke'),
    stalled.until(head + 2, 60_000).then(() => 'stayed', () => 'ended'),
  ]);
  const { chunks, last } = frames(stalled);
  if (EVICTS) must(gone !== 'stayed', 'the stalled reader was never sent away');
  const reason = /"reason":"(\w+)"/.exec(last)?.[1];
  if (gone === 'ended') must(last.startsWith('event: evicted') && /slow_consumer|stale/.test(reason), `the stalled reader's last frame is ${last.slice(0, 200)}`);
  const rest = await follow(chunks.at(-1)?.[0] ?? 0);
  await rest.until(2 + head - (chunks.at(-1)?.[0] ?? 0));
  rest.close();
  [...chunks, ...frames(rest).chunks].forEach(([sequence], index) => must(sequence === index + 1, `the stalled reader: ${sequence} at ${index + 1}`));
  return { fate: gone === 'ended' ? reason : gone, held: stalled.bytes };
}

export async function stalled(bench) {
  const subject = ours(bench.origins.followed);
  const measure = (name) => async (round) => {
    const session = `stalled-${name}-${round}`;
    await subject.open(session);
    const follow = (from) => Stream.open(bench.origins.followed, 'GET', `/sessions/${session}/sse?fromSequence=${from}`);
    const readers = [];
    while (readers.length < READERS) readers.push(...await Promise.all(Array.from({ length: 25 }, () => subject.follow(session))));
    const still = name === 'with' ? readers.pop() : null;
    still?.stall();
    // Both rounds look at as many readers as the other.
    if (!still) readers.pop().close();
    await Promise.all(readers.map((reader) => reader.until(readers[0].frames)));
    readers.forEach((reader) => reader.take());
    const before = await settled(bench.pids.ours);
    const delays = [];
    const began = now();
    let last = 0;
    for (let index = 0; index < CHUNKS; index++) {
      const arrived = readers.map((reader) => reader.until(reader.frames + 1));
      const moment = now();
      last = await subject.append(session, text(index));
      await Promise.all(arrived);
      const first = readers[0].take();
      const frame = first.bytes.toString();
      must(Number(field(frame, 'id')) === last && frame.includes(text(index)) && frame.endsWith('\n\n'), `${name}: chunk ${index} is ${frame.slice(0, 200)}`);
      delays.push(first.at - moment);
      for (const reader of readers.slice(1)) {
        const { bytes, at } = reader.take();
        must(bytes.equals(first.bytes), `${name}: readers were given different bytes for chunk ${index}`);
        delays.push(at - moment);
      }
    }
    const ms = now() - began;
    const grown = await settled(bench.pids.ours) - before;
    readers.forEach((reader) => reader.close());
    const fate = still ? await revive(still, follow, last) : null;
    return { p50: quantile(delays, 0.5), p99: quantile(delays, 0.99), rate: CHUNKS * CHUNK_BYTES / 1e6 / (ms / 1000), grown: grown / 1e6, fate };
  };
  const got = await interleave(ROUNDS, { without: measure('without'), with: measure('with') });
  const of = (name, key) => got[name].map((round) => round[key]);
  return {
    figures: [
      { name: 'one of 100 readers stalls, the others\' p99: with / without', budget: '<= 1.10', ...ratio(of('with', 'p99'), of('without', 'p99')) },
      { name: 'one of 100 readers stalls, the others\' p50: with / without', ...ratio(of('with', 'p50'), of('without', 'p50')) },
    ],
    log: {
      ...Object.fromEntries(Object.keys(got).flatMap((name) => [
        [`${name} p50 ms`, spread(of(name, 'p50'))], [`${name} p99 ms`, spread(of(name, 'p99'))],
        [`${name} MB/s into the log`, spread(of(name, 'rate'))], [`${name} MB more in the server`, spread(of(name, 'grown'))],
      ])),
      'the stalled reader': of('with', 'fate').map(({ fate, held }) => `${fate} after ${(held / 1e6).toFixed(1)} MB`),
    },
  };
}
