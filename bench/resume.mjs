// Readers of a live run that lose their connections at random points and come back: how long until each has everything again.

import { setTimeout as sleep } from 'node:timers/promises';

import { must, now, Stream } from './client.mjs';
import { interleave, quantile, ratio, scaled, spread } from './stats.mjs';
import { field, jsdo, ours } from './subjects.mjs';

const ROUNDS = 2;
const READERS = scaled(200);
const CHUNKS = scaled(5_000);
// 20,000 deliveries a second: a server that is busy all the time would measure its queue.
const PACE_MS = 10;
// A reader is away for at most so many chunks.
const AWAY = CHUNKS / 10;

/** The same points in every round and for both subjects. */
function points() {
  let state = 20_261_130;
  const random = (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: READERS }, () => {
    const away = 1 + random(AWAY);
    const drop = 1 + random(CHUNKS - away);
    return { drop, back: drop + away };
  });
}

/** Frames with a sequence: [sequence, the frame's text]. */
const numbered = (stream) => stream.read().flatMap(({ text }) => {
  const id = field(text, 'id');
  return id ? [[Number(id), text]] : [];
});

/** Ours: one request from the cursor. */
async function resumeOurs(origin, session, cursor) {
  const live = await Stream.open(origin, 'GET', `/sessions/${session}/sse?fromSequence=${cursor}`);
  const caughtUp = () => live.read().find(({ text }) => text.startsWith('event: caught-up')).at;
  // The comment that opens it, the rest of the log, and between them the end of history.
  return { live, caughtUp, frames: () => numbered(live), until: (last) => live.until(2 + last - cursor) };
}

/** The baseline knows no cursor: subscribe, then read the log from its start, and let the client drop what it has. */
async function resumeJsdo(origin, session, cursor) {
  const live = await Stream.open(origin, 'GET', `/sub?s=${session}`);
  await live.until(1);
  const replay = await Stream.open(origin, 'GET', `/replaybatch?n=1000000&s=${session}`);
  const at = await replay.ended;
  const joined = replay.frames;
  const frames = () => [
    ...numbered(replay).filter(([sequence]) => sequence > cursor), ...numbered(live).filter(([sequence]) => sequence > joined),
  ];
  return {
    live, caughtUp: () => at, frames,
    async until(last) {
      while (joined < last && (numbered(live).at(-1)?.[0] ?? 0) < last) await live.until(live.frames + 1);
    },
  };
}

/** Nobody has a gap, a repeat or another text than the others; the texts carry what was appended. Gives the times to caught-up. */
async function times(name, subject, session, readers, sent) {
  const stored = await subject.stored(session);
  must(stored.length === sent.length && stored.every(([, payload], index) => payload === sent[index]), `${name}: not what was appended is stored`);
  const payloads = new Map(stored);
  const texts = [];
  return readers.map(({ first, second, asked }) => {
    const got = [...numbered(first), ...second.frames()];
    got.forEach(([sequence, text], index) => {
      must(sequence === index + 1, `${name}: sequence ${sequence} at ${index + 1}`);
      texts[index] ??= text;
      must(text === texts[index] && text.includes(payloads.get(sequence) ?? ''), `${name}: sequence ${sequence} is ${text}`);
    });
    must(got.length === stored.at(-1)[0], `${name}: ${got.length} of ${stored.at(-1)[0]} chunks`);
    second.live.close();
    return second.caughtUp() - asked;
  });
}

export async function resume({ origins, baseline }) {
  const plan = points();
  const measure = (name, subject, again) => async (round) => {
    const session = `resume-${name}-${round}`;
    await subject.open(session);
    const readers = [];
    while (readers.length < READERS) {
      const some = plan.slice(readers.length, readers.length + 25);
      readers.push(...await Promise.all(some.map(async (point) => ({ ...point, first: await subject.follow(session) }))));
    }
    // Whatever came at the start has come.
    await sleep(50);
    const waiting = new Map(readers.map((reader) => [reader, Promise.withResolvers()]));
    const visits = readers.map(async (reader) => {
      await reader.first.until(reader.first.frames + reader.drop, 120_000);
      reader.first.close();
      const cursor = numbered(reader.first).at(-1)[0];
      await waiting.get(reader).promise;
      reader.asked = now();
      reader.second = await again(session, cursor);
    });
    visits.forEach((visit) => visit.catch(() => {}));
    const sent = [];
    let last;
    const began = now();
    while (sent.length < CHUNKS) {
      const wait = began + sent.length * PACE_MS - now();
      if (wait > 0) await sleep(wait);
      sent.push(String(sent.length).padEnd(64, 'x'));
      last = await subject.append(session, sent.at(-1));
      for (const reader of readers) if (reader.back === sent.length) waiting.get(reader).resolve();
    }
    await Promise.all(visits);
    const ms = now() - began;
    for (const { second } of readers) await second.until(last);
    const waits = await times(name, subject, session, readers, sent);
    return { p50: quantile(waits, 0.5), p99: quantile(waits, 0.99), rate: (CHUNKS / ms) * 1000 };
  };
  const got = await interleave(ROUNDS, {
    ours: measure('ours', ours(origins.followed), (session, cursor) => resumeOurs(origins.followed, session, cursor)),
    jsdo: measure('jsdo', jsdo(baseline), (session, cursor) => resumeJsdo(baseline, session, cursor)),
  });
  const of = (name, key) => got[name].map((round) => round[key]);
  const name = `${READERS} readers drop and resume, time to caught-up`;
  return {
    figures: [
      { name: `${name}, p99: ours / jsdo`, budget: '<= 1.0', ...ratio(of('ours', 'p99'), of('jsdo', 'p99')) },
      { name: `${name}, p50: ours / jsdo`, ...ratio(of('ours', 'p50'), of('jsdo', 'p50')) },
    ],
    log: Object.fromEntries(Object.keys(got).flatMap((subject) => [
      [`${subject} p50 ms`, spread(of(subject, 'p50'))], [`${subject} p99 ms`, spread(of(subject, 'p99'))], [`${subject} chunks/s`, spread(of(subject, 'rate'))],
    ])),
  };
}
