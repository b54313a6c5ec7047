import type { GrpoConfig } from './config.ts'

type Sizes = Pick<GrpoConfig, 'gradientAccumulationSteps' | 'numIterations'> & { stepsPerGeneration: number }

/** Whether a generation batch outlives the optimizer step that samples it: then the ratio is not 1 by construction. */
export function needsOldLogps(s: Sizes): boolean {
  return s.gradientAccumulationSteps % (s.stepsPerGeneration * s.numIterations) !== 0
}
