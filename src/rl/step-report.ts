import { rewardMetrics } from './advantages.ts'
import type { GrpoConfig } from './config.ts'
import { type Group, maskedTokens, type Scored } from './group.ts'

interface Seen {
  loss: number
  groups: Group[]
  metrics: Record<string, number>[]
  extra: number[]
  weight: number
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? Number.NaN : values.reduce((a, b) => a + b, 0) / values.length
}

/** What one step did, under the names users of TRL and of the prototype know. */
export class StepReport {
  gradNorm = Number.NaN
  /** Spent on summing gradients over processes. */
  reduceSeconds = 0
  /** Spent on waiting for scores. */
  scoreSeconds = 0
  groupNorms: Record<string, number> = {}
  /** Of the standard deviation inside groups, as the advantages have it. */
  ddof: GrpoConfig['ddof'] = 1
  readonly #tasks = new Map<string, Seen>()
  #entropySum = 0
  #words = 0

  #of(name: string): Seen {
    let seen = this.#tasks.get(name)
    if (!seen) {
      seen = { loss: 0, groups: [], metrics: [], extra: [], weight: 1 }
      this.#tasks.set(name, seen)
    }
    return seen
  }

  learned(group: Group, loss: number, metrics: Record<string, number>, extra: number | null): void {
    const seen = this.#of(group.task.name)
    seen.loss += loss
    seen.groups.push(group)
    seen.metrics.push(metrics)
    if (extra !== null) seen.extra.push(extra)
    this.#entropySum += metrics.entropy_sum ?? 0
    this.#words += metrics.entropy_tokens ?? 0
  }

  /** How much of the total the task's loss makes. */
  weigh(name: string, weight: number): void {
    this.#of(name).weight = weight
  }

  /** Norm of each task's own gradient, without its weight; measured for adaptive weights only. */
  readonly taskNorms = new Map<string, number>()

  /** Mean over the tokens of all groups that the entropy filter leaves; other actions have no entropy. */
  get entropy(): number {
    return this.#entropySum / Math.max(1, this.#words)
  }

  rewardMean(name: string): number {
    const seen = this.#tasks.get(name)
    return seen ? mean(totals(seen).filter((t) => !Number.isNaN(t))) : Number.NaN
  }

  /** No group of the task had rewards that differ. */
  flat(name: string): boolean {
    return !this.#tasks.get(name)?.groups.some((g) => g.hasSignal)
  }

  hasGroups(name: string): boolean {
    return (this.#tasks.get(name)?.groups.length ?? 0) > 0
  }

  metrics(learningRate: number): Record<string, number> {
    const out: Record<string, number> = {}
    for (const [name, seen] of this.#tasks) {
      const { groups, loss } = seen
      Object.assign(out, taskMetrics(name, seen, this.ddof), groups[0]?.task.metrics?.(groups, loss))
    }
    out.total_loss = [...this.#tasks.values()].reduce((n, s) => n + s.weight * s.loss, 0)
    out.learning_rate = learningRate
    out.grad_norm = this.gradNorm
    for (const [group, norm] of Object.entries(this.groupNorms)) out[`grad_norm/${group}`] = norm
    return out
  }
}

/** NaN where a sample could not be scored. */
function totals({ groups }: Seen): number[] {
  return groups.flatMap((g) => g.scores.map((s) => s.total ?? Number.NaN))
}

/** What the loss says of itself, under TRL's names; sums that only steer are left out. */
function lossNames({ metrics }: Seen): string[] {
  const renamed = new Set(['policy_loss', 'kl', 'entropy', 'entropy_sum', 'entropy_tokens'])
  return [...new Set(metrics.flatMap((m) => Object.keys(m)))].filter((key) => !renamed.has(key))
}

/** One value for all groups: the minimum of minima, the maximum of maxima, else the mean. */
function ofAll(key: string, values: readonly number[]): number {
  if (values.length === 0) return Number.NaN
  if (/[/_]max$/.test(key)) return Math.max(...values)
  return /[/_]min$/.test(key) ? Math.min(...values) : mean(values)
}

function taskMetrics(name: string, seen: Seen, ddof: GrpoConfig['ddof']): Record<string, number> {
  const rewards = rewardsOf(seen, ddof)
  const rows = seen.groups.flatMap((g) => g.samples)
  const valuesOf = (key: string) =>
    seen.metrics.map((m) => m[key]).filter((v): v is number => v !== undefined && !Number.isNaN(v))
  const average = (key: string) => mean(valuesOf(key))
  const own: Record<string, number> = {
    loss: seen.loss,
    policy_loss: average('policy_loss'),
    kl_div: average('kl'),
    kl: average('kl'),
    entropy: average('entropy'),
    ...Object.fromEntries(lossNames(seen).map((key) => [key, ofAll(key, valuesOf(key))])),
    reward_mean: rewards.reward ?? Number.NaN,
    ...rewards,
    ...maskedTokens(rows, false).metrics,
    'completions/unique': mean(seen.groups.map((g) => new Set(g.samples.map((s) => s.text)).size / g.samples.length)),
    ...sampleMetricMeans(seen),
  }
  if (seen.extra.length > 0) own.mask_loss = mean(seen.extra)
  return Object.fromEntries(
    Object.entries(own)
      .filter(([, v]) => !Number.isNaN(v))
      .map(([key, v]) => [`${name}/${key}`, v]),
  )
}

function sampleMetricMeans(seen: Seen): Record<string, number> {
  const rows = seen.groups.flatMap((g) => g.scores.map((s) => s.metrics ?? {}))
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))]
  return Object.fromEntries(names.map((name) => [name, mean(rows.flatMap((row) => row[name] ?? []))]))
}

/** Of totals and of every reward unweighted, by the code that `verify` proves. */
function rewardsOf(seen: Seen, ddof: GrpoConfig['ddof']): Record<string, number> {
  const rows: readonly Scored[] = seen.groups.flatMap((g) => g.scores)
  if (rows.length === 0) return {}
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.parts)))]
  const columns = new Map(names.map((name) => [name, rows.map((row) => row.parts[name] ?? Number.NaN)]))
  return rewardMetrics(totals(seen), columns, { numGenerations: seen.groups[0]!.scores.length, ddof })
}
