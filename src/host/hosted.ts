// A run has two threads: the engine computes, main keeps the terminal, the rewards with their judge, and the signals.
import { constants } from 'node:os'
import { log, Mismatch, messageOf, timerMs } from '../core/index.ts'
import { readRank } from '../distributed/index.ts'
import { type EnginePort, runInEngineThread } from '../engine/index.ts'
import type { OpenRewards } from '../rewards/index.ts'
import type { Host, RunConfig, Progress as RunProgress, Scores } from '../run/index.ts'
import type { TaskKind } from '../tasks/index.ts'
import { progress as statusLine } from '../tracking/index.ts'
import { refuseEarlyExit } from './early-exit.ts'

type Groups = Parameters<Host['score']>[1]
type Asked = { kind: 'score'; task: string; groups: Groups }
type Message = Asked | { kind: 'progress'; event: RunProgress }

/** The engine thread's side. */
export function portHost(port: EnginePort): Host {
  let stop = false
  port.onControl((message) => {
    if (message === 'stop') stop = true
  })
  return {
    score: (task, groups) => port.ask({ kind: 'score', task, groups } satisfies Asked) as Promise<Scores | null>,
    progress: (event) => port.send({ kind: 'progress', event }),
    stopping: () => stop,
    yieldToLoop: () => port.breathe(),
  }
}

export interface ScoredSettings {
  config: RunConfig
  /** Paths of the settings that only a file sets: such a file may not choose who gets a key. */
  fromFiles: ReadonlySet<string>
}

export interface HostedRun {
  /** Module and export that run in the engine thread as `work(input, port)`. */
  module: string
  work: string
  input: unknown
  /** Whose tasks are scored; absent: the work asks for no scores. */
  scores?: ScoredSettings
  /** Word in front of the status line. */
  label: string
  /** Gets what the status line would show, which then stays empty. */
  onProgress?: (event: RunProgress) => void
  /** Asks for the end at the next safe point; absent: SIGINT and SIGTERM do. */
  signal?: AbortSignal
}

/**
 * Runs the work to its end. The first SIGINT or SIGTERM stops it at its next safe point, the second exits with code 130; a caller
 * that passes `signal` handles signals itself. After SIGTERM it ends within 25 s in any case (ROUNDTRIP_STOP_SECONDS).
 */
export async function runHosted(run: HostedRun): Promise<unknown> {
  // a caller that gives a signal decides when to stop, and what the process ends with
  const own = run.signal && { signal: run.signal, exitCode: () => 0, close: () => undefined }
  const signals: Signals = own ?? listenForSignals(run.work)
  const rewards = run.scores ? await openScoring(run.scores) : undefined
  const screen = run.onProgress ? { step: 0, show: run.onProgress, end: () => undefined } : openScreen(run.label)
  const ended = refuseEarlyExit()
  try {
    const result = await runInEngineThread(run.module, run.work, run.input, {
      signal: signals.signal,
      onMessage: (message) => unlessStopped(signals.signal, answer(message as Message, rewards, screen)),
    })
    const isStopped = result === null || (result as { stopped?: boolean } | undefined)?.stopped
    if (isStopped && !run.signal) process.exitCode = signals.exitCode()
    return result
  } finally {
    ended()
    screen.end()
    signals.close()
    rewards?.close()
  }
}

async function openScoring({ config, fromFiles }: ScoredSettings): Promise<OpenRewards> {
  const { askedJudge, openRewards, requireOwnWord } = await import('../rewards/index.ts')
  const { openKind } = await import('../tasks/index.ts')
  const kind = (await openKind(config.task)) as TaskKind<RunConfig>
  const { tasks } = kind.rewards(config)
  const judge = askedJudge(config.rewards.judge, tasks)
  if (judge) requireOwnWord(judge, fromFiles)
  return openRewards(shareOfJudge(config.rewards, readRank().size), tasks)
}

/** Limits of the judge are those of the run: each of several processes gets its part. */
function shareOfJudge(rewards: RunConfig['rewards'], processes: number): RunConfig['rewards'] {
  const { judge } = rewards
  const maxConcurrency = Math.max(1, Math.floor(judge.maxConcurrency / processes))
  return { ...rewards, judge: { ...judge, maxConcurrency, requestsPerMinute: judge.requestsPerMinute / processes } }
}

async function answer(message: Message, rewards: OpenRewards | undefined, screen: Screen): Promise<unknown> {
  if (message.kind === 'progress') {
    if (message.event.kind === 'step') screen.step = message.event.step ?? screen.step
    return screen.show(message.event)
  }
  const scoring = rewards?.tasks[message.task]
  if (!rewards || !scoring)
    throw new Mismatch({ where: 'run', field: 'rewards', expected: `rewards of ${message.task}`, got: 'none' })
  const { scoreGroup } = await import('../rewards/index.ts')
  const rows = await Promise.all(message.groups.map((group) => scoreGroup(scoring.terms, group, scoring.options)))
  rewards.watch.record(screen.step, rows.length, rows.filter((group) => (group[0]?.dropped.length ?? 0) > 0).length)
  return { rows, judge: rewards.judgeState() } satisfies Scores
}

