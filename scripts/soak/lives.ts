// Processes that are killed at random moments and started again until they get through.
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { RandomStream } from '../../src/core/index.ts'

const program = fileURLToPath(new URL('../../bin/roundtrip.mjs', import.meta.url))
const work = fileURLToPath(new URL('./work.ts', import.meta.url))

export interface Held {
  step: number
  rss: number
  tensors: number
  handles: number
}

export interface Life {
  killed: boolean
  held: Held[]
  out: string
  seconds: number
}

/** Kills `after` milliseconds behind the given line of the output; behind the start for line 0. */
interface Kill {
  line: number
  after: number
}

async function live(args: readonly string[], kill: Kill | null): Promise<Life> {
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  const child: ChildProcess = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const from = performance.now()
  let [out, err] = ['', '']
  let timer: NodeJS.Timeout | undefined
  const look = () => {
    if (kill && out.split('\n').length > kill.line) timer ??= setTimeout(() => child.kill('SIGKILL'), kill.after)
  }
  look()
  child.stdout!.setEncoding('utf8').on('data', (text: string) => {
    out += text
    look()
  })
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    err += text
  })
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((done) => {
    child.on('close', (...end) => done(end))
  })
  clearTimeout(timer)
  const killed = signal === 'SIGKILL'
  if (!killed && code !== 0) throw new Error(`ended with ${code ?? signal}: ${err.slice(-500)}`)
  const lines = out.split('\n').filter((line) => line.startsWith('{"step"'))
  const held = lines.map((line) => JSON.parse(line) as Held)
  return { killed, held, out, seconds: (performance.now() - from) / 1000 }
}

export const command = (args: readonly string[]) => live([program, ...args], null)
export const worker = (args: readonly string[]) => live(['--import', 'tsx', work, ...args], null)

/** A run of the worker, killed a few steps after each start, at a random moment, until the kills are used up. */
export async function killedOften(
  args: readonly string[],
  {
    kills,
    apart,
    stepSeconds,
    startSeconds,
  }: { kills: number; apart: number; stepSeconds: number; startSeconds: number },
  random: RandomStream,
): Promise<number> {
  for (let done = 0; done < kills; done++) {
    const line = random.below(apart)
    const after = 1000 * random.uniform() * (line === 0 ? startSeconds : stepSeconds)
    if (!(await live(['--import', 'tsx', work, ...args], { line, after })).killed) return done
  }
  await worker(args)
  return kills
}

/** A command of the program, killed at a random moment of the time that it takes, then let through; null: it was through before. */
export async function killedOnce(args: readonly string[], seconds: number, random: RandomStream): Promise<Life | null> {
  const { killed } = await live([program, ...args], { line: 0, after: 1000 * random.uniform() * seconds })
  return killed ? command(args) : null
}
