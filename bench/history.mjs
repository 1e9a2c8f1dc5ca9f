// Readers of a long log from its start, and what a writer notices of them.

import { must, now, Stream } from './client.mjs';
import { settled, watch } from './memory.mjs';
import { interleave, quantile, ratio, scaled, spread } from './stats.mjs';
import { field, jsdo, ours } from './subjects.mjs';

const ROUNDS = 3;
const READERS = 6;
const CHUNK_BYTES = 16 << 10;
const CHUNKS = Math.ceil(scaled(50_000_000) / CHUNK_BYTES);
const AT_ONCE = 50;
// Appends of a round that nobody reads in, and of one with readers.
const APPENDS = 300;
const APPENDS_READ = scaled(100);

const text = (index) => String(index).padEnd(64, 'x');

/** Appends one after the other until `over()`; gives how long each took. */
async function appends(subject, session, over) {
  const times = [];
  while (!over(times.length)) {
    const began = now();
    await subject.append(session, text(times.length));
    times.push(now() - began);
  }
  return times;
}

export async function history(bench) {
  const { origins, baseline, pids } = bench;
  const subjects = {
    ours: { subject: ours(origins.followed), pid: pids.ours, path: (session) => [origins.followed, `/sessions/${session}/sse`] },
    jsdo: { subject: jsdo(baseline), pid: pids.baseline, path: (session) => [baseline, `/replaybatch?n=1000000&s=${session}`] },
  };
  for (const [name, { subject }] of Object.entries(subjects)) {
    const session = `history-${name}`;
    await subject.open(session);
    for (let left = CHUNKS; left > 0; left -= AT_ONCE) await subject.bulk(session, 'x'.repeat(CHUNK_BYTES), Math.min(AT_ONCE, left));
  }
  const alone = (name) => async () => {
    const times = await appends(subjects[name].subject, `history-${name}`, (count) => count === APPENDS);
    return { times };
  };
  const read = (name) => async () => {
    const { subject, pid, path } = subjects[name];
    const session = `history-${name}`;
    const head = await subject.append(session, text(0));
    await settled(pid);
    const memory = watch(pid);
    const began = now();
    // Whoever has all of it begins again, until there were enough appends to speak of a slow one.
    let enough = false;
    const reading = Array.from({ length: READERS }, async (_, index) => {
      let bytes = 0;
      while (!enough) bytes += await look(await Stream.open(...at(path(session))), head, `${name} ${index}`);
      return bytes;
    });
    const times = await appends(subject, session, (count) => count === APPENDS_READ);
    enough = true;
    const bytes = (await Promise.all(reading)).reduce((sum, count) => sum + count, 0);
    const ms = now() - began;
    return { times, grown: memory.stop() / 1e6, rate: bytes / 1e6 / (ms / 1000) };
  };
  const got = await interleave(ROUNDS, { 'ours alone': alone('ours'), 'ours read': read('ours'), 'jsdo alone': alone('jsdo'), 'jsdo read': read('jsdo') });
  const of = (name, q) => got[name].map(({ times }) => quantile(times, q));
  const figure = (name, q) => ({ name: `append while six read 50 MB, p${q * 100}: with / without`, ...ratio(of(`${name} read`, q), of(`${name} alone`, q)) });
  return {
    figures: [
      figure('ours', 0.5), figure('ours', 0.99),
      { name: 'append while six read 50 MB, p99: ours / jsdo', ...ratio(of('ours read', 0.99), of('jsdo read', 0.99)) },
    ],
    log: Object.fromEntries(Object.keys(got).flatMap((name) => [
      [`${name} p50 ms`, spread(of(name, 0.5))], [`${name} p99 ms`, spread(of(name, 0.99))],
      ...(got[name][0].rate ? [
        [`${name} MB/s read`, spread(got[name].map(({ rate }) => rate))],
        [`${name} MB more in the server, at most`, spread(got[name].map(({ grown }) => grown))],
      ] : []),
    ])),
  };
}

const at = ([origin, path]) => [origin, 'GET', path];

/** Reads until `head` has come, in order and without a gap, and leaves. Gives the bytes that it was given. */
async function look(reader, head, name) {
  let next = 1;
  let tail = Buffer.alloc(0);
  while (next <= head) {
    await reader.until(reader.frames + 1).catch((error) => must(next > head || reader.parts.length, `${name}: ${error.message} at ${next} of ${head}`));
    const bytes = Buffer.concat([tail, reader.take().bytes]);
    let from = 0;
    for (let end; (end = bytes.indexOf('\n\n', from)) >= 0; from = end + 2) {
      const id = field(bytes.toString('latin1', from, Math.min(end, from + 64)), 'id');
      if (!id) continue;
      must(Number(id) === next, `${name}: sequence ${id} at ${next}`);
      next += 1;
    }
    tail = bytes.subarray(from);
  }
  reader.close();
  return reader.bytes;
}
