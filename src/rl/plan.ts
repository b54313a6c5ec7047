// When prompts are generated for and which micro-batch of a generation batch is trained on.
import { Mismatch } from '../core/index.ts'

export interface GenerationSizes {
  numGenerations: number
  /** Rows of a generation batch, all processes together. */
  generationBatchSize: number
  numIterations: number
  stepsPerGeneration: number
  gradientAccumulationSteps: number
}

export interface GenerationPlan {
  promptsPerGeneration: number
  microStepsPerEpoch: number
  optimizerStepsPerEpoch: number
  /** Whether log-probabilities of the generating weights must be kept; else the ratio is 1 by construction. */
  needsOldLogps: boolean
  generatesAt(microStep: number): boolean
  sliceAt(microStep: number): number
}

export function needsOldLogps(
  s: Pick<GenerationSizes, 'gradientAccumulationSteps' | 'stepsPerGeneration' | 'numIterations'>,
): boolean {
  return s.gradientAccumulationSteps % (s.stepsPerGeneration * s.numIterations) !== 0
}

/** Prompts of a dataset that do not fill the last generation batch are left for the next epoch's permutation. */
export function generationPlan(datasetSize: number, sizes: GenerationSizes): GenerationPlan {
  const promptsPerGeneration = promptsOf(sizes)
  const period = sizes.stepsPerGeneration * sizes.numIterations
  const microStepsPerEpoch = Math.floor(datasetSize / promptsPerGeneration) * period
  return {
    promptsPerGeneration,
    microStepsPerEpoch,
    optimizerStepsPerEpoch: Math.ceil(microStepsPerEpoch / sizes.gradientAccumulationSteps),
    needsOldLogps: needsOldLogps(sizes),
    generatesAt: (s) => s % period === 0,
    sliceAt: (s) => s % sizes.stepsPerGeneration,
  }
}

/** Dataset indices of an epoch, one per row and micro-step, in TRL's order: each index K times, each chunk spg * mu times. */
export function repeatOrder(indices: readonly number[], sizes: GenerationSizes): number[] {
  const prompts = promptsOf(sizes)
  const out: number[] = []
  for (let start = 0; start + prompts <= indices.length; start += prompts) {
    const chunk = indices.slice(start, start + prompts)
    const rows = chunk.flatMap((index) => new Array<number>(sizes.numGenerations).fill(index))
    for (let i = 0; i < sizes.stepsPerGeneration * sizes.numIterations; i++) out.push(...rows)
  }
  return out
}

function promptsOf({ generationBatchSize, numGenerations }: GenerationSizes): number {
  if (generationBatchSize % numGenerations === 0) return generationBatchSize / numGenerations
  const expected = `a multiple of numGenerations (${numGenerations})`
  throw new Mismatch({ where: 'generation', field: 'generationBatchSize', expected, got: generationBatchSize })
}
