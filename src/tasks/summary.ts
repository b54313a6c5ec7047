// An evaluation's metrics from the ratios of its records.
import { bootstrapRatioInterval, type Interval } from '../tracking/index.ts'
import type { Evaluator, RecordRatios, RecordScore } from './kind.ts'

/** Metrics of a record; those of an evaluator that lists none are the numbers of its score. */
export function recordRatios(evaluator: Evaluator, score: RecordScore): RecordRatios {
  if (evaluator.ratios) return evaluator.ratios(score)
  const numbers = Object.entries(score).filter(([, value]) => typeof value === 'number')
  return Object.fromEntries(numbers.map(([name, value]) => [name, [value as unknown as number, 1] as const]))
}

/** Each metric over the records that are part of it, with its 95 % interval; `unitOf`: what is resampled, each record unless given. */
export function summaryOf<S>(
  scores: readonly S[],
  ratios: (score: S) => RecordRatios,
  seed: number,
  unitOf?: (score: S) => string,
): Record<string, Interval> {
  const rows = scores.map((score, i) => ({ unit: unitOf?.(score) ?? String(i), ratios: ratios(score) }))
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.ratios)))]
  return Object.fromEntries(
    names.flatMap((name) => {
      const units = new Map<string, [number, number]>()
      for (const { unit, ratios: all } of rows) {
        const own = all[name]
        const known = units.get(unit) ?? [0, 0]
        if (own) units.set(unit, [known[0] + own[0], known[1] + own[1]])
      }
      const [above, below] = [0, 1].map((at) => [...units.values()].map((sums) => sums[at]!)) as [number[], number[]]
      return above.length > 0 ? [[name, bootstrapRatioInterval(above, below, { seed })]] : []
    }),
  )
}
