import type { Tensor } from '../tensor/index.ts'
import type { GrpoConfig } from './config.ts'

/**
 * Entropy above which a token is in the top share q: the (1 - q) quantile of the unmasked tokens, linear between ranks. With
 * several processes the caller gathers the entropies first. NaN when no token is unmasked.
 */
export function entropyThreshold(entropies: Tensor, mask: Tensor, q: number): number {
  const values = entropies.maskedSelect(mask)
  return values.numel === 0 ? Number.NaN : values.quantile(1 - q).item()
}

export interface EntropyState {
  coef: number
  /** Token-weighted entropy of the last optimizer step, all micro-steps and processes; null before the first. */
  last: number | null
}

export function initialEntropyState(config: Pick<GrpoConfig, 'entropyCoef'>): EntropyState {
  return { coef: config.entropyCoef, last: null }
}

type Adaptive = Pick<
  GrpoConfig,
  'useAdaptiveEntropy' | 'entropyTarget' | 'entropyCoefDelta' | 'entropyCoefMin' | 'entropyCoefMax'
>

/** The coefficient to use in the coming step: with adaptation only while the last entropy is at or below the target. */
export function currentEntropyCoef(state: EntropyState, config: Adaptive): number {
  if (!config.useAdaptiveEntropy) return state.coef
  return state.last !== null && state.last <= config.entropyTarget ? state.coef : 0
}

/** After an optimizer step: the coefficient grows while the entropy is low and shrinks while it is high. */
export function adaptEntropy(state: EntropyState, entropy: number, config: Adaptive): EntropyState {
  if (!config.useAdaptiveEntropy) return { coef: state.coef, last: entropy }
  const { entropyCoefDelta: delta, entropyCoefMin: min, entropyCoefMax: max } = config
  const low = entropy <= config.entropyTarget
  return { coef: low ? Math.min(state.coef + delta, max) : Math.max(state.coef - delta, min), last: entropy }
}
