// Which curves a run has, and their names and colours: for the report and the live page.
import type { TaskName } from '../../tracking/index.ts'
import type { Curve } from './chart.ts'
import { slots } from './chart-style.ts'
import { exactMetrics, firstMetrics, rank, splitKey } from './metrics.ts'

export interface Metric {
  name: string
  /** Its keys in the logs: one for each task that has it. */
  keys: string[]
}

export const isFirst = ({ name }: Metric) => rank(name) < firstMetrics.length
export const isBytes = (name: string) => /bytes(_sent)?$/.test(name)

/** The metrics of several runs by name, in the order of reading. */
export function metricsOf<R extends { tasks: readonly TaskName[] }>(
  runs: readonly R[],
  keysOf: (run: R) => readonly string[],
): Metric[] {
  const metrics = new Map<string, Set<string>>()
  for (const run of runs) {
    for (const key of keysOf(run)) {
      const { name } = splitKey(key, run.tasks)
      metrics.set(name, (metrics.get(name) ?? new Set()).add(key))
    }
  }
  const named = [...metrics].map(([name, keys]): Metric => ({ name, keys: [...keys] }))
  return named.sort((a, b) => rank(a.name) - rank(b.name) || (a.name < b.name ? -1 : 1))
}

export interface CurveRun {
  label: string
  tasks: readonly TaskName[]
  seriesOf(key: string): { steps: readonly number[]; values: readonly number[] } | undefined
}

const dashes = [undefined, '6 4', '2 3', '8 3 2 3']
/** Colour of a task or a run by its place in the list. */
export const slotAt = (at: number) => 1 + (at % slots)

/** The curves of one metric: each run has a colour, or with a single run each task. `smooth`: undefined draws the values as logged. */
export function curvesOf(
  { name, keys }: Metric,
  runs: readonly CurveRun[],
  smooth?: (values: readonly number[]) => number[],
): Curve[] {
  const labels = [...new Set(runs.map(({ label }) => label))]
  const several = runs.length > 1
  const one = (run: CurveRun, key: string): Curve[] => {
    const series = run.seriesOf(key)
    if (!series || series.steps.length === 0) return []
    const { task, at } = splitKey(key, run.tasks)
    const parts = [several ? run.label : '', task && keys.length > 1 ? task.title : ''].filter((part) => part !== '')
    const slot = several ? slotAt(labels.indexOf(run.label)) : at < 0 ? 0 : slotAt(at)
    const dash = several ? dashes[Math.max(0, at) % dashes.length] : undefined
    const isSmoothed = smooth && !exactMetrics.includes(name)
    const drawn = isSmoothed ? { values: smooth(series.values), raw: series.values } : { values: series.values }
    return [{ label: parts.join(', ') || name, slot, dash, steps: series.steps, ...drawn }]
  }
  return runs.flatMap((run) => keys.flatMap((key) => one(run, key)))
}
