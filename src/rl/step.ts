// The method: sample, score, learn, follow. B records, K samples each, T columns. docs/method.md tells the same in words.
import { Mismatch, shuffled, stream, streamId } from '../core/index.ts'
import { exitCodes, type World } from '../distributed/index.ts'
import type { AdamW } from '../optim/index.ts'
import { backward, clearTape, cuda, noGrad, stack, type Tensor, tensor, tidy } from '../tensor/index.ts'
import type { GrpoConfig } from './config.ts'
import { adaptEntropy, currentEntropyCoef, type EntropyState } from './entropy.ts'
import { advantagesOf, columnSum, columnsOf, type Group, type Scored } from './group.ts'
import { grpoLoss, type LossConfig } from './grpo.ts'
import { samplerDrift, samplerWeights } from './sampler.ts'
import { gatherGroups, ownPieces } from './share.ts'
import { StepReport } from './step-report.ts'
import { Stopped } from './stopped.ts'
import type { Densities, Draw, Item, Sample, Task } from './task.ts'

/** The weights in their roles: the policy trains, the EMA copy answers, the reference holds the policy back. */
export interface Roles {
  readonly optim: AdamW
  params(): ReadonlyMap<string, Tensor>
  /** Runs `fn` with the EMA copy's (the reference's) weights in place, without gradient. */
  asEma<R>(fn: () => R): R
  asReference<R>(fn: () => R): R
  /** Runs `fn` with the weights in place as sampling reads them, without gradient. */
  forSampling<R>(fn: () => R): R
  /** After an update: the EMA copy, and a reference that moves, take their small step. */
  follow(): void
  /** Takes the weights that other processes have updated; nothing where each updates all. */
  share(world: World): Promise<void>
  /** Gradient norm of each trainable group as it stands. */
  gradNorms(): Record<string, number>
}

export interface StepConfig {
  readonly rl: GrpoConfig
  /** Gradients are scaled to this norm at most; 0: never. */
  readonly maxGradNorm: number
  readonly learningRate: number
  /** On CUDA the sums of backward are made in a fixed order: the same seed gives the same bytes. */
  readonly fixedOrder: boolean
  /** Tasks are weighed by the inverse of their running gradient norms, which are measured. */
  readonly adaptiveLoops: boolean
  /** Rewards permuted inside each group: a control that carries no signal. */
  readonly shuffleRewards: boolean
}

export interface Run {
  readonly config: StepConfig
  readonly tasks: readonly Task[]
  readonly roles: Roles
  readonly world: World
  /** Runs `fn` while what the records need (their features) is in memory. */
  inWork<R>(items: readonly Item[], fn: () => R): R
  /** One promise a group: a judge answers over the network while the next task is sampled. */
  score(task: string, replies: readonly (readonly object[])[]): Promise<readonly Scored[]>[]
  /** Weights of the tasks besides their own; 1 unless adaptive. */
  balance: Record<string, number>
  /** Coefficient of the entropy bonus, and the entropy that decides on it. */
  entropy: EntropyState
}

/** What a step learns from: groups sampled before, or records to sample now. Records of one piece are in memory together. */
export interface Batch {
  readonly draw: Draw
  readonly pieces: readonly (readonly Item[])[]
  readonly groups?: readonly Group[]
}

/** One optimizer step: sample, score, learn, follow. */
export async function step(
  run: Run,
  batch: Batch,
  learningRate: number,
  report = new StepReport(),
): Promise<StepReport> {
  const groups = batch.groups ?? (await sampleAndScore(run, batch)) // only plain data leaves
  const { optim } = run.roles
  try {
    for (const task of run.tasks) {
      const others = run.config.adaptiveLoops ? optim.takeGradients() : null
      try {
        const learned = learnTask(run, task, groups, batch.pieces)
        await tellLearned(run, task, groups, batch.pieces, learned, report)
        if (!others) continue
        await sumGradients(run, report)
      } catch (error) {
        for (const t of others?.values() ?? []) t.dispose()
        throw error
      }
      measureTask(run, task, others, report)
    }
    if (!run.config.adaptiveLoops) await sumGradients(run, report)
    requireFiniteGradients(run)
    report.groupNorms = run.roles.gradNorms()
    report.gradNorm = optim.clipGradNorm(run.config.maxGradNorm || Number.POSITIVE_INFINITY)
    optim.step(learningRate)
    await run.roles.share(run.world)
    run.roles.follow()
    run.entropy = adaptEntropy(run.entropy, report.entropy, run.config.rl)
    return report
  } finally {
    optim.zeroGrad()
  }
}

const weightOf = (run: Run, task: Task) => task.weight * run.balance[task.name]!

/** The norm of a task's own gradient, its weights divided out; then the gradients of the others join it. */
function measureTask(run: Run, task: Task, others: ReadonlyMap<string, Tensor>, report: StepReport): void {
  const { optim } = run.roles
  report.taskNorms.set(task.name, optim.clipGradNorm(Number.POSITIVE_INFINITY) / weightOf(run, task))
  optim.addGradients(others)
}

