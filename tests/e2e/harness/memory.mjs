// Memory of a running server, as the system counts them.
import { readFileSync, readdirSync } from 'node:fs'

/** Whether this system says what processes hold. */
export const countsMemory = process.platform === 'linux'

/** Resident bytes of the workerd processes of a server: its process group's. */
export function residentBytes(server) {
  const workerds = readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && isOurs(pid, server.pid))
  return workerds.reduce((sum, pid) => sum + 1024 * Number(/^VmRSS:\s+(\d+) kB/m.exec(read(`/proc/${pid}/status`))?.[1] ?? 0), 0)
}

function isOurs(pid, group) {
  // "PID (NAME) STATE PPID PGRP …"
  const [name, rest] = read(`/proc/${pid}/stat`).split(') ')
  return name.endsWith('(workerd') && Number(rest.split(' ')[2]) === group
}

function read(file) {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
