// Processes that are killed at random moments and started again until they get through.
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { RandomStream } from '../../src/core/index.ts'
import { ranksOf } from '../support/launched.ts'
import { ownProgram } from '../support/own-program.ts'
import type { Held } from './flat.ts'

const program = fileURLToPath(new URL('../../bin/roundtrip.mjs', import.meta.url))

/**
 * Arguments of Node that run work.ts. V8 doubles its young generation after some hundred steps, in Node 24 up to twice 64 MiB, although
 * the run does not use it. With a fixed size, growth of memory is growth of the run.
 */
export const work = [
  '--min-semi-space-size=16',
  '--max-semi-space-size=16',
  ...ownProgram('./work.ts', import.meta.url),
]

export interface Life {
  /** The signal hit a living process. */
  killed: boolean
  /** It got to its end, by itself or started again by its launcher. */
  through: boolean
  held: Held[]
  out: string
  seconds: number
}

/** Kills `after` milliseconds after the given line of the output; after the start for line 0. */
interface Kill {
  line: number
  after: number
  /** One of the processes that it has launched, instead of itself. */
  rank?: number
}

/** The launched process, or the launcher where that one does not live yet or any more. */
function strike(child: ChildProcess, rank: number | undefined): void {
  try {
    process.kill(ranksOf(child.pid!).get(rank!)!, 'SIGKILL')
  } catch {
    child.kill('SIGKILL')
  }
}

async function live(args: readonly string[], cwd: string, kill: Kill | null): Promise<Life> {
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  const child = spawn(process.execPath, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const from = performance.now()
  let [out, err] = ['', '']
  let timer: NodeJS.Timeout | undefined
  const look = () => {
    if (kill && out.split('\n').length > kill.line) timer ??= setTimeout(() => strike(child, kill.rank), kill.after)
  }
  look()
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text
    look()
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text
  })
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((done) => {
    child.on('exit', () => clearTimeout(timer))
    child.on('close', (...end) => done(end))
  })
  const killed = signal === 'SIGKILL' || /rank \d ended by SIGKILL/.test(err)
  if (signal !== 'SIGKILL' && code !== 0) throw new Error(`ended with ${code ?? signal}: ${err.slice(-500)}`)
  const lines = out.split('\n').filter((line) => line.startsWith('{"step"'))
  const held = lines.map((line) => JSON.parse(line) as Held)
  return { killed, through: code === 0, held, out, seconds: (performance.now() - from) / 1000 }
}

/** A command line that can be started again. */
export interface Program {
  args: readonly string[]
  cwd: string
}

export const command = (args: readonly string[], cwd: string): Program => ({ args: [program, ...args], cwd })

/** A run in one process that says each step. */
export const worker = (args: readonly string[], cwd: string): Program => ({
  args: [...work, ...args],
  cwd,
})

export const undisturbed = ({ args, cwd }: Program) => live(args, cwd, null)

/** Where kills fall, learned from the undisturbed run. */
export interface Moments {
  /** Seconds of the whole, over which kills fall that wait for no line. */
  seconds: number
  /** Lines that a life may say before it is killed. */
  lines: number
  lineSeconds: number
  /** Processes that it launches. */
  ranks: number
}

function kill(random: RandomStream, { seconds, lines, lineSeconds, ranks }: Moments): Kill {
  const line = random.below(lines)
  const after = 1000 * random.uniform() * (line === 0 ? seconds : lineSeconds)
  const victim = random.below(ranks + 1)
  return { line, after, ...(victim > 0 && { rank: victim - 1 }) }
}

/** Kills that are still due. Late kills are not counted; too many of them end the test. */
export class Kills {
  readonly wanted: number
  made = 0
  #asked = 0
  #late = 0

  constructor(wanted: number) {
    this.wanted = wanted
  }

  /** Some kills are still due. */
  get open(): boolean {
    return this.#asked < this.wanted
  }

  /** Whether one more kill is due. */
  take(): boolean {
    if (!this.open) return false
    this.#asked++
    return true
  }

  note(killed: boolean): void {
    if (killed) this.made++
    else {
      this.#asked--
      if (++this.#late > 20 + 3 * this.wanted) throw new Error(`${this.#late} kills came too late`)
    }
  }
}

/** Kills a program and starts it again, at most `most` times, then lets it through. What hit it, and its last life. */
export async function killedOften(
  { args, cwd }: Program,
  kills: Kills,
  most: number,
  moments: Moments,
  random: RandomStream,
): Promise<{ hits: number; last: Life }> {
  let hits = 0
  while (hits < most && kills.take()) {
    const life = await live(args, cwd, kill(random, moments))
    kills.note(life.killed)
    if (life.killed) hits++
    if (life.through) return { hits, last: life }
  }
  return { hits, last: await live(args, cwd, null) }
}
