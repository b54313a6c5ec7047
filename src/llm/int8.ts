import type { OpenOptions } from '../checkpoint/index.ts'
import { type FrozenForm, linears, type Slot } from '../nn/index.ts'
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

/** What loading stores in 8 bit. */
export function int8Slots(decoder: Decoder, form: FrozenForm | undefined): ((slot: Slot) => boolean) | undefined {
  return form === 'int8' ? layerMatrices(decoder) : undefined
}
