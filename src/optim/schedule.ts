import { Mismatch } from '../core/index.ts'
import type { OptimConfig } from './config.ts'

type ScheduleConfig = Pick<
  OptimConfig,
  'learningRate' | 'lrSchedulerType' | 'warmupSteps' | 'numCycles' | 'minLrRate' | 'lrEnd' | 'power' | 'timescale'
>

/** A share below 1 of the run, rounded up; else the steps themselves. */
export function warmupStepsOf(warmup: number, total: number): number {
  if (warmup > 0 && warmup < 1) return Math.ceil(warmup * total)
  if (Number.isInteger(warmup)) return warmup
  const expected = 'whole steps, or a share of the run below 1'
  throw new Mismatch({ where: 'schedule', field: 'warmupSteps', expected, got: warmup })
}

/** Learning rate of optimizer step `step` (0 is the first) in a run of `total` steps. With warm-up the first step has rate 0. */
export function learningRateAt(step: number, config: ScheduleConfig, total: number): number {
  const warmup = warmupStepsOf(config.warmupSteps, total)
  if (config.lrSchedulerType !== 'constant' && step < warmup) return config.learningRate * (step / Math.max(1, warmup))
  return config.learningRate * factorAfterWarmup(step, warmup, total, config)
}

function factorAfterWarmup(step: number, warmup: number, total: number, c: ScheduleConfig): number {
  const span = Math.max(1, total - warmup)
  const progress = (step - warmup) / span
  switch (c.lrSchedulerType) {
    case 'constant':
    case 'constant_with_warmup':
      return 1
    case 'linear':
      return Math.max(0, (total - step) / span)
    case 'cosine':
      return Math.max(0, wave(2 * (c.numCycles ?? 0.5) * progress))
    case 'cosine_with_min_lr':
      return Math.max(0, wave(2 * (c.numCycles ?? 0.5) * progress) * (1 - c.minLrRate) + c.minLrRate)
    case 'cosine_with_restarts':
      return progress >= 1 ? 0 : Math.max(0, wave(((c.numCycles ?? 1) * progress) % 1))
    case 'polynomial':
      return polynomial(progress, c)
    case 'inverse_sqrt': {
      const timescale = c.timescale ?? (warmup || 10_000)
      return 1 / Math.sqrt((step + timescale - warmup) / timescale)
    }
  }
}

/** 1 at 0, 0 at 1. */
function wave(x: number): number {
  return 0.5 * (1 + Math.cos(Math.PI * x))
}

function polynomial(progress: number, c: ScheduleConfig): number {
  if (c.learningRate <= c.lrEnd) {
    const expected = `above lrEnd (${c.lrEnd})`
    throw new Mismatch({ where: 'schedule', field: 'learningRate', expected, got: c.learningRate })
  }
  if (progress > 1) return c.lrEnd / c.learningRate
  return ((c.learningRate - c.lrEnd) * (1 - progress) ** c.power + c.lrEnd) / c.learningRate
}
