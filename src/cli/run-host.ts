// A run has two threads: the engine computes, main keeps the terminal, the rewards with their judge, and the signals.
import { log, Mismatch } from '../core/index.ts'
import { type EnginePort, runInEngineThread } from '../engine/index.ts'
import type { OpenRewards, Produced, RewardsConfig } from '../rewards/index.ts'
import type { Host, Progress as RunProgress } from '../rl/index.ts'
import { progress as statusLine } from '../tracking/index.ts'

type Loop = 'loop1' | 'loop2'
type Groups = Parameters<Host['score']>[1]
type Asked = { kind: 'score'; loop: Loop; groups: Groups }
type Message = Asked | { kind: 'progress'; event: RunProgress }

/** The engine thread's side. */
export function portHost(port: EnginePort): Host {
  let stop = false
  port.onControl((message) => {
    if (message === 'stop') stop = true
  })
  return {
    score: (loop, groups) => port.ask({ kind: 'score', loop, groups } satisfies Asked) as ReturnType<Host['score']>,
    progress: (event) => port.send({ kind: 'progress', event }),
    stopping: () => stop,
    breathe: () => port.breathe(),
  }
}

/** What the two loops make, for the check that every reward term has its input. */
const produced: Record<Loop, readonly Produced[]> = {
  loop1: ['caption', 'maskPrime', 'text'],
  loop2: ['mask', 'captionPrime', 'text'],
}

export interface HostedRun {
  /** Module and export that run in the engine thread as `work(input, port)`. */
  module: string
  work: string
  input: unknown
  /** Absent: the work asks for no scores. */
  rewards?: RewardsConfig
  /** Word in front of the status line. */
  label: string
}

/**
 * Runs the work to its end. The first SIGINT or SIGTERM lets it end at its next safe point, the second ends the process with 130.
 */
export async function runHosted(run: HostedRun): Promise<unknown> {
  const signals = listenForSignals()
  const rewards = run.rewards ? await openScoring(run.rewards) : undefined
  const screen = openScreen(run.label)
  try {
    return await runInEngineThread(run.module, run.work, run.input, {
      signal: signals.signal,
      onMessage: (message) => answer(message as Message, rewards, screen),
    })
  } finally {
    screen.end()
    signals.close()
    rewards?.close()
  }
}

async function openScoring(config: RewardsConfig): Promise<OpenRewards> {
  const { openRewards } = await import('../rewards/index.ts')
  return openRewards(config, produced)
}

async function answer(message: Message, rewards: OpenRewards | undefined, screen: Screen): Promise<unknown> {
  if (message.kind === 'progress') return screen.show(message.event)
  if (!rewards) throw new Mismatch({ where: 'run', field: 'rewards', expected: 'open rewards', got: 'none' })
  const { scoreGroup } = await import('../rewards/index.ts')
  const { terms, options } = rewards[message.loop]
  const rows = await Promise.all(message.groups.map((group) => scoreGroup(terms, group, options)))
  rewards.watch.record(rows.length, rows.filter((group) => (group[0]?.dropped.length ?? 0) > 0).length)
  return rows
}

interface Signals {
  signal: AbortSignal
  close(): void
}

function listenForSignals(): Signals {
  const controller = new AbortController()
  const hear = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) process.exit(130)
    log.info(`${name}: finishing the step and saving; once more to end at once`)
    controller.abort()
  }
  process.on('SIGINT', hear)
  process.on('SIGTERM', hear)
  return {
    signal: controller.signal,
    close() {
      process.off('SIGINT', hear)
      process.off('SIGTERM', hear)
    },
  }
}

interface Screen {
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
    show(event) {
      if (event.kind === 'step') open('step', label, event, 'step').update(event.step ?? 0, event.fields)
      else if (event.kind === 'eval')
        open(`eval ${event.text}`, `evaluation ${event.text}`, { ...event, step: 1 }, 'record').update(event.step ?? 0)
      else if (event.text !== undefined) {
        end()
        log.info(event.text)
      }
    },
    end,
  }
}

/** Tells where the last good checkpoint is, then lets the error through. */
export async function failing<T>(output: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const { listCheckpoints, newestValid } = await import('../checkpoint/index.ts')
    if (listCheckpoints(output).length > 0) {
      const { checkpoint } = newestValid(output)
      if (checkpoint) log.info(`last good checkpoint: ${checkpoint.path}`)
    }
    throw error
  }
}
