// Memory of a server from outside, as the system counts it.

import fs from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const MEGABYTE = 1e6;

/** Resident bytes of a process now. */
export function resident(pid) {
  const kibibytes = /^VmRSS:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(kibibytes[1]) * 1024;
}

/** Resident bytes once they have stopped falling: what a collector takes back soon is not what is held. */
export async function settled(pid) {
  let least = resident(pid);
  for (let looks = 0; looks < 10; looks++) {
    await sleep(50);
    const seen = resident(pid);
    if (seen < least - MEGABYTE / 4) looks = 0;
    least = Math.min(least, seen);
  }
  return least;
}

/** Watches a process until `stop()`, which gives the most that it held above what it held at the start. */
export function watch(pid) {
  const before = resident(pid);
  let most = before;
  const look = () => { most = Math.max(most, resident(pid)); };
  const timer = setInterval(look, 20);
  return {
    stop() {
      clearInterval(timer);
      look();
      return most - before;
    },
  };
}

/** Bytes per step of the straight line through `[step, bytes]`. */
export function slope(points) {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [x, y] = [mean(points.map(([step]) => step)), mean(points.map(([, bytes]) => bytes))];
  const above = points.reduce((sum, [step, bytes]) => sum + (step - x) * (bytes - y), 0);
  return above / points.reduce((sum, [step]) => sum + (step - x) ** 2, 0);
}
