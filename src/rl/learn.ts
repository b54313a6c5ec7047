// Learn: the log-probabilities of the same samples again, now with gradient; the loss of a task, and backward.
import { groupBy, Mismatch } from '../core/index.ts'
import { exitCodes } from '../distributed/index.ts'
import type { GradientNorms } from '../optim/index.ts'
import { backward, clearTape, cuda, stack, type Tensor, tensor, tidy, tidyNoGrad } from '../tensor/index.ts'
import { currentEntropyCoef } from './entropy.ts'
import { columnSum, type Group } from './group.ts'
import { grpoLoss, type LossConfig } from './grpo.ts'
import type { Batch, Run } from './run.ts'
import { samplerDrift, samplerWeights } from './sampler.ts'
import { ownPieces } from './share.ts'
import type { StepReport } from './step-report.ts'
import type { Densities, Task, TaskGroups } from './task.ts'

/** What a step learns from, and where it reports. */
interface Learning {
  run: Run
  groups: readonly Group[]
  batch: Batch
  report: StepReport
}

/** Gradients of all tasks and their report. With adaptive weights the norm of each task's own gradient, its weights divided out, as well. */
export async function learnFrom(run: Run, groups: readonly Group[], batch: Batch, report: StepReport): Promise<void> {
  const learning = { run, groups, batch, report }
  const isJudged = ({ name }: Task) => Number(run.judged.has(name))
  const tasks = [...run.tasks].sort((a, b) => isJudged(a) - isJudged(b)) // a judge has the time of the other tasks to answer
  if (!run.config.adaptiveLoops) return learnTasks(learning, tasks)
  const { optim } = run.roles
  for (const task of tasks) {
    const others = optim.takeGradients()
    try {
      await learnTasks(learning, [task])
      await sumGradients(run, report)
    } catch (error) {
      for (const t of others.values()) t.dispose()
      throw error
    }
    report.taskNorms.set(task.name, optim.clipGradNorm(Number.POSITIVE_INFINITY) / weightOf(run, task))
    optim.addGradients(others)
  }
}

/** What all processes learned is exchanged once, after the last task: every exchange waits for the slowest process. */
async function learnTasks(learning: Learning, tasks: readonly Task[]): Promise<void> {
  const { run } = learning
  const own: Learned[] = []
  for (const some of passesOf(run, tasks)) {
    for (const task of some) await scoresOf(learning, task)
    const learn = () => learnPass(learning, some)
    const hasKl = some.some((task) => task.beta > 0)
    own.push(...(hasKl ? await run.roles.whileWhole('reference', run.world, learn) : learn()))
  }
  const all = (await run.world.gather(own)).flat()
  for (const task of tasks)
    reportLearned(
      learning,
      task,
      all.filter((one) => one.task === task.name),
    )
}

/** Tasks that learn in one pass. One that a judge scores has its own: the others need not wait for it. */
function passesOf({ judged }: Run, tasks: readonly Task[]): Task[][] {
  return [...groupBy<object, Task>(tasks, (task) => (!judged.has(task.name) && task.joint?.with) || task).values()]
}

/** Waits for the scores of a task. What needs none is computed before; of several pieces only one is in memory. */
async function scoresOf({ run, groups, batch: { pieces, ready }, report }: Learning, task: Task): Promise<void> {
  if (run.judged.has(task.name) && task.beta > 0 && pieces.length === 1) {
    const [items = []] = ownPieces(run, pieces)
    const own = groups.filter((group) => group.task === task && items.includes(group.item))
    const keep = () => tidy(() => storeReferences(referencesOf(run, own, scorerOf(own))))
    await run.roles.whileWhole('reference', run.world, () => run.inWork(items, keep))
  }
  const startedAt = performance.now()
  await ready?.(task)
  report.scoreSeconds += (performance.now() - startedAt) / 1000
}

const weightOf = (run: Run, task: Task) => task.weight * run.balance[task.name]!

/** Log-densities of a group without gradient as plain numbers [K * T]: of the sampling weights, or of the reference. */
export function plainDensities(group: Pick<Group, 'task' | 'item' | 'samples'>): Float32Array {
  return allPlainDensities([group])[0]!
}

/** The same of several groups of one task, in one pass. */
export function allPlainDensities(groups: readonly ToScore[]): Float32Array[] {
  return tidyNoGrad(() => scorerOf(groups)().map(({ logps }) => logps.to('float32').array() as Float32Array))
}

type ToScore = Pick<Group, 'task' | 'item' | 'samples'>

/** Scores groups, which are in the order of their tasks, under the weights in place; those of several tasks in one pass. */
function scorerOf(groups: readonly ToScore[]): () => Densities[] {
  const parts = partsOf(groups)
  const joint = parts.length > 1 ? parts[0]!.task.joint : null
  const score = joint?.prepare(parts) ?? (() => parts.map(({ task, items, groups: own }) => task.densities(items, own)))
  return () => score().flat()
}

function partsOf(groups: readonly ToScore[]): TaskGroups[] {
  return [...groupBy(groups, (g) => g.task)].map(([task, own]) => ({
    task,
    items: own.map((g) => g.item),
    groups: own.map((g) => g.samples),
  }))
}

