// The sampler against the policy that the loss scores: how far apart they are, and weights that correct for it when asked.
import { type Tensor, where } from '../tensor/index.ts'
import type { GrpoConfig } from './config.ts'
import type { Group } from './group.ts'
import { logpDifference, rolloutWeights } from './rollout.ts'

type Like = (data: Float32Array) => Tensor

/** Values of the tokens that were sampled in rows of [K, T], 0 elsewhere, and 1 where they are. */
function spread({ samples, columns }: Group, of: (sample: Group['samples'][number]) => Float32Array | undefined) {
  const [values, there] = [0, 1].map(() => new Float32Array(samples.length * columns.all)) as [
    Float32Array,
    Float32Array,
  ]
  samples.forEach((sample, k) => {
    const logps = sample.sampled === false ? undefined : of(sample)
    if (!logps || logps.length === 0) return
    values.set(logps, k * columns.all)
    there.fill(1, k * columns.all, k * columns.all + logps.length)
  })
  return { values, there }
}

/** How far the sampler's log-probs are from the scored ones: the alarm for cache, position, padding and rounding faults. */
export function samplerDrift(group: Group, logps: Tensor, like: Like): Record<string, number> {
  const { values, there } = spread(group, (s) => s.logps)
  if (!there.includes(1)) return {}
  return logpDifference(logps.detach(), like(values), like(there))
}

export interface SamplerWeights {
  /** [K, T] or [K, 1]; null: the settings only mask. */
  isRatio: Tensor | null
  /** [K, T] of the distribution that was drawn from; the policy's own if nothing was sampled. */
  logps: Tensor
  metrics: Record<string, number>
}

/** Null where the settings ask for no correction, or nothing was drawn from another distribution. */
export function samplerWeights(rl: GrpoConfig, group: Group, logps: Tensor, like: Like): SamplerWeights | null {
  if (rl.rolloutCorrection === null && rl.offPolicyMaskThreshold === null) return null
  const { values, there } = spread(group, (s) => s.samplerLogps)
  if (!there.includes(1)) return null
  const old = group.old ? like(group.old) : logps.detach()
  const drawn = where(like(there).ne(0), like(values), old.to('float32'))
  if (rl.rolloutCorrection === null) return { isRatio: null, logps: drawn, metrics: {} }
  const options = { mode: rl.rolloutCorrection, min: rl.rolloutMin, max: rl.rolloutMax }
  return { ...rolloutWeights(old, drawn, like(group.columns.mask), options), logps: drawn }
}
