// Weights that move: AdamW, the moving average of weights, learning-rate schedules and their settings. Knows no model.
// May import tensor, nn, core and config.
// Start reading at adamw.ts.
export { AdamW, adamwOf, clipCoefficient, decayGroups, type GradientNorms } from './adamw.ts'
export { OptimConfig, type SchedulerType } from './config.ts'
export { Ema } from './ema.ts'
export { learningRateAt, warmupStepsOf } from './schedule.ts'