/** What the loss of a task needs to know about the whole optimizer batch. */
function lossSettings(run: Run, task: Task, own: readonly Group[]): LossConfig {
  return {
    ...run.config.rl,
    beta: task.beta,
    entropyCoef: currentEntropyCoef(run.entropy, run.config.rl),
    gradientAccumulationSteps: own.length,
    numItemsInBatch: own.reduce((n, g) => n + columnSum(g.columns), 0),
  }
}

/** What was learned from a group: metrics for the report, and whether the loss was finite. */
interface Learned {
  task: string
  record: string
  loss: number
  metrics: Record<string, number>
  extra: number | null
}

/** Gradients of this process's records; ends at a loss that is not finite. */
function learnPass({ run, groups, batch: { pieces, numItems } }: Learning, tasks: readonly Task[]): Learned[] {
  const byTask = groupBy(groups, (group) => group.task)
  const settings = new Map([...byTask].map(([task, own]) => [task, lossSettings(run, task, own)]))
  const learned: Learned[] = []
  for (const items of ownPieces(run, pieces)) {
    const own = tasks.flatMap((task) => byTask.get(task) ?? []).filter((group) => items.includes(group.item))
    if (own.length === 0) continue
    learned.push(...run.inWork(items, () => learnGroups(run, own, settings, numItems)))
    if (!learned.every((one) => Number.isFinite(one.loss))) break
  }
  return learned
}

/** The only lines of the product where a gradient is recorded: the groups of a piece, their losses, one backward. */
function learnGroups(
  run: Run,
  groups: readonly Group[],
  settings: ReadonlyMap<Task, LossConfig>,
  numItems: Batch['numItems'],
): Learned[] {
  try {
    return tidy(() => {
      const score = scorerOf(groups)
      const references = referencesOf(run, groups, score)
      const densities = score()
      const extras = partsOf(groups).flatMap(
        ({ task, items, groups: own }) => task.extraLoss?.(items, own) ?? items.map(() => null),
      )
      const losses = groups.map((group, b) => {
        const own = settings.get(group.task)!
        const numItemsInBatch = numItems?.get(group) ?? own.numItemsInBatch
        return groupLoss(run, group, densities[b]!, references.get(group), extras[b]!, { ...own, numItemsInBatch })
      })
      const totals = [...groupBy(losses, ({ task }) => task)].map(([task, own]) => {
        const sum = stack(own.map(({ loss }) => loss)).sum()
        return sum.mul(weightOf(run, task))
      })
      cuda.inFixedOrder(run.config.fixedOrder, () => backward(totals.reduce((a, b) => a.add(b))))
      const reports = losses.map(({ measure }) => measure()) // while the device is at it
      run.meanwhile?.(groups)
      storeReferences(references)
      return reports.map((report) => report())
    })
  } finally {
    clearTape()
  }
}

/** Densities under the reference are computed once, however often a group is learned from: here, for groups that have none yet. */
function referencesOf(run: Run, groups: readonly Group[], score: () => Densities[]): Map<Group, Tensor> {
  const without = groups.filter(({ task, reference }) => task.beta > 0 && !reference)
  if (without.length === 0) return new Map()
  const own = without.length === groups.length ? score : scorerOf(without)
  const all = run.roles.asReference(() => tidyNoGrad(() => own().map(({ logps }) => logps.to('float32'))))
  return new Map(without.map((group, b) => [group, all[b]!]))
}

/** Waits for the device. */
function storeReferences(references: ReadonlyMap<Group, Tensor>): void {
  for (const [group, logps] of references) group.reference = logps.array() as Float32Array
}

/** The share of one group in the loss of its task; its metrics are computed and read on demand. */
function groupLoss(
  run: Run,
  group: Group,
  { logps, entropies }: Densities, // [K, T]
  reference: Tensor | undefined, // [K, T]
  extra: Tensor | null,
  settings: LossConfig,
): { task: Task; loss: Tensor; measure: () => () => Learned } {
  const { item, columns } = group
  const like = (data: Float32Array) => tensor(data, [...logps.shape], { device: logps.device })
  const sampler = samplerWeights(run.config.rl, group, logps, like)
  const result = grpoLoss(
    {
      logps,
      oldLogps: group.old ? like(group.old) : null,
      refLogps: reference ?? (group.reference ? like(group.reference) : null),
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
  const measure = () => {
    const own = result.measure()
    return () => {
      const onHost = (data: Float32Array) => tensor(data, [...logps.shape]) // short: the device would wait for each of its calls
      const drift = group.old ? {} : samplerDrift(group, logps.detach().to('cpu'), onHost)
      const metrics = { ...own(), ...drift, ...sampler?.metrics }
      return { task: group.task.name, record: item.id, loss: loss.item(), metrics, extra: extra ? extra.item() : null }
    }
  }
  return { task: group.task, loss, measure }
}

/** Every process reports what all of them learned, in the order of one; a loss that is not finite fails on every process. */
function reportLearned({ run, groups, batch: { pieces }, report }: Learning, task: Task, waiting: Learned[]): void {
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
export async function sumGradients({ world, roles }: Run, report: StepReport): Promise<void> {
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

export function requireFiniteGradients(run: Run, norms: GradientNorms): void {
  const bad = run.roles.optim.nonFiniteGradients(norms)
  if (bad.length > 0) throw nonFinite(run, 'gradient', bad[0]!, `NaN or infinity in ${bad.length} tensors`)
}