/** One record's samples of a task and the EMA copy's replies, on their way to be scored. */
export interface Sampled {
  task: Task
  item: Item
  samples: readonly Sample[]
  replies: readonly object[]
  scores: Promise<readonly Scored[]>
}

/**
 * Samples of all tasks, replies, scores, advantages. Pieces are sampled one after the other; their scoring overlaps. Every process
 * samples its own records and gets the groups of all: advantages see every group of their task.
 */
export async function sampleAndScore(run: Run, { pieces, draw }: Batch): Promise<Group[]> {
  const { world, tasks, config } = run
  const own = ownPieces(world, pieces).filter((items) => items.length > 0)
  const sampled = own.flatMap((items) => run.inWork(items, () => sample(run, items, draw)))
  const made = await scored(run, sampled).catch(nullWhenStopped)
  const groups = await gatherGroups(world, tasks, config.rl, pieces.flat(), made)
  return tasks.flatMap((task) =>
    withAdvantages(
      run,
      groups.filter((g) => g.task === task),
      draw,
    ),
  )
}

/** Nothing that leaves can be differentiated. Each role does its half of all tasks at a time: its weights are brought into place once. */
function sample(run: Run, items: readonly Item[], draw: Draw): Sampled[] {
  const { roles, tasks } = run
  const all = roles.forSampling(() => tasks.map((task) => tidy(() => task.sample(items, draw))))
  const answer = (task: Task, i: number): Sampled[] => {
    const replies = tidy(() => task.answer(items, all[i]!))
    const scores = run.score(task.name, replies)
    return items.map((item, b) => ({ task, item, samples: all[i]![b]!, replies: replies[b]!, scores: scores[b]! }))
  }
  return roles.asEma(() => roles.forSampling(() => tasks.flatMap(answer)))
}

function nullWhenStopped(error: unknown): null {
  if (error instanceof Stopped) return null
  throw error
}

/** Groups of all tasks, task by task, without advantages. */
async function scored(run: Run, sampled: readonly Sampled[]): Promise<Group[]> {
  const groups: Group[] = []
  for (const task of run.tasks) {
    const own = sampled.filter((s) => s.task === task)
    const rows = await Promise.all(own.map((s) => s.scores))
    own.forEach((s, i) => {
      const columns = columnsOf(task, s.samples, run.config.rl)
      const plain = { advantages: new Float64Array(0), hasSignal: false, old: null, reference: null }
      groups.push({ ...s, scores: rows[i]!, columns, ...plain })
    })
  }
  return groups
}

/** The same groups of one task with the advantages they have among each other. */
export function withAdvantages(run: Run, groups: readonly Group[], draw: Draw): Group[] {
  if (groups.length === 0) return []
  const { advantages, hasSignal } = advantagesOf(
    groups.flatMap((group) => rewardedRows(run, group, draw)),
    run.config.rl,
  )
  const K = groups[0]!.scores.length
  return groups.map((group, b) => {
    return { ...group, advantages: advantages.slice(b * K, (b + 1) * K), hasSignal: hasSignal[b] ?? false }
  })
}

function rewardedRows(run: Run, { task, item, scores }: Group, draw: Draw): readonly Scored[] {
  if (!run.config.shuffleRewards) return scores
  return shuffled(scores, stream(draw.seed, streamId.rows, draw.step, task.name, item.id))
}

/** Log-densities of a group without gradient as plain numbers [K * T]: of the sampling weights, or of the reference. */
export function plainDensities(group: Pick<Group, 'task' | 'item' | 'samples'>): Float32Array {
  return allPlainDensities([group])[0]!
}

/** The same of several groups of one task, in one pass. */
export function allPlainDensities(groups: readonly Pick<Group, 'task' | 'item' | 'samples'>[]): Float32Array[] {
  return noGrad(() => tidy(() => densitiesOf(groups).map(({ logps }) => logps.to('float32').array() as Float32Array)))
}

function densitiesOf(groups: readonly Pick<Group, 'task' | 'item' | 'samples'>[]): Densities[] {
  if (groups.length === 0) return []
  return groups[0]!.task.densities(
    groups.map((g) => g.item),
    groups.map((g) => g.samples),
  )
}

/** What the loss of a task needs to know about the whole optimizer batch. */
function lossSettings(run: Run, task: Task, groups: readonly Group[]): LossConfig {
  const own = groups.filter((g) => g.task === task)
  return {
    ...run.config.rl,
    beta: task.beta,
    entropyCoef: currentEntropyCoef(run.entropy, run.config.rl),
    gradientAccumulationSteps: own.length,
    numItemsInBatch: own.reduce((n, g) => n + columnSum(g.columns), 0),
  }
}

/** What was learned from a group: figures for the report, and whether the loss was a number. */
interface Learned {
  record: string
  loss: number
  metrics: Record<string, number>
  extra: number | null
}

