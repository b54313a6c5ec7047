// One optimizer step of any set of tasks: sample, score, learn, follow. B records, K samples each, T columns.
import { Mismatch, shuffled, stream, streamId } from '../core/index.ts'
import type { ScoredRow } from '../rewards/index.ts'
import { backward, clearTape, noGrad, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { type Advantages, groupAdvantages } from './advantages.ts'
import { adaptEntropy, currentEntropyCoef, type EntropyState } from './entropy.ts'
import { grpoLoss, type LossConfig } from './grpo.ts'
import type { Learner } from './learner.ts'
import type { RunConfig } from './run-config.ts'
import type { StepReport } from './step-report.ts'
import type { Answered, Rollout, Streams, Task, TaskContext, WorkItem } from './tasks/index.ts'

/** Scoring is awaited: a judge answers over the network while the next task is sampled. */
export type Scorer = (loop: Task['name'], groups: readonly (readonly Answered[])[]) => Promise<ScoredRow[]>[]

/** One record's samples of one task, scored: plain data, ready to be learned from, now or in a later pass. */
export interface Group {
  task: Task
  item: WorkItem
  rollouts: readonly Rollout[]
  answered: readonly Answered[]
  scores: readonly ScoredRow[]
  advantages: Float64Array
  hasSignal: boolean
  /** [K * T] under the weights that sampled; only when the group is used more than once. */
  old: Float32Array | null
  /** [K * T] under the reference; only when beta is not 0. */
  reference: Float32Array | null
}

export interface Run {
  config: RunConfig
  learner: Learner
  tasks: readonly Task[]
  score: Scorer
  /** Scale of the mask action, measured once at the start. */
  actionScale: number
  /** Weights of the loops besides the configured ones; 1 unless adaptive. */
  balance: Record<Task['name'], number>
  /** Coefficient of the entropy bonus, and the entropy that decides on it. */
  entropy: EntropyState
}

export function contextOf(run: Run): TaskContext {
  return { learner: run.learner, config: run.config, actionScale: run.actionScale }
}

/** Sampling and scoring of a generation batch. Only plain data leaves; nothing sampled can be differentiated. */
export async function sampleGroups(run: Run, items: readonly WorkItem[], step: number): Promise<Group[]> {
  const { config, learner } = run
  const context = contextOf(run)
  const pending: { task: Task; rollouts: Rollout[][]; answered: Answered[][]; scores: Promise<ScoredRow[]>[] }[] = []
  for (const task of run.tasks) {
    const streams = streamsOf(config, task, step)
    const rollouts = noGrad(() => tidy(() => task.sample(context, items, streams)))
    const answered = learner.asEma(() => tidy(() => task.answer(context, items, rollouts)))
    pending.push({ task, rollouts, answered, scores: run.score(task.name, answered) })
  }
  const groups: Group[] = []
  for (const { task, rollouts, answered, scores } of pending) {
    const rows = await Promise.all(scores)
    const found = advantagesOf(
      rows.flatMap((row, b) => rewardedRows(run, task, items[b]!, row, step)),
      config.rl,
    )
    groups.push(...rows.map((row, b) => scoredGroup(task, items[b]!, rollouts[b]!, answered[b]!, row, found, b)))
  }
  return groups
}

/** Words and actions of loop 2 come from streams of their own: the noise must not depend on what was said. */
function streamsOf(config: RunConfig, task: Task, step: number): Streams {
  return ({ example }, k, use) => {
    if (task.name === 'loop1') return stream(config.seed, streamId.sampling, step, example.id, k)
    if (use === 'action') return stream(config.seed, streamId.maskAction, step, example.id, k)
    return stream(config.seed, streamId.sampling, step, example.id, k, task.name)
  }
}

function rewardedRows(
  run: Run,
  task: Task,
  item: WorkItem,
  scores: readonly ScoredRow[],
  step: number,
): readonly ScoredRow[] {
  if (!run.config.shuffleRewards) return scores
  return shuffled(scores, stream(run.config.seed, streamId.rows, step, task.name, item.example.id))
}

/** From the totals, or with normalize_then_sum from the terms: a term that a group lost is a column without values there. */
export function advantagesOf(rows: readonly ScoredRow[], rl: RunConfig['rl']): Advantages {
  if (rl.multiObjectiveAggregation === 'sum_then_normalize') {
    return groupAdvantages(
      rows.map((r) => r.total),
      rl,
    )
  }
  const weights = new Map(rows.flatMap((r) => r.counted).map((t) => [t.name, t.weight]))
  const names = [...weights.keys()]
  const table = rows.map((r) => names.map((name) => r.counted.find((t) => t.name === name)?.value ?? null))
  return groupAdvantages(table, { ...rl, weights: [...weights.values()], names })
}

/** The group's part of the advantages of a generation batch. */
function scoredGroup(
  task: Task,
  item: WorkItem,
  rollouts: Rollout[],
  answered: Answered[],
  scores: ScoredRow[],
  found: Advantages,
  at: number,
): Group {
  const K = rollouts.length
  return {
    task,
    item,
    rollouts,
    answered,
    scores,
    advantages: found.advantages.slice(at * K, (at + 1) * K),
    hasSignal: found.hasSignal[at] ?? false,
    old: null,
    reference: null,
  }
}

/** Log-densities without gradient as plain numbers [K * T]: of the sampling weights, or of the reference. */
export function plainDensities(run: Run, group: Group): Float32Array {
  return noGrad(() =>
    tidy(() => group.task.densities(contextOf(run), group.item, group.rollouts).logps.to('float32').array()),
  ) as Float32Array
}

function lossConfig(run: Run, task: Task, groups: readonly Group[]): LossConfig {
  const mine = groups.filter((g) => g.task === task)
  const context = contextOf(run)
  const tokens = mine.reduce((n, g) => n + task.mask(context, g.rollouts).reduce((a, b) => a + b, 0), 0)
  const beta = task.name === 'loop2' ? (run.config.loop2.beta ?? run.config.rl.beta) : run.config.rl.beta
  const entropyCoef = currentEntropyCoef(run.entropy, run.config.rl)
  return { ...run.config.rl, beta, entropyCoef, gradientAccumulationSteps: mine.length, numItemsInBatch: tokens }
}

/** The only lines of the product where a gradient is recorded: one group, its loss, backward. */
function learnGroup(run: Run, group: Group, config: LossConfig, weight: number, report: StepReport): void {
  const context = contextOf(run)
  const { task, item, rollouts } = group
  if (config.beta > 0) group.reference ??= run.learner.asReference(() => plainDensities(run, group))
  try {
    tidy(() => {
      const { logps, entropies } = task.densities(context, item, rollouts) // [K, T]
      const shape = logps.shape as number[]
      const like = (data: Float32Array) => tensor(data, shape, { device: logps.device })
      const mask = lossMask(run, group)
      const result = grpoLoss(
        {
          logps,
          oldLogps: group.old ? like(group.old) : null,
          refLogps: group.reference ? like(group.reference) : null,
          mask: like(mask),
          advantages: tensor(Float32Array.from(group.advantages), { device: logps.device }),
          entropies,
        },
        config,
      )
      const extra = task.extraLoss(context, item, rollouts)
      const loss = extra ? result.loss.add(extra.div(config.gradientAccumulationSteps)) : result.loss
      backward(weight === 1 ? loss : loss.mul(weight))
      report.learned(group, loss.item(), result.metrics(), mask, extra ? extra.item() : null)
      requireFinite(run, loss, group)
    })
  } finally {
    clearTape()
  }
}

function lossMask(run: Run, group: Group): Float32Array {
  const mask = group.task.mask(contextOf(run), group.rollouts)
  if (!run.config.rl.maskTruncatedCompletions) return mask
  const T = mask.length / group.rollouts.length
  group.rollouts.forEach((r, k) => {
    if (!r.finished) mask.fill(0, k * T, (k + 1) * T)
  })
  return mask
}

export class NonFinite extends Mismatch {}

function requireFinite(run: Run, loss: Tensor, group: Group): void {
  const value = loss.item()
  if (Number.isFinite(value)) return
  throw new NonFinite({
    where: `record ${group.item.example.id}`,
    field: `${group.task.name} loss`,
    expected: 'a finite number',
    got: String(value),
    hint: hintOf(run),
  })
}

function hintOf(run: Run): string {
  return `the last checkpoint is intact; try a smaller optim.learningRate than ${run.config.optim.learningRate}, or onNonFinite skip`
}

/** Learning from scored groups: gradients of all of them, one update, then what follows the policy takes its small step. */
export function learn(run: Run, groups: readonly Group[], learningRate: number, report: StepReport): void {
  const { learner, config } = run
  try {
    for (const task of run.tasks) {
      const settings = lossConfig(run, task, groups)
      const weight = config[task.name].weight * run.balance[task.name]
      for (const group of groups) if (group.task === task) learnGroup(run, group, settings, weight, report)
      report.measure(task.name, () => learner.optim.clipGradNorm(Number.POSITIVE_INFINITY))
    }
    requireFiniteGradients(run)
    report.groupNorms = learner.gradNorms()
    report.gradNorm = learner.optim.clipGradNorm(config.optim.maxGradNorm || Number.POSITIVE_INFINITY)
    learner.optim.step(learningRate)
    learner.follow()
    run.entropy = adaptEntropy(run.entropy, report.entropy, config.rl)
  } finally {
    learner.optim.zeroGrad()
  }
}

function requireFiniteGradients(run: Run): void {
  const bad = run.learner.optim.nonFiniteGradients()
  if (bad.length === 0) return
  throw new NonFinite({
    where: 'gradient',
    field: bad[0]!,
    expected: 'finite numbers',
    got: `NaN or infinity in ${bad.length} tensors`,
    hint: hintOf(run),
  })
}
