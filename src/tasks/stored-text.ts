import type { Json, Sample } from '../rl/index.ts'

/** A sampled text as it is kept in a checkpoint. */
export function storeText({ ids, text, finished, logps, samplerLogps }: Sample): Json {
  const sampler = samplerLogps && { samplerLogps: [...samplerLogps] }
  return { ids: [...ids], text, finished, logps: [...logps], ...sampler }
}

export function restoreText(stored: Json): Sample {
  type Stored = { ids: number[]; text: string; finished: boolean; logps: number[]; samplerLogps?: number[] }
  const { ids, logps, samplerLogps, text, finished } = stored as Stored
  const sampler = samplerLogps && { samplerLogps: Float32Array.from(samplerLogps) }
  return { ids: Int32Array.from(ids), text, finished, logps: Float32Array.from(logps), ...sampler }
}
