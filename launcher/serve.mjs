// `make run`: serves the built Worker in the foreground until SIGTERM, Ctrl-C or the end of its parent.
//
// PORT (8787), HOST (127.0.0.1), STATE (.state in the project), ENV_FILE (none), LOG_LEVEL (warn; `log` shows the Worker's console).
// Relative paths start where `make` was called.

import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { ROOT, startServer } from './server.mjs';

export { startServer };

async function main() {
  const { PORT, HOST, STATE, ENV_FILE, LOG_LEVEL, REJOIN_CALLER } = process.env;
  const from = (file) => path.resolve(REJOIN_CALLER || process.cwd(), file);
  const port = PORT ? Number(PORT) : 8787;
  if (!Number.isInteger(port) || port < 1 || port > 65535) throw new Error(`PORT is '${PORT}'; say a number from 1 to 65535`);

  let server;
  let ending = false;
  const end = async (code) => {
    if (ending) return;
    ending = true;
    // Still starting: the exit handler ends the group.
    if (server) await server.stop();
    process.exit(code);
  };
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => end(0));
  followParent(() => end(1));

  server = await startServer({
    port,
    host: HOST || undefined,
    state: STATE ? from(STATE) : path.join(ROOT, '.state'),
    envFile: ENV_FILE ? from(ENV_FILE) : undefined,
    logLevel: LOG_LEVEL || 'warn',
    onOutput: (text) => process.stderr.write(text),
  });
  console.log(`Rejoin serves on ${server.origin}`);

  const how = await server.exited;
  if (!ending) {
    console.error(`wrangler ${how}`);
    process.exit(1);
  }
}

// Make was killed without a word: nobody could end this server any more.
function followParent(orphaned) {
  if (!process.env.REJOIN_FOLLOW_PARENT) return;
  const parent = process.ppid;
  setInterval(() => process.ppid !== parent && orphaned(), 500).unref();
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  main().catch((error) => {
    console.error(`✗ ${error.message}`);
    process.exit(1);
  });
}
