// Memory of a running server, as the system counts them.
import { readFileSync, readdirSync, readlinkSync } from 'node:fs'

/** Whether this system says what processes hold. */
export const countsMemory = process.platform === 'linux'

/** Resident bytes of the process that runs the objects of a server: the one that has their storage open. (Another is wrangler's proxy.) */
export function residentBytes(server) {
  const pid = readdirSync('/proc').find((entry) => /^\d+$/.test(entry) && holds(entry, server.state))
  return 1024 * Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1])
}

function holds(pid, folder) {
  const open = lookAt(`/proc/${pid}/fd`, (path) => readdirSync(path)) ?? []
  return open.some((fd) => lookAt(`/proc/${pid}/fd/${fd}`, (path) => readlinkSync(path))?.startsWith(`${folder}/`))
}

/** What a look at `path` gives; undefined where it is gone by now, or not ours to see. */
function lookAt(path, look) {
  try {
    return look(path)
  } catch {
    return undefined
  }
}
