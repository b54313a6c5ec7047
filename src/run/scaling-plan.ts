// What several processes send in a step, and how much of their time remains for work: a small model with stated assumptions. Each process
// has the records that one would have. dev/results/distributed.md compares it with measurements.
import type { ModelSizes } from '../models/index.ts'
import type { RunConfig } from './config.ts'
import { adapterValues, float32 } from './memory-plan.ts'

export interface ScalingRow {
  processes: number
  /** That a process sends in a step. */
  bytes: number
  sending: number
  /** For the process that samples longest. */
  waiting: number
  /** Share of a step that is work. */
  efficiency: number
}

/** What is assumed. */
export const scalingModel = {
  /** GPUs of a host, connected with each other, and bytes per second inside it and beyond. */
  host: { gpus: 8, inside: 150e9, beyond: 20e9 },
  /** A step of the 4B shape on an H200: 4 records, K 4; and of a model so small that calls decide. */
  known: { seconds: 1.7, values: 4e9, samples: 16, least: 0.5 },
  /** Standard deviation between processes, as a share of a step: with two the slower one samples 1.03 times as long as the mean. */
  spread: 0.053,
}
/** Expected largest of so many normal numbers. */
const largestOf = new Map([[2, 0.564], [4, 1.03], [8, 1.42], [16, 1.77], [32, 2.07], [64, 2.34]]) // biome-ignore format: one line

type Settings = Pick<RunConfig, 'batchSize' | 'lora' | 'splitMoments'> & { rl: Pick<RunConfig['rl'], 'numGenerations'> }

/**
 * Gradients go around a ring. With splitMoments updated weights, the EMA copy and, for the KL term of two loops, the start values come from
 * their owners. `batchSize` is that of a process; measured seconds of its step and bytes per second replace the assumed ones.
 */
export function planScaling(sizes: ModelSizes, settings: Settings, seconds?: number, bandwidth?: number): ScalingRow[] {
  const { batchSize, rl, splitMoments } = settings
  const { host, known, spread } = scalingModel
  const scale = (sizes.values / known.values) * ((batchSize * rl.numGenerations) / known.samples)
  const work = seconds ?? Math.max(known.least, known.seconds * scale)
  const all = sizes.trained + adapterValues(sizes, settings)
  const passed = float32 * (2 * all + (splitMoments ? 2 * all + 2 * sizes.trained : 0))
  return [...largestOf].map(([processes, largest]) => {
    const bytes = (passed * (processes - 1)) / processes
    const sending = bytes / (bandwidth ?? (processes <= host.gpus ? host.inside : host.beyond))
    const waiting = spread * largest * work
    return { processes, bytes, sending, waiting, efficiency: work / (work + sending + waiting) }
  })
}
