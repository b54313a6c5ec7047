// From the settings of a run to how its model answers: the same for every task.
import type { RandomStream } from '../core/index.ts'
import type { GenerateOptions } from '../llm/index.ts'
import type { GrpoConfig } from '../rl/index.ts'

/** The settings that decide what is drawn, and whether the loss needs to know the distribution it was drawn from. */
export type SamplerSettings = Pick<
  GrpoConfig,
  'temperature' | 'topK' | 'topP' | 'minP' | 'repetitionPenalty' | 'rolloutCorrection' | 'offPolicyMaskThreshold'
>

/** K samples of each prompt, each with its own random numbers. */
export interface SampleOptions {
  rl: SamplerSettings
  samples: number
  random: (row: number, k: number) => RandomStream
}

/** Without `sampled` the answers are greedy. */
export function generateOptions(maxNewTokens: number, stopStrings: readonly string[], sampled?: SampleOptions) {
  if (!sampled) return { maxNewTokens, stopStrings, samples: 1 } satisfies GenerateOptions
  const { rl, samples, random } = sampled
  const { temperature, topK, topP, minP, repetitionPenalty } = rl
  const samplerLogps = rl.rolloutCorrection !== null || rl.offPolicyMaskThreshold !== null
  const sampling = { temperature, topK, topP, minP, repetitionPenalty }
  return { maxNewTokens, stopStrings, samples, samplerLogps, sampling, random } satisfies GenerateOptions
}
