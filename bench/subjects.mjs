// Ours and the baseline behind one face, so that a measure treats them alike.

import { ask, askOk, must, now, Stream } from './client.mjs';

export const AGENTS = (modelOrigin) => ({
  // Starts a run and then says nothing for a minute: what is appended comes from the bench.
  quiet: { producer: 'demo', paceMs: 60_000 },
  bulk: { producer: 'demo', paceMs: 0, deltas: 50_000, deltaBytes: 64 },
  model: { producer: 'openai', model: 'fake', baseUrl: `${modelOrigin}/v1` },
});

const JSON_HEADERS = { 'content-type': 'application/json' };

export const chatBody = (agent, text, id = 'u1') =>
  JSON.stringify({ agent, messages: [{ id, role: 'user', parts: [{ type: 'text', text }] }] });

/** `id`: the message's own; a session takes each once. */
export const send = (origin, session, agent, text = 'go', id = 'u1') =>
  Stream.open(origin, 'POST', `/api/chat/${session}`, chatBody(agent, text, id), JSON_HEADERS);

export const info = async (origin, session) => JSON.parse(await askOk(origin, 'GET', `/sessions/${session}/info`));

/** Waits until `test` of the session's info holds. */
export async function untilInfo(origin, session, test, timeoutMs = 30_000) {
  const end = now() + timeoutMs;
  for (;;) {
    const seen = await info(origin, session);
    if (await test(seen)) return seen;
    must(now() < end, `${session} is still ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Chunks stored by ours, as [sequence, chunk]. */
export async function storedChunks(origin, session) {
  const chunks = [];
  for (let from = 0, head = 1; from < head;) {
    const page = JSON.parse(await askOk(origin, 'GET', `/sessions/${session}/chunks?fromSequence=${from}`));
    must(page.chunks.length > 0, `${session}: an empty page after ${from}`);
    chunks.push(...page.chunks.map(({ sequence, chunk }) => [sequence, chunk]));
    from = chunks.at(-1)[0];
    head = page.head;
  }
  return chunks;
}

export const field = (text, name) => text.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);

// What was appended before anything was measured.
const WARM = 'warm';
const isBench = (chunk) => chunk.type === 'data-bench' && chunk.data !== WARM;

/** Ours: appends go to a live run through the test seam. `dialect` is `sse` or `chat`. */
export function ours(origin, dialect = 'sse') {
  return {
    /** `id`: of the message that starts the run; a session that has had one needs another. */
    async open(session, id) {
      const starter = await send(origin, session, 'quiet', 'go', id);
      await untilInfo(origin, session, (seen) => seen.runStatus === 'running');
      starter.close();
      await this.untilReaders(session, 0);
    },
    async append(session, text) {
      return JSON.parse(await askOk(origin, 'POST', `/sessions/${session}/__seam/x?name=append`, text)).sequence;
    },
    /** So many chunks of the same text, in one request. */
    bulk: (session, text, count) => askOk(origin, 'POST', `/sessions/${session}/__seam/x?name=append&count=${count}`, text),
    /** Waits until the server counts so many. A client that has left is noticed by writing to it, in ours as in every Worker. */
    untilReaders(session, count) {
      return untilInfo(origin, session, async (seen) => seen.readers === count || (await this.append(session, WARM), false));
    },
    /** `from`: a cursor, on `/sse` only; the head for a reader that is to wait at once. */
    async follow(session, from = 0) {
      const path = dialect === 'sse' ? `/sessions/${session}/sse?fromSequence=${from}` : `/api/chat/${session}/stream`;
      const stream = await Stream.open(origin, 'GET', path);
      // The comment that opens it, then what the run's start wrote.
      await stream.until(2);
      return stream;
    },
    /** What a reader was given: [sequence, payload, moment]. Throws when a sequence is missing or comes twice. */
    read(stream) {
      let last = 0;
      return stream.read().flatMap(({ text, at }) => {
        const id = field(text, 'id');
        if (!id) return [];
        const sequence = Number(id);
        // The chat dialect leaves the log's bookkeeping out, before the first chunk of ours only.
        must(dialect === 'sse' ? sequence === last + 1 : sequence > last, `after ${last} came ${sequence}`);
        last = sequence;
        const data = JSON.parse(field(text, 'data'));
        const chunk = dialect === 'sse' ? data.chunk : data;
        return isBench(chunk) ? [[sequence, chunk.data, at]] : [];
      });
    },
    async stored(session) {
      const chunks = await storedChunks(origin, session);
      chunks.forEach(([sequence], index) => must(sequence === index + 1, `stored ${sequence} at ${index + 1}`));
      return chunks.filter(([, chunk]) => isBench(chunk)).map(([sequence, chunk]) => [sequence, chunk.data]);
    },
  };
}

/** The baseline, bench/w.js. */
export function jsdo(origin) {
  const read = (frames) => frames.flatMap(({ text, at }) => (field(text, 'id') ? [[Number(field(text, 'id')), field(text, 'data'), at]] : []));
  return {
    async open(session) {
      await askOk(origin, 'GET', `/noop?s=${session}`);
    },
    async append(session, text) {
      return Number(await askOk(origin, 'POST', `/append?s=${session}`, text));
    },
    bulk: (session, text, count) => askOk(origin, 'POST', `/bulk?s=${session}&n=${count}&size=${text.length}`),
    async untilReaders(session, count) {
      for (const end = now() + 30_000; Number(await askOk(origin, 'GET', `/subs?s=${session}`)) !== count;) {
        must(now() < end, `${session} does not come to ${count} readers`);
        await this.append(session, WARM);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    async follow(session) {
      const stream = await Stream.open(origin, 'GET', `/sub?s=${session}`);
      await stream.until(1);
      return stream;
    },
    read(stream) {
      const got = read(stream.read());
      got.forEach(([sequence], index) => must(sequence === index + 1, `sequence ${sequence} at ${index + 1}`));
      return got;
    },
    async stored(session) {
      const { text } = await ask(origin, 'GET', `/replaybatch?n=1000000&s=${session}`);
      return read(text.split('\n\n').map((frame) => ({ text: frame })));
    },
  };
}

/** Every payload arrived once, in the order in which it was sent. */
export function mustEqual(got, sent, where) {
  must(got.length === sent.length, `${where}: ${got.length} of ${sent.length} payloads`);
  got.forEach(([, payload], index) => must(payload === sent[index], `${where}: payload ${index} is ${payload}, not ${sent[index]}`));
}
