// Messages of the set-up scripts on stderr; on a terminal, progress rewrites one line.
import { spawn, spawnSync } from 'node:child_process'

/** An error whose message is printed without a stack. */
export class SetupError extends Error {}

export function reporter({ quiet = false } = {}) {
  const terminal = process.stderr.isTTY && !quiet
  let open = false
  let last = 0
  const say = (text) => {
    if (quiet) return
    process.stderr.write(`${open ? '\r\x1b[K' : ''}${text}\n`)
    open = false
  }
  // a terminal sees every change; a log file sees at most one line in five seconds
  const tick = (text) => {
    if (quiet || (!terminal && Date.now() - last < 5000)) return
    last = Date.now()
    process.stderr.write(terminal ? `\r\x1b[K${text}` : `${text}\n`)
    open = terminal
  }
  return { say, tick }
}

export const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(1)} s`

/** Runs a program and waits for it; if it does not exist, status is null and error is set. */
export function capture(program, args, options = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', timeout: 20_000, ...options })
  return { ok: status === 0, status, stdout: stdout ?? '', stderr: stderr ?? '', error }
}

/** Runs a program without blocking; gives its exit status and everything it printed. */
export function runAsync(program, args, { onData, stdio, ...options } = {}) {
  return new Promise((done, fail) => {
    const child = spawn(program, args, { stdio: stdio ?? ['ignore', 'pipe', 'pipe'], ...options })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (output += chunk))
    if (onData) child.stdio[3]?.on('data', (chunk) => onData(String(chunk)))
    child.on('error', fail)
    child.on('close', (status, signal) => done({ ok: status === 0, status, signal, output }))
  })
}

/** Runs a script's main function; a SetupError ends it with one message and status 1. */
export async function main(body) {
  try {
    process.exitCode = (await body()) ?? 0
  } catch (error) {
    if (!(error instanceof SetupError)) throw error
    process.stderr.write(`${error.message}\n`)
    process.exitCode = 1
  }
}
