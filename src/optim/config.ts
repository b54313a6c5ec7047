import { z } from 'zod'
import { optional, setting } from '../config/index.ts'

const schedulers = [
  'constant',
  'constant_with_warmup',
  'linear',
  'cosine',
  'cosine_with_restarts',
  'cosine_with_min_lr',
  'polynomial',
  'inverse_sqrt',
] as const
export type SchedulerType = (typeof schedulers)[number]

export const OptimConfig = z.strictObject({
  learningRate: setting(z.number().nonnegative(), 1e-5, 'largest learning rate'),
  lrSchedulerType: setting(z.enum(schedulers), 'constant', 'how the learning rate changes over the run'),
  warmupSteps: setting(z.number().nonnegative(), 0, 'optimizer steps of warm-up; below 1 it is a share of the run'),
  numCycles: optional(z.number().positive(), 'cosine: 0.5 if null; cosine_with_restarts: 1 if null'),
  minLrRate: setting(z.number().min(0).max(1), 0, 'cosine_with_min_lr: last factor of the learning rate'),
  lrEnd: setting(z.number().nonnegative(), 1e-7, 'polynomial: last learning rate'),
  power: setting(z.number().positive(), 1, 'polynomial: exponent'),
  timescale: optional(z.number().positive(), 'inverse_sqrt: steps; null: the warm-up, or 10000'),
  adamBeta1: setting(z.number().min(0).lt(1), 0.9, 'decay of the first moment'),
  adamBeta2: setting(z.number().min(0).lt(1), 0.999, 'decay of the second moment'),
  adamEpsilon: setting(z.number().positive(), 1e-8, 'added to the denominator'),
  weightDecay: setting(z.number().nonnegative(), 0, 'decoupled; never on biases and norms'),
  maxGradNorm: setting(z.number().nonnegative(), 1, 'gradients are scaled to this norm at most; 0 is off'),
  emaDecay: setting(z.number().min(0).lt(1), 0.999, 'share of itself that the EMA copy keeps at each step'),
})
export type OptimConfig = z.infer<typeof OptimConfig>
