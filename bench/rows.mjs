// Rows written per run of 1,000 chunks at 50 a second, as the storage itself counts them, alarms included.

import { must, now } from './client.mjs';
import { request, tokens } from './model.mjs';
import { info, send, storedChunks, untilInfo } from './subjects.mjs';

const TOKENS = 1_000;
const PACE_MS = 20;

export async function rows({ origins }) {
  const run = async (origin, name, followed) => {
    const session = `rows-${name}`;
    const before = (await info(origin, session)).rowsWritten ?? 0;
    const began = now();
    const stream = await send(origin, session, 'model', request(TOKENS, PACE_MS));
    if (followed) {
      await stream.ended;
      tokens(stream, TOKENS);
    } else {
      stream.close();
    }
    const after = await untilInfo(origin, session, (seen) => seen.runStatus !== 'running', TOKENS * PACE_MS * 2);
    must(after.runStatus === 'completed', `${session} is ${after.runStatus}`);
    const chunks = await storedChunks(origin, session);
    chunks.forEach(([sequence], index) => must(sequence === index + 1, `${session}: ${sequence} at ${index + 1}`));
    must(chunks.filter(([, chunk]) => chunk.type === 'text-delta').length === TOKENS, `${session}: not every token is stored`);
    return { rows: after.rowsWritten - before, seconds: (now() - began) / 1000, chunks: chunks.length };
  };
  const [wait50, wait250, alone] = await Promise.all([
    run(origins.followed, 'followed', true), run(origins.patient, 'patient', true), run(origins.followed, 'alone', false),
  ]);
  return {
    figures: [
      { name: 'rows per 1,000 chunks at 50/s, followed, BATCH_WAIT_MS 50', budget: '<= 430', value: wait50.rows },
      { name: 'rows per 1,000 chunks at 50/s, followed, BATCH_WAIT_MS 250', budget: '<= 100', value: wait250.rows },
      { name: 'rows per 1,000 chunks at 50/s, nobody follows', value: alone.rows },
    ],
    log: { wait50, wait250, alone },
  };
}
