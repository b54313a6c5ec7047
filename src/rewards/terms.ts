import { Mismatch, refuseAt } from '../core/index.ts'
import {
  bleuReward,
  ciderReward,
  formatReward,
  iouReward,
  judgeReward,
  lengthReward,
  maskConfidenceReward,
  meteorReward,
  rougeReward,
} from './builtin.ts'
import type { RewardsConfig, TaskRewards, TermConfig } from './config.ts'
import { Judge } from './judge/judge.ts'
import type { JudgeState } from './judge/stats.ts'
import { askedJudge } from './judge/target.ts'
import { loadReward } from './load.ts'
import { AvailabilityWatch, type ScoreOptions } from './mix.ts'
import type { Reward, Term } from './reward.ts'

/** A term whose reward comes with its task. */
export interface TaskTerm extends Term {
  type: 'task'
  /** What it scores, for people. */
  of: string
}

/** The rewards of a task as they are opened. */
export type OpenTerms = Omit<TaskRewards, 'terms'> & { readonly terms: readonly AnyTerm[] }

type AnyTerm = TermConfig | TaskTerm
type OpenTerm<T extends AnyTerm> = (term: T, config: RewardsConfig, judge?: Judge) => Reward | Promise<Reward>

/** The reward of each type of term. */
const rewardOf: { [T in AnyTerm['type']]: OpenTerm<Extract<AnyTerm, { type: T }>> } = {
  iou: ({ of }, { iou }) => iouReward(of, iou),
  maskConfidence: ({ of }) => maskConfidenceReward(of),
  meteor: ({ of }, { meteor }) => meteorReward(of, meteor),
  bleu: ({ of }) => bleuReward(of),
  rouge: ({ of }) => rougeReward(of),
  cider: ({ of, corpus }) => ciderReward(of, corpus),
  length: ({ of }, { length }) => lengthReward(of, length),
  format: ({ of }) => formatReward(of),
  task: ({ reward }) => reward,
  module: ({ path }) => loadReward(path),
  judge: ({ of }, { meteor }, judge) => {
    if (judge) return judgeReward(judge, of, meteor)
    const hint = 'set judge.enabled'
    throw new Mismatch({ where: 'rewards', field: 'judge', expected: 'a judge', got: 'none', hint })
  },
}

/** Whether a reward of the user's own scores in this run: only such a one looks at pictures. */
export function hasOwnRewards(config: RewardsConfig): boolean {
  const isTask = (value: unknown): value is TaskRewards => Array.isArray((value as TaskRewards | undefined)?.terms)
  const tasks = Object.values<unknown>(config).filter(isTask) // each kind of task adds its own
  return config.modules.length > 0 || tasks.some(({ terms }) => terms.some((t) => t.type === 'module'))
}

/** A task's terms, ready to score. */
export async function buildTerms(
  rewards: Pick<OpenTerms, 'terms'>,
  config: RewardsConfig,
  judge?: Judge,
): Promise<Term[]> {
  const open = (term: AnyTerm) => rewardOf[term.type](term as never, config, judge)
  return Promise.all(rewards.terms.map(async (term) => ({ reward: await open(term), weight: term.weight })))
}

/** How a task's groups are scored: the judge's policy, and the shaping of the task's own caption. */
export function scoreOptions(
  rewards: Pick<OpenTerms, 'shaping'>,
  config: RewardsConfig,
  of: 'caption' | 'captionPrime',
): ScoreOptions {
  const common = { onUnavailable: config.judge.onUnavailable, timeoutSeconds: config.timeoutSeconds }
  return rewards.shaping === 'none' ? common : { ...common, shaping: { of, length: rewards.shaping } }
}

/** The rewards that a task requires. */
export interface OpenTask {
  rewards: OpenTerms
  /** What the task makes; a term that looks at something else is an error. */
  produced: readonly string[]
  /** Which text the length shaping counts. */
  shapes: 'caption' | 'captionPrime'
}

export interface OpenRewards {
  tasks: Readonly<Record<string, { terms: Term[]; options: ScoreOptions }>>
  judge: Judge | undefined
  /** Receives the groups of each step; throws when the judge is unreachable too often. */
  watch: AvailabilityWatch
  /** Of the judge so far; null: none is asked. */
  judgeState(): JudgeState | null
  close(): void
}

/** Refuses, before the first step, a term that reads something this run does not produce. */
export function checkProduced(name: string, { rewards, produced }: OpenTask): void {
  for (const term of rewards.terms) {
    if (term.type === 'module' || produced.includes(term.of)) continue
    const hint = term.of.endsWith('Prime') ? 'the EMA copy produces it; turn that on or use another term' : undefined
    refuseAt(`rewards.${name}`)(term.type, `of: ${produced.join(' | ')}`, term.of, hint)
  }
}

/** All a run needs to score its tasks. What cannot work (a missing module, a judge that does not answer) is reported here. */
export async function openRewards(
  config: RewardsConfig,
  tasks: Readonly<Record<string, OpenTask>>,
  env: NodeJS.ProcessEnv = process.env,
): Promise<OpenRewards> {
  for (const [name, task] of Object.entries(tasks)) checkProduced(name, task)
  const judge = askedJudge(config.judge, tasks, env) ? new Judge(config.judge, env) : undefined
  try {
    await judge?.health()
    const open = async ([name, { rewards, shapes }]: [string, OpenTask]) => {
      const terms = await buildTerms(rewards, config, judge)
      return [name, { terms, options: scoreOptions(rewards, config, shapes) }] as const
    }
    return {
      tasks: Object.fromEntries(await Promise.all(Object.entries(tasks).map(open))),
      judge,
      watch: new AvailabilityWatch(config.judge.maxUnavailableFraction),
      judgeState: () => judge?.state() ?? null,
      close: () => judge?.close(),
    }
  } catch (error) {
    judge?.close()
    throw error
  }
}