/** Gradients of this process's records; ends at a loss that is no number. */
function learnTask(run: Run, task: Task, groups: readonly Group[], pieces: Batch['pieces']): Learned[] {
  const settings = lossSettings(run, task, groups)
  const learned: Learned[] = []
  for (const items of ownPieces(run.world, pieces)) {
    const own = groups.filter((group) => group.task === task && items.includes(group.item))
    if (own.length === 0) continue
    learned.push(...run.inWork(items, () => learnGroups(run, task, own, settings)))
    if (!learned.every((one) => Number.isFinite(one.loss))) break
  }
  return learned
}

/** The only lines of the product where a gradient is recorded: the groups of a piece, their losses, one backward. */
function learnGroups(run: Run, task: Task, groups: readonly Group[], settings: LossConfig): Learned[] {
  if (settings.beta > 0) keepReference(run, groups)
  try {
    return tidy(() => {
      const densities = densitiesOf(groups)
      const extras = task.extraLoss(
        groups.map((g) => g.item),
        groups.map((g) => g.samples),
      )
      const losses = groups.map((group, b) => groupLoss(run, group, densities[b]!, extras?.[b] ?? null, settings))
      const total = stack(losses.map(({ loss }) => loss)).sum()
      cuda.inFixedOrder(run.config.fixedOrder, () => backward(total.mul(weightOf(run, task))))
      return losses.map(({ report }) => report())
    })
  } finally {
    clearTape()
  }
}

/** Densities under the reference are made once, however often a group is learned from. */
function keepReference(run: Run, groups: readonly Group[]): void {
  const without = groups.filter((group) => !group.reference)
  const made = run.roles.asReference(() => allPlainDensities(without))
  for (const [b, group] of without.entries()) group.reference = made[b]!
}

/** The share of one group in the loss of its task; its figures are read when they are asked for. */
function groupLoss(
  run: Run,
  group: Group,
  { logps, entropies }: Densities, // [K, T]
  extra: Tensor | null,
  settings: LossConfig,
): { loss: Tensor; report: () => Learned } {
  const { item, columns } = group
  const like = (data: Float32Array) => tensor(data, [...logps.shape], { device: logps.device })
  const sampler = samplerWeights(run.config.rl, group, logps, like)
  const result = grpoLoss(
    {
      logps,
      oldLogps: group.old ? like(group.old) : null,
      refLogps: group.reference ? like(group.reference) : null,
      mask: like(columns.mask),
      advantages: tensor(Float32Array.from(group.advantages), { device: logps.device }),
      entropies,
      tokenColumns: columns.tokens,
      sampled: columns.sampled ? like(columns.sampled) : null,
      isRatio: sampler?.isRatio ?? null,
      samplingLogps: sampler?.logps ?? null,
    },
    settings,
  )
  const loss = extra ? result.loss.add(extra.div(settings.gradientAccumulationSteps)) : result.loss
  const report = () => {
    const drift = group.old ? {} : samplerDrift(group, logps, like)
    const metrics = { ...result.metrics(), ...drift, ...sampler?.metrics }
    return { record: item.id, loss: loss.item(), metrics, extra: extra ? extra.item() : null }
  }
  return { loss, report }
}

/** Every process reports what all of them learned, in the order of one; a loss that is no number fails on all alike. */
async function tellLearned(
  run: Run,
  task: Task,
  groups: readonly Group[],
  pieces: Batch['pieces'],
  own: readonly Learned[],
  report: StepReport,
): Promise<void> {
  const waiting = (await run.world.gather(own)).flat()
  for (const items of pieces) {
    for (const group of groups) {
      if (group.task !== task || !items.includes(group.item)) continue
      const at = waiting.findIndex((one) => one.record === group.item.id)
      const [one] = at < 0 ? [] : waiting.splice(at, 1)
      if (!one) continue
      report.weigh(task.name, weightOf(run, task))
      report.learned(group, one.loss, one.metrics, one.extra)
      if (!Number.isFinite(one.loss))
        throw nonFinite(run, `record ${one.record}`, `${task.name} loss`, String(one.loss))
    }
  }
}

/** Gradients become those of all processes. */
async function sumGradients({ world, roles }: Run, report: StepReport): Promise<void> {
  const startedAt = performance.now()
  await world.sumGradients(roles.params())
  report.reduceSeconds += (performance.now() - startedAt) / 1000
}

export class NonFinite extends Mismatch {
  readonly exitCode = exitCodes.nonFinite
}

function nonFinite(run: Run, where: string, field: string, got: string): NonFinite {
  const rate = run.config.learningRate
  const hint = `the last checkpoint is intact; try a smaller optim.learningRate than ${rate}, or onNonFinite skip`
  return new NonFinite({ where, field, expected: 'finite numbers', got, hint })
}

function requireFiniteGradients(run: Run): void {
  const bad = run.roles.optim.nonFiniteGradients()
  if (bad.length > 0) throw nonFinite(run, 'gradient', bad[0]!, `NaN or infinity in ${bad.length} tensors`)
}
