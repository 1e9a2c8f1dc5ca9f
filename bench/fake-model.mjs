// A chat-completions API that says so many tokens at a fixed pace; each carries the moment at which it was sent.

import http from 'node:http';
import { now } from './client.mjs';

/** The user's message says what to stream: `tokens every ms`. The schedule does not drift. */
export async function startModel() {
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const asked = /(\d+) tokens every (\d+) ms/.exec(Buffer.concat(parts).toString());
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      stream(response, Number(asked[1]), Number(asked[2]));
    });
  });
  server.keepAliveTimeout = 60_000;
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { origin: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

function stream(response, tokens, pace) {
  const chunk = (delta, finish = null) => response.write(`data: ${JSON.stringify({
    id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 0, model: 'fake', choices: [{ index: 0, delta, finish_reason: finish }],
  })}\n\n`);
  response.on('close', () => clearTimeout(timer));
  response.socket.setNoDelay(true);
  chunk({ role: 'assistant', content: '' });
  const began = now();
  let said = 0;
  const say = () => {
    chunk({ content: `<${said}@${now().toFixed(3)}>` });
    said += 1;
    if (said < tokens) { timer = setTimeout(say, Math.max(0, began + pace * (said + 1) - now())); return; }
    chunk({}, 'stop');
    response.end('data: [DONE]\n\n');
  };
  let timer = setTimeout(say, pace);
}
