// How fast a producer outside gets its chunks in: one NDJSON body against one POST per chunk.

import { ask, askOk, must } from './client.mjs';
import { interleave, ratio, spread } from './stats.mjs';

const ROUNDS = 5;
const POSTS = 300;
const LINES = 20_000;

const chunk = (index) => ({ type: 'data-ingest', data: String(index).padEnd(64, 'x'), transient: true });

export async function ingest({ origins }) {
  const origin = origins.followed;
  const measure = (name, send, count) => async (round) => {
    const runs = `/sessions/ingest-${name}-${round}/runs`;
    const opened = await ask(origin, 'POST', runs, JSON.stringify({ runId: 'r', vocabulary: 'ui' }));
    must(opened.status === 201, `opening: ${opened.status} ${opened.text}`);
    const began = performance.now();
    await send(`${runs}/r/chunks`, count);
    const ms = performance.now() - began;
    const page = JSON.parse(await askOk(origin, 'GET', `/sessions/ingest-${name}-${round}/info`));
    must(page.head === count + 2, `${name}: ${page.head - 2} chunks stored of ${count}`);
    return (count / ms) * 1000;
  };
  const headers = (seq, type) => ({ 'producer-epoch': '1', 'producer-seq': String(seq), 'content-type': type });
  const posts = async (path, count) => {
    for (let at = 0; at < count; at++) await askOk(origin, 'POST', path, JSON.stringify([chunk(at)]), headers(at, 'application/json'));
  };
  const body = async (path, count) => {
    const lines = Array.from({ length: count }, (_, at) => `${JSON.stringify(chunk(at))}\n`).join('');
    const answer = JSON.parse(await askOk(origin, 'POST', path, lines, headers(0, 'application/x-ndjson')));
    must(answer.expected === count, `the body: ${answer.expected} numbers taken`);
  };
  const got = await interleave(ROUNDS, { body: measure('body', body, LINES), posts: measure('posts', posts, POSTS) });
  return {
    figures: [{ name: 'chunks ingested per second: one streamed body / one POST per chunk', budget: '>= 15', ...ratio(got.body, got.posts) }],
    log: { 'one body, chunks/s': spread(got.body), 'one POST each, chunks/s': spread(got.posts) },
  };
}
