// Replay of a log of 50,000 chunks from its start, by an object that was loaded anew: nothing of the log is in its memory.

import { createHash } from 'node:crypto';

import { askOk, must, now, Stream } from './client.mjs';
import { interleave, ratio, spread } from './stats.mjs';
import { send, untilInfo } from './subjects.mjs';

const ROUNDS = 7;
const CHUNKS = 50_000;

/** The frames that carry a chunk: [sequence, whether it is one of the 50,000]. */
const chunks = (stream) => stream.read().flatMap(({ text }) => {
  const id = /^id: (\d+)$/m.exec(text);
  return id ? [[Number(id[1]), /"type":"text-delta"|^data: x{64}$/m.test(text)]] : [];
});

export async function replay(bench) {
  const began = now();
  const starter = await send(bench.origins.followed, 'replay', 'bulk');
  starter.close();
  const { head } = await untilInfo(bench.origins.followed, 'replay', (seen) => seen.runStatus === 'completed', 120_000);
  const written = now() - began;
  await askOk(bench.baseline, 'GET', `/bulk?n=${CHUNKS}&size=64&s=replay`);
  await bench.restart();

  const { origins, baseline } = bench;
  const paths = {
    sse: [origins.followed, '/sessions/replay/sse', head],
    jsdo: [baseline, `/replaybatch?n=${CHUNKS}&s=replay`, CHUNKS],
    chat: [origins.followed, '/api/chat/replay', null],
  };
  const expected = {};
  const read = (name) => async (round) => {
    const [origin, path, head] = paths[name];
    const start = now();
    const stream = await Stream.open(origin, 'GET', path);
    const ms = await stream.ended - start;
    const digest = createHash('sha1').update(Buffer.concat(stream.parts)).digest('hex');
    if (round === 0) {
      // The first reading loads the object; it is looked at, not counted.
      const got = chunks(stream);
      must(got.filter(([, counts]) => counts).length === CHUNKS, `${name}: ${got.length} chunks`);
      must(head === null || got.length === head, `${name}: ${got.length} of ${head} chunks`);
      // The chat dialect leaves the log's bookkeeping out.
      const follows = (sequence, before) => (head === null ? sequence > before : sequence === before + 1);
      got.forEach(([sequence], index) => must(index === 0 || follows(sequence, got[index - 1][0]), `${name}: ${sequence} after ${got[index - 1]?.[0]}`));
      expected[name] = digest;
    }
    must(digest === expected[name], `${name}: the same log was read differently`);
    return { rate: (CHUNKS / ms) * 1000, bytes: stream.bytes / 1e6 / (ms / 1000), first: ms };
  };
  const got = await interleave(ROUNDS + 1, { sse: read('sse'), jsdo: read('jsdo'), chat: read('chat') });
  const of = (name, key) => got[name].slice(1).map((round) => round[key]);
  return {
    figures: [
      { name: 'replay of 50,000 chunks on /sse: ours / jsdo', budget: '>= 1.5', ...ratio(of('sse', 'rate'), of('jsdo', 'rate')) },
      { name: 'replay of 50,000 chunks on chat: ours / jsdo', budget: '>= 0.5', ...ratio(of('chat', 'rate'), of('jsdo', 'rate')) },
    ],
    log: {
      'ours writes 50,000 chunks, ms': written,
      ...Object.fromEntries(Object.keys(got).flatMap((name) => [
        [`${name} chunks/s`, spread(of(name, 'rate'))], [`${name} MB/s`, spread(of(name, 'bytes'))], [`${name} first reading, ms`, got[name][0].first],
      ])),
    },
  };
}
