// Weights that move: AdamW, the moving average of weights, learning-rate schedules and their settings. Knows no model.
// May import tensor, nn, core and config.
// Start reading at adamw.ts.
export { AdamW, type AdamWOptions, adamwOf, clipCoefficient, decayGroups, type ParamGroup } from './adamw.ts'
export { OptimConfig, type SchedulerType } from './config.ts'
export { Ema, type EmaOptions } from './ema.ts'
export { learningRateAt, type ScheduleConfig, warmupStepsOf } from './schedule.ts'
