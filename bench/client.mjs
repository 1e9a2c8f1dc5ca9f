// The measuring client: requests over kept connections, and readers that note when bytes came and look at them only afterwards.

import http from 'node:http';

/** What was measured is not what was asked for: the figure does not count. */
export class Incorrect extends Error {}

export function must(condition, words) {
  if (!condition) throw new Incorrect(words);
}

/** Microseconds would do; milliseconds as floating point are handier. */
export const now = () => performance.now();

const kept = new http.Agent({ keepAlive: true, maxSockets: 64 });

/** One request, its whole answer as text. */
export function ask(origin, method, path, body, headers) {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    const request = http.request({ hostname, port, path, method, headers, agent: kept }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode, text: Buffer.concat(parts).toString() }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

export async function askOk(origin, method, path, body, headers) {
  const answer = await ask(origin, method, path, body, headers);
  must(answer.status === 200, `${method} ${path}: ${answer.status} ${answer.text.slice(0, 200)}`);
  return answer.text;
}

/** An open response on a connection of its own. Counts frames as they come; keeps the bytes for later. */
export class Stream {
  frames = 0;
  bytes = 0;
  parts = [];
  /** Of each piece of the body: when it came, and how many frames were complete with it. */
  arrivals = [];
  #half = false;
  #waiting = [];
  #failure = null;

  static open(origin, method, path, body, headers) {
    const { hostname, port } = new URL(origin);
    return new Promise((resolve, reject) => {
      const request = http.request({ hostname, port, path, method, headers, agent: false }, (response) => {
        if (response.statusCode !== 200) {
          response.resume();
          request.destroy();
          reject(new Incorrect(`${method} ${path}: ${response.statusCode}`));
          return;
        }
        resolve(new Stream(request, response));
      });
      request.on('error', reject);
      request.end(body);
    });
  }

  constructor(request, response) {
    this.request = request;
    this.response = response;
    this.ended = new Promise((resolve, reject) => {
      response.on('end', () => { this.#settle(null); resolve(now()); });
      response.on('error', (error) => { this.#settle(error); reject(error); });
    });
    this.ended.catch(() => {});
    request.on('error', () => {});
    response.on('data', (part) => this.#take(part));
  }

  #take(part) {
    const at = now();
    this.parts.push(part);
    this.bytes += part.length;
    let from = 0;
    if (this.#half && part[0] === 10) { this.frames++; from = 1; }
    for (let found; (found = part.indexOf('\n\n', from)) >= 0; from = found + 2) this.frames++;
    this.#half = from < part.length && part[part.length - 1] === 10;
    this.arrivals.push([at, this.frames]);
    if (this.#waiting.length) this.#wake();
  }

  #wake() {
    this.#waiting = this.#waiting.filter((wait) => {
      if (this.frames < wait.frames) return true;
      wait.resolve();
      return false;
    });
  }

  #settle(error) {
    this.#failure = error ?? new Error('the response ended');
    this.#wake();
    this.#waiting.forEach((wait) => wait.reject(this.#failure));
    this.#waiting = [];
  }

  /** Until so many frames have come, of all that ever came. */
  async until(frames, timeoutMs = 20_000) {
    if (this.frames >= frames) return;
    if (this.#failure) throw this.#failure;
    let timer;
    await new Promise((resolve, reject) => {
      this.#waiting.push({ frames, resolve, reject });
      timer = setTimeout(() => reject(new Incorrect(`only ${this.frames} of ${frames} frames came`)), timeoutMs);
    }).finally(() => clearTimeout(timer));
  }

  /** The frames' texts, each with the moment at which it was complete. */
  read() {
    const texts = Buffer.concat(this.parts).toString().split('\n\n');
    texts.pop();
    let arrival = 0;
    return texts.map((text, index) => {
      while (this.arrivals[arrival][1] <= index) arrival++;
      return { text, at: this.arrivals[arrival][0] };
    });
  }

  /**
   * The bytes that came since the last `take`, and when the last of them came. They are kept no longer, so that
   * megabytes can flow; `read` is for streams that nothing was taken from.
   */
  take() {
    const taken = { bytes: Buffer.concat(this.parts), at: this.arrivals.at(-1)?.[0] };
    this.parts = [];
    this.arrivals = [];
    return taken;
  }

  /** Stops reading: the buffers on the way fill, then the server's. */
  stall() {
    this.response.pause();
    this.request.socket.pause();
  }

  unstall() {
    this.request.socket.resume();
    this.response.resume();
  }

  close() {
    this.request.destroy();
  }
}

/** Requests, `width` at a time, for `ms`. `work(index)` makes one. Gives how many were made, and the time that they took. */
export async function load(ms, width, work) {
  let count = 0;
  const began = now();
  await Promise.all(Array.from({ length: width }, async () => {
    while (now() - began < ms) await work(count++);
  }));
  return { count, ms: now() - began };
}
