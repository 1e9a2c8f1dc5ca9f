// Preloaded into wrangler: when the launcher is gone, however it ended, the whole process group goes too.

import net from 'node:net';

const tether = new net.Socket({ fd: 3, readable: true, writable: false });
tether.on('error', () => {});
tether.on('close', () => process.kill(-process.pid, 'SIGKILL'));
tether.resume();
tether.unref();
