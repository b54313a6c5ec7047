// Numbers of a step that each process measures by itself, as those of all processes.
import type { JudgeState } from '../rewards/index.ts'
import type { Metrics } from '../tracking/index.ts'

/** By how they become one number: counts are added, clocks averaged, of memory the process with most counts. */
export interface Measured {
  sum?: Metrics
  mean?: Metrics
  max?: Metrics
}

/** What a process measured in a step; the judge's counts are those since the start. */
export interface StepShare {
  measured: Measured
  judge: JudgeState | null
}

/** The same on every process; a name that only some of them have is 0 on the others. */
export function overProcesses(all: readonly Measured[]): Metrics {
  const of = (kind: keyof Measured, reduce: (values: readonly number[]) => number): Metrics => {
    const names = new Set(all.flatMap((one) => Object.keys(one[kind] ?? {})))
    return Object.fromEntries([...names].map((name) => [name, reduce(all.map((one) => one[kind]?.[name] ?? 0))]))
  }
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0)
  return {
    ...of('sum', sum),
    ...of('mean', (values) => sum(values) / values.length),
    ...of('max', (values) => Math.max(...values)),
  }
}