/** ms that scores may still take once the run is to end; schedulers kill after about 30 s. */
const patience = 2500

/**
 * The answer, or null when the run is to end and it does not come: a judge that hangs must not keep a run from saving. Of several
 * processes one that gives up takes the others with it.
 */
function unlessStopped(signal: AbortSignal, answered: Promise<unknown>): Promise<unknown> {
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined
    const wait = () => {
      timer = setTimeout(() => resolve(null), patience)
    }
    const end = () => {
      signal.removeEventListener('abort', wait)
      clearTimeout(timer)
    }
    if (signal.aborted) wait()
    else signal.addEventListener('abort', wait)
    answered.then(resolve, reject).finally(end)
  })
}

interface Signals {
  signal: AbortSignal
  /** Of a run that was stopped: 0 for a person at the terminal, 128 + n for a scheduler or a lost terminal. */
  exitCode(): number
  close(): void
}

/** Schedulers send SIGUSR1 before the time limit; without a handler it would open Node's debugger. */
const handledSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1'] as const
/** Seconds from SIGTERM to the end, whatever the run is doing: Kubernetes, Slurm and torchrun kill after 30 s. */
const stopSeconds = () => Number(process.env.ROUNDTRIP_STOP_SECONDS) || 25

function listenForSignals(work: string): Signals {
  const ending = ['train', 'sft'].includes(work) ? 'finishing the step, then saving' : 'ending after these records'
  const controller = new AbortController()
  let first: NodeJS.Signals | undefined
  let deadline: NodeJS.Timeout | undefined
  const close = () => {
    clearTimeout(deadline)
    for (const name of handledSignals) process.off(name, handle)
  }
  /** By the signal itself: an exit would wait for the engine thread, which may compute or wait for a peer. */
  const endNow = () => {
    log.warn(
      `SIGTERM: no safe point within ${stopSeconds()} s (ROUNDTRIP_STOP_SECONDS): ending without saving the step`,
    )
    close()
    process.kill(process.pid, 'SIGTERM')
  }
  const handle = (name: NodeJS.Signals) => {
    if (name === 'SIGTERM') deadline ??= setTimeout(endNow, timerMs(stopSeconds() * 1000)).unref()
    if (first && name !== 'SIGHUP') process.exit(130)
    if (first) return
    first = name
    log.info(`${name}: ${ending}; press Ctrl-C again to quit now`)
    controller.abort()
  }
  for (const name of handledSignals) process.on(name, handle)
  return {
    signal: controller.signal,
    exitCode: () => (first === undefined || first === 'SIGINT' ? 0 : 128 + constants.signals[first]),
    close,
  }
}

interface Screen {
  /** The last step that was shown. */
  step: number
  show(event: RunProgress): void
  end(): void
}

/** One status line at a time: steps, or the records of an evaluation. */
function openScreen(label: string): Screen {
  let line: { kind: string; shown: ReturnType<typeof statusLine> } | undefined
  const end = () => {
    line?.shown.done()
    line = undefined
  }
  const open = (kind: string, name: string, event: RunProgress, unit: string) => {
    if (line?.kind === kind) return line.shown
    end()
    const shown = statusLine({ label: name, unit, total: event.total, start: Math.max(0, (event.step ?? 1) - 1) })
    line = { kind, shown }
    return shown
  }
  return {
    step: 0,
    show(event) {
      if (event.kind === 'step') open('step', label, event, 'step').update(event.step ?? 0, event.fields)
      else if (event.kind === 'eval')
        open(`eval ${event.text}`, `evaluation ${event.text}`, { ...event, step: 1 }, 'record').update(event.step ?? 0)
      else if (event.text !== undefined) {
        end()
        if (event.kind === 'warning') log.warn(event.text)
        else log.info(event.text)
      }
    },
    end,
  }
}

/** Logs the path of the last good checkpoint, then rethrows the error, even if no checkpoint can be read. */
export async function failing<T>(output: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    await logLastGood(output).catch((reason) => log.debug(`${output}: no checkpoint was found: ${messageOf(reason)}`))
    throw error
  }
}

async function logLastGood(output: string): Promise<void> {
  const { newestValid } = await import('../checkpoint/index.ts')
  const { checkpoint } = newestValid(output)
  if (checkpoint) log.info(`last good checkpoint: ${checkpoint.path}`)
}
