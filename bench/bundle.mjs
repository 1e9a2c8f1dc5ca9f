// What is uploaded, and what the first request of a new object costs.

import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';

import { askOk, now } from './client.mjs';
import { interleave, median, ratio, spread } from './stats.mjs';
import { send } from './subjects.mjs';
import { ROOT } from './workerd.mjs';

const ROUNDS = 5;
const OBJECTS = 30;

export async function bundle({ origins, baseline }) {
  const files = ['index.js', 'index_bg.wasm'].map((file) => fs.readFileSync(path.join(ROOT, 'build', file)));
  const whole = Buffer.concat(files);
  const measure = (name, request) => async (round) => {
    const times = [];
    for (let object = -5; object < OBJECTS; object++) {
      const began = now();
      await request(`new-${name}-${round}-${object}`);
      if (object >= 0) times.push(now() - began);
    }
    return median(times);
  };
  const got = await interleave(ROUNDS, {
    ours: measure('read', (session) => askOk(origins.followed, 'GET', `/sessions/${session}/info`)),
    jsdo: measure('noop', (session) => askOk(baseline, 'GET', `/noop?s=${session}`)),
    'ours, first send': measure('send', async (session) => {
      const stream = await send(origins.followed, session, 'quiet');
      await stream.until(1);
      stream.close();
    }),
    'jsdo, first append': measure('append', (session) => askOk(baseline, 'POST', `/append?s=${session}`, 'x'.repeat(64))),
  });
  return {
    figures: [
      { name: 'bundle, gzipped', unit: 'kB', budget: '<= 300', value: zlib.gzipSync(whole, { level: 9 }).length / 1000 },
      { name: 'bundle, raw', unit: 'kB', value: whole.length / 1000 },
      { name: 'first request of a new object: ours / jsdo', budget: '<= 1.6', ...ratio(got.ours, got.jsdo) },
      { name: 'first write of a new object, a chat send / an append: ours / jsdo', ...ratio(got['ours, first send'], got['jsdo, first append']) },
    ],
    log: Object.fromEntries(Object.entries(got).map(([name, rounds]) => [`${name} ms`, spread(rounds)])),
  };
}
