import type { OpenOptions } from '../checkpoint/index.ts'
import { widenOn } from '../kernels/index.ts'
import { type FrozenForm, linears, type Slot, widenWith } from '../nn/index.ts'
import type { Decoder } from './model.ts'

export interface DecoderOpenOptions extends OpenOptions {
  /** How the matrices of the decoder's layers are stored; exactly if absent. */
  frozenWeights?: FrozenForm
}

/** The matrices of the decoder's layers. Norms, biases, embeddings and head are not among them. */
export function layerMatrices({ module }: Decoder): (slot: Slot) => boolean {
  const inside = new Set<object>(module.parts.layers.flatMap((layer) => linears(layer).map(([, linear]) => linear)))
  return ({ owner, key }) => key === 'weight' && inside.has(owner)
}

/** How loading stores each weight. */
export function formsOf(decoder: Decoder, form: FrozenForm = 'exact'): (slot: Slot) => FrozenForm {
  const isMatrix = layerMatrices(decoder)
  return (slot) => (isMatrix(slot) ? form : 'exact')
}

widenWith(widenOn)
