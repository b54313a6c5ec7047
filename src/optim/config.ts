import { z } from 'zod'

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
  learningRate: z.number().nonnegative().default(1e-5).describe('largest learning rate'),
  lrSchedulerType: z.enum(schedulers).default('constant').describe('how the learning rate changes over the run'),
  warmupSteps: z
    .number()
    .nonnegative()
    .default(0)
    .describe('optimizer steps of warm-up; below 1 it is a share of the run'),
  numCycles: z
    .number()
    .positive()
    .nullable()
    .default(null)
    .describe('cosine: 0.5 if null; cosine_with_restarts: 1 if null'),
  minLrRate: z.number().min(0).max(1).default(0).describe('cosine_with_min_lr: last factor of the learning rate'),
  lrEnd: z.number().nonnegative().default(1e-7).describe('polynomial: last learning rate'),
  power: z.number().positive().default(1).describe('polynomial: exponent'),
  timescale: z
    .number()
    .positive()
    .nullable()
    .default(null)
    .describe('inverse_sqrt: steps; null: the warm-up, or 10000'),
  adamBeta1: z.number().min(0).lt(1).default(0.9).describe('decay of the first moment'),
  adamBeta2: z.number().min(0).lt(1).default(0.999).describe('decay of the second moment'),
  adamEpsilon: z.number().positive().default(1e-8).describe('added to the denominator'),
  weightDecay: z.number().nonnegative().default(0).describe('decoupled; never on biases and norms'),
  maxGradNorm: z.number().nonnegative().default(1).describe('gradients are scaled to this norm at most; 0 is off'),
  emaDecay: z.number().min(0).lt(1).default(0.999).describe('share of itself that the EMA copy keeps at each step'),
})
export type OptimConfig = z.infer<typeof OptimConfig>
