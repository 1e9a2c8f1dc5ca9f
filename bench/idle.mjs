// What readers that only wait cost in memory, and whether readers that came and went leave something behind.

import { must, now } from './client.mjs';
import { settled, slope } from './memory.mjs';
import { interleave, ratio, scaled, spread } from './stats.mjs';
import { jsdo, ours } from './subjects.mjs';

const ROUNDS = 3;
const READERS = scaled(1_000);
// The collector takes its time: so many readers must have come and gone before memory is what it stays at, 40,000 cycles on.
const WARM = scaled(16_000);
const CYCLES = scaled(10_000);
const WIDTH = 100;
// Bytes per cycle.
const NOISE = 2_048;

/** All of them wait: what was appended before is not read. */
async function openAll(subject, session, count) {
  const head = await subject.append(session, 'before');
  const streams = [];
  while (streams.length < count) {
    streams.push(...await Promise.all(Array.from({ length: Math.min(WIDTH, count - streams.length) }, () => subject.follow(session, head))));
  }
  return streams;
}

/** Opens and closes so many readers, a few at a time, and waits until the server knows that they are gone. */
async function cycle(subject, session, count) {
  for (let done = 0; done < count; done += WIDTH) {
    (await openAll(subject, session, Math.min(WIDTH, count - done))).forEach((stream) => stream.close());
    await subject.untilReaders(session, 0);
  }
}

export async function idle(bench) {
  const subjects = {
    ours: () => [ours(bench.origins.followed), bench.pids.ours],
    jsdo: () => [jsdo(bench.baseline), bench.pids.baseline],
  };
  const memory = (name) => async (round) => {
    // What a process has once had from the system it seldom gives back: every round has processes of its own.
    await bench.restart();
    const [subject, pid] = subjects[name]();
    const session = `idle-${name}-${round}`;
    await subject.open(session);
    // Not measured: compilation, and what the first readers bring with them.
    await cycle(subject, session, 2 * WIDTH);
    const before = await settled(pid);
    const streams = await openAll(subject, session, READERS);
    const held = await settled(pid) - before;
    const at = streams.map((stream) => stream.frames);
    const sent = ['one', 'two'];
    for (const text of sent) await subject.append(session, text);
    await Promise.all(streams.map((stream, index) => stream.until(at[index] + sent.length)));
    streams.forEach((stream) => stream.close());
    for (const stream of streams) {
      const last = stream.read().slice(-sent.length);
      must(sent.every((text, index) => last[index].text.includes(text)), `${name}: an idle reader was given ${JSON.stringify(last)}`);
    }
    return held / READERS;
  };
  const got = await interleave(ROUNDS, { ours: memory('ours'), jsdo: memory('jsdo') });

  await bench.restart();
  const [subject, pid] = subjects.ours();
  await subject.open('cycles');
  await cycle(subject, 'cycles', WARM);
  const points = [];
  const began = now();
  for (let done = 0; done <= CYCLES; done += CYCLES / 10) {
    if (done > 0) await cycle(subject, 'cycles', CYCLES / 10);
    points.push([done, await settled(pid)]);
  }
  const rate = CYCLES / ((now() - began) / 1000);
  const kb = (values) => values.map((value) => value / 1000);
  return {
    figures: [
      { name: `memory of ${READERS} idle readers: ours / jsdo`, budget: '<= 1.3', ...ratio(got.ours, got.jsdo) },
      // Pages of a heap that the collector has not looked at yet are megabytes either way: less than this is noise.
      { name: `memory left per open-and-close, ${CYCLES} cycles`, unit: 'B', budget: `<= ${NOISE}`, value: slope(points) },
    ],
    log: {
      'ours kB per reader': spread(kb(got.ours)), 'jsdo kB per reader': spread(kb(got.jsdo)),
      'cycles/s': rate, 'MB after each tenth of the cycles': points.map(([, bytes]) => Math.round(bytes / 1e5) / 10),
    },
  };
}
