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
  code: number | null
  held: Held[]
  err: string
  seconds: number
}

/** Called with everything the process has written; true kills it. */
type Watch = (out: string, err: string) => boolean

function live(args: readonly string[], watch: Watch, killAfter?: number): Promise<Life> {
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  const child: ChildProcess = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const from = performance.now()
  let out = ''
  let err = ''
  const look = () => {
    if (watch(out, err)) child.kill('SIGKILL')
  }
  const timer = killAfter === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), killAfter)
  child.stdout!.setEncoding('utf8').on('data', (text: string) => {
    out += text
    look()
  })
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    err += text
    look()
  })
  return new Promise((done) => {
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      const held = out
        .split('\n')
        .filter((line) => line.startsWith('{"step"'))
        .map((line) => JSON.parse(line) as Held)
      done({ killed: signal === 'SIGKILL', code, held, err, seconds: (performance.now() - from) / 1000 })
    })
  })
}

export interface Lived {
  kills: number
  lives: Life[]
}

/** A run of the worker: killed a few steps after each start, at a random moment of a step, until the kills are used up. */
export async function livedSteps(
  args: readonly string[],
  kills: number,
  apart: number,
  random: RandomStream,
): Promise<Lived> {
  const lives: Life[] = []
  const killed = () => lives.filter((life) => life.killed).length
  for (;;) {
    const steps = 1 + random.below(2 * apart)
    const ends = killed() < kills
    let heard = 0
    lives.push(
      await live(['--import', 'tsx', work, ...args], (out) => {
        heard = out.split('\n').length - 1
        return ends && heard >= steps
      }),
    )
    const last = lives.at(-1)!
    if (!last.killed && last.code !== 0) throw new Error(`ended with ${last.code}: ${last.err.slice(-500)}`)
    if (!last.killed) return { kills: killed(), lives }
  }
}

/** A command of the program: killed at random moments of the time that it takes, then let through. */
export async function livedCommand(
  args: readonly string[],
  kills: number,
  seconds: number,
  random: RandomStream,
): Promise<Lived> {
  const lives: Life[] = []
  for (let i = 0; i < kills; i++)
    lives.push(await live([program, ...args], () => false, random.uniform() * seconds * 1000))
  lives.push(await live([program, ...args], () => false))
  const last = lives.at(-1)!
  if (last.code !== 0) throw new Error(`ended with ${last.code}: ${last.err.slice(-500)}`)
  return { kills: lives.filter((life) => life.killed).length, lives }
}
