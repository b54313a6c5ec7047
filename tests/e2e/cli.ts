// The command line as a user has it: real processes, real files.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

export const program = fileURLToPath(new URL('../../bin/roundtrip.mjs', import.meta.url))

export interface Outcome {
  code: number | null
  out: string
  err: string
}

export interface Started {
  pid: number
  /** Resolves when standard error has matched, or the process has ended. */
  seen(pattern: RegExp): Promise<void>
  signal(name: NodeJS.Signals): void
  ended: Promise<Outcome>
}

export function start(...args: readonly string[]): Started {
  return startProgram(process.execPath, program, ...args)
}

export function startProgram(path: string, ...args: readonly string[]): Started {
  const child = spawn(path, args, {
    env: { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const outcome: Outcome = { code: null, out: '', err: '' }
  const waiting: { pattern: RegExp; done: () => void }[] = []
  const tell = () => {
    for (const { pattern, done } of waiting) if (pattern.test(outcome.err)) done()
  }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    outcome.out += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    outcome.err += text
    tell()
  })
  const ended = new Promise<Outcome>((done) => {
    child.on('close', (code) => {
      for (const w of waiting) w.done()
      done({ ...outcome, code })
    })
  })
  return {
    pid: child.pid!,
    ended,
    seen: (pattern) =>
      new Promise((done) => {
        waiting.push({ pattern, done })
        tell()
      }),
    signal: (name) => void child.kill(name),
  }
}

export function roundtrip(...args: readonly string[]): Promise<Outcome> {
  return start(...args).ended
}
