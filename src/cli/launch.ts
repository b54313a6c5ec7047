// Starts one command as N processes of one host that train together, and starts it again where that can help. The parent loads
// no engine: it passes on output and signals, and counts failures.
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { flagsOf } from '../config/index.ts'
import { linesOf, log, Mismatch, messageOf, temporaryFolder } from '../core/index.ts'
import { exitCodes, mayRestart, type Rank, readRank } from '../distributed/index.ts'

export interface Launch {
  /** Processes. */
  count: number
  /** Program and arguments of each. */
  command: readonly string[]
  maxRestarts: number
  /** Seconds between the request to end and the end by force. */
  grace: number
  /** Seconds that the cause gets to show itself after a rank said that another one failed; 10 unless given. */
  rootCauseWait?: number
  /** Step of the newest checkpoint; null: none yet. Two failures without a new one in between are a crash loop. */
  newestStep(): number | null
}

interface RankEnd {
  rank: number
  code: number | null
  signal: NodeJS.Signals | null
  /** After this launcher asked it to end. */
  asked: boolean
}

const forwarded = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1'] as const

/** Runs to the end, with restarts; gives the exit code of the rank that failed first. */
export async function launch(run: Launch): Promise<number> {
  const folder = temporaryFolder('launch')
  const id = randomBytes(4).toString('hex')
  const signals = new Signals()
  let before: number | null | undefined
  try {
    for (let attempt = 0; ; attempt++) {
      const ends = await new Attempt(run, join(folder, `store-${attempt}`), id, attempt, signals).ended
      const failed = firstFailure(ends)
      if (!failed) return exitCodes.finished
      const { rank, code, signal } = failed
      log.error(`rank ${rank} ended ${signal ? `by ${signal}` : `with code ${code}`}`)
      const newest = run.newestStep()
      const refusal = whyNoRestart(run, failed, attempt, signals.received, before, newest)
      if (refusal !== null) {
        if (refusal) log.error(refusal)
        return failed.code ?? 128 + (failed.signal ? constants.signals[failed.signal] : 0)
      }
      before = newest
      const from = newest === null ? 'the beginning' : `step ${newest}`
      log.info(`restart ${attempt + 1} of at most ${run.maxRestarts}, from ${from}`)
    }
  } finally {
    signals.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Null: start again. Else the reason; '' if the exit itself explains it. */
function whyNoRestart(
  run: Launch,
  failed: RankEnd,
  attempt: number,
  signalled: boolean,
  before: number | null | undefined,
  newest: number | null,
): string | null {
  if (signalled || !mayRestart(failed.code, failed.signal)) return ''
  if (before !== undefined && before === newest)
    return 'no new checkpoint since the failure before this one: another start would fail the same way'
  if (attempt >= run.maxRestarts) return `${run.maxRestarts} restarts used; giving up`
  return null
}

/** A rank that reports a failed peer is a witness, not the cause; one that ended because it was asked to is neither. */
function firstFailure(ends: readonly RankEnd[]): RankEnd | undefined {
  const failed = ends.filter((end) => end.code !== 0)
  const own = failed.filter((end) => !(end.asked && (end.signal !== null || isSignalCode(end.code))))
  return own.find((end) => end.code !== exitCodes.peer) ?? own[0] ?? failed[0]
}

const isSignalCode = (code: number | null) => code === exitCodes.interrupted || code === exitCodes.terminated

/** Signals to the launcher: the first of each kind goes to all ranks, a second SIGINT ends them by force. */
class Signals {
  received = false
  #target: ((signal: NodeJS.Signals) => void) | null = null
  readonly #counts = new Map<string, number>()
  readonly #hear = (signal: NodeJS.Signals) => {
    const count = (this.#counts.get(signal) ?? 0) + 1
    this.#counts.set(signal, count)
    if (signal !== 'SIGUSR1') this.received = true
    if (count === 1) this.#target?.(signal)
    else if (signal === 'SIGINT') this.#target?.('SIGKILL')
  }

  constructor() {
    for (const name of forwarded) process.on(name, this.#hear)
  }

  sendTo(target: ((signal: NodeJS.Signals) => void) | null): void {
    this.#target = target
  }

  close(): void {
    for (const name of forwarded) process.off(name, this.#hear)
  }
}

/** One start of all ranks, until the last has ended. */
class Attempt {
  readonly ended: Promise<RankEnd[]>
  readonly #children: ChildProcess[]
  readonly #ends: RankEnd[] = []
  readonly #grace: number
  readonly #rootCauseWait: number
  readonly #timers: NodeJS.Timeout[] = []
  #asked = false

  constructor(run: Launch, store: string, id: string, attempt: number, signals: Signals) {
    this.#grace = run.grace
    this.#rootCauseWait = run.rootCauseWait ?? 10
    this.#children = Array.from({ length: run.count }, (_, rank) => start(run, rank, store, id, attempt))
    signals.sendTo((signal) => this.#send(signal))
    const all = this.#children.map((child, rank) => this.#follow(child, rank))
    this.ended = Promise.all(all).then(() => {
      signals.sendTo(null)
      for (const timer of this.#timers) clearTimeout(timer)
      return this.#ends
    })
  }

  #follow(child: ChildProcess, rank: number): Promise<void> {
    const read = [passOn(child.stderr!, rank, process.stderr)]
    if (rank === 0) child.stdout!.pipe(process.stdout, { end: false })
    else read.push(passOn(child.stdout!, rank, process.stderr))
    const ended = new Promise<void>((resolve) => {
      child.on('error', (error) => log.error(`rank ${rank}: ${error.message}`))
      child.on('close', (code, signal) => {
        this.#ends.push({ rank, code, signal, asked: this.#asked })
        if (code !== 0) this.#endOthers(code === exitCodes.peer ? this.#rootCauseWait : 0)
        resolve()
      })
    })
    return Promise.all([ended, ...read]).then(() => undefined)
  }

  #endOthers(seconds: number): void {
    const ask = () => {
      if (this.#asked) return
      this.#asked = true
      this.#send('SIGTERM')
      this.#later(this.#grace * 1000, () => this.#send('SIGKILL'))
    }
    if (seconds === 0) ask()
    else this.#later(seconds * 1000, ask)
  }

  #later(ms: number, work: () => void): void {
    this.#timers.push(setTimeout(work, ms))
  }

  #send(signal: NodeJS.Signals): void {
    for (const child of this.#children) if (child.exitCode === null && child.signalCode === null) child.kill(signal)
  }
}

/** Lines of a rank, with its number in front. A pipe that breaks has no more of them; the rank's exit code says why. */
async function passOn(from: Readable, rank: number, to: NodeJS.WritableStream): Promise<void> {
  try {
    for await (const line of linesOf(from.setEncoding('utf8'))) to.write(`[${rank}] ${line}\n`)
  } catch (error) {
    log.debug(`rank ${rank}: ${messageOf(error)}`)
  }
}

/** In a separate process group: Ctrl-C in a terminal reaches the launcher alone, which passes it on once. */
function start(run: Launch, rank: number, store: string, id: string, attempt: number): ChildProcess {
  const [program, ...args] = run.command
  const env = {
    ...process.env,
    RANK: String(rank),
    WORLD_SIZE: String(run.count),
    LOCAL_RANK: String(rank),
    LOCAL_WORLD_SIZE: String(run.count),
    ROUNDTRIP_STORE: store,
    ROUNDTRIP_PARENT_PIPE: '3',
    TORCHELASTIC_RUN_ID: id,
    TORCHELASTIC_RESTART_COUNT: String(attempt),
  }
  return spawn(program!, args, { env, detached: true, stdio: ['ignore', 'pipe', 'pipe', 'pipe'] })
}

/** A rank ends when its launcher has ended, since the pipe between them closes. It is killed, because a computing thread handles no signal. */
export function endWithLauncher(env: Readonly<Record<string, string | undefined>> = process.env): void {
  const fd = Number(env['ROUNDTRIP_PARENT_PIPE'] ?? Number.NaN)
  if (!Number.isInteger(fd)) return
  const pipe = new Socket({ fd, readable: true, writable: false })
  pipe.on('error', () => undefined)
  pipe.on('close', () => process.kill(process.pid, 'SIGKILL'))
  pipe.resume()
  pipe.unref()
}

export const launchFlags = flagsOf({
  'nproc N': 'train with N processes on this host',
  'max-restarts N': 'with --nproc: starts from the newest checkpoint after a failure; default 3',
  'grace SECONDS': 'with --nproc: time to end in order before it is forced; default 30',
})

type Flags = ReadonlyMap<string, readonly string[]>

/** Null where `--nproc` asked for processes and they have ended; else the place of this one, which trains. */
export async function placeOrLaunch(command: string, flags: Flags, output: string): Promise<Rank | null> {
  const { newestValid } = await import('../checkpoint/index.ts')
  const newestStep = () => newestValid(output, { hashes: false }).checkpoint?.step ?? null
  const several = launchOf(command, flags, newestStep)
  if (several) {
    process.exitCode = await launch(several)
    return null
  }
  endWithLauncher()
  return readRank()
}

/** What `--nproc` asks for; null where this process is to train itself. */
export function launchOf(
  command: string,
  flags: Flags,
  newestStep: () => number | null,
  env = process.env,
): Launch | null {
  const whole = (name: string) => wholeNumber(command, flags, name)
  const count = whole('nproc')
  const stray = count === null ? ['max-restarts', 'grace'].find((name) => flags.has(name)) : undefined
  if (stray !== undefined) {
    const hint = 'torchrun and srun restart by their own settings'
    throw new Mismatch({ where: command, field: `--${stray}`, expected: '--nproc N beside it', got: 'none', hint })
  }
  if (env['ROUNDTRIP_STORE'] !== undefined || count === null) return null
  if (env['RANK'] !== undefined || env['SLURM_PROCID'] !== undefined) {
    const hint = 'one launcher is enough: leave --nproc out under torchrun or srun'
    throw new Mismatch({ where: command, field: '--nproc', expected: 'no launcher around it', got: 'one', hint })
  }
  const words = [process.execPath, ...process.execArgv, ...process.argv.slice(1)]
  const [maxRestarts, grace] = [whole('max-restarts') ?? 3, whole('grace') ?? 30]
  return { count: Math.max(1, count), command: words, maxRestarts, grace, newestStep }
}

/** Processes of the run: those of the launcher that started this one, or those that `--nproc` asks for. */
export function processCount(flags: Flags, env = process.env): number {
  const { size } = readRank(env)
  return size > 1 ? size : Math.max(1, wholeNumber('flags', flags, 'nproc') ?? 1)
}

function wholeNumber(command: string, flags: Flags, name: string): number | null {
  const text = flags.get(name)?.at(-1)
  if (text === undefined) return null
  if (/^\d+$/.test(text)) return Number(text)
  throw new Mismatch({ where: command, field: `--${name}`, expected: 'a whole number of 0 or more', got: text })
}
