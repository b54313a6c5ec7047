// The weights of a decoder as kernels of ours read them, or why they cannot. S hidden, I feed-forward, V vocabulary.
import { type DecodeShape, kernelsOff, noKernels, unsupportedShape } from '../../kernels/index.ts'
import { isInt8, isPacked, Linear, type Pack, packedWeight, packInPlace, type RMSNorm } from '../../nn/index.ts'
import { cat, keep, noGrad, type Tensor, tidy, zeros } from '../../tensor/index.ts'
import type { FusedLayer } from './causal-lm.ts'
import type { Decoder } from './model.ts'

export interface LayerWeights {
  inputNorm: Tensor
  qkv: Tensor // [(H + 2K) D, S]
  bias: Tensor | null
  out: Tensor // [S, H D]
  queryNorm: Tensor | null
  keyNorm: Tensor | null
  outputNorm: Tensor
  gateUp: Tensor // [2I, S]
  down: Tensor // [S, I]
}

export interface FusedWeights {
  layers: LayerWeights[]
  norm: Tensor
  head: Tensor // [V, S]
  embedding: Tensor
}

export function shapeOf({ cfg }: Decoder): DecodeShape {
  return {
    hidden: cfg.hidden_size,
    inner: cfg.intermediate_size,
    heads: cfg.num_attention_heads,
    groups: cfg.num_key_value_heads,
    dim: cfg.head_dim,
  }
}

const adapted = (linear: Linear) => linear.lora_A !== undefined && linear.adapter?.enabled === true

/** Why the kernels cannot take over a decoder's layers on any device; null where they can. */
export function otherLayers(decoder: Decoder): string | null {
  const hasAll = decoder.module.parts.layers.every((layer) => layer.fused)
  return hasAll ? unsupportedShape(shapeOf(decoder)) : `${decoder.cfg.architectures[0]} has another layout`
}

/** Why a decoder is not for the kernels where it is, whatever its weights are; null where it is. */
export function notCovered(decoder: Decoder): string | null {
  const { device, dtype } = decoder.placement
  if (dtype !== 'bfloat16') return `they are written for bfloat16, not ${dtype}`
  return kernelsOff() ?? noKernels(device) ?? otherLayers(decoder)
}

/** The same for the weights as they are now. Frozen weights may be packed on the way. */
export function notFused(decoder: Decoder): string | null {
  const reason = notCovered(decoder)
  if (reason) return reason
  const { layers, head, norm, embedding } = decoder.module.parts
  const fused = layers.map((layer) => layer.fused!)
  const all = fused.flatMap(linearsOf)
  if ([...all, head].some((layer) => layer instanceof Linear && adapted(layer)))
    return 'adapters are apart from their layers (sampling.weights)'
  if (fused.some(({ attention, mlp }) => [attention.out, ...mlp.gateUp, mlp.down].some((linear) => linear.bias)))
    return 'biases of other products than q, k, v'
  const tensors = [...all, ...fused.flatMap(normsOf), head, norm, embedding].map((layer) => layer.weight)
  const biases = all.flatMap((linear) => linear.bias ?? [])
  if (tensors.some(isInt8)) return 'weights stored in 8 bit (frozenWeights)'
  if ([...tensors, ...biases].some((t) => t.dtype !== 'bfloat16')) return 'weights that train in float32'
  const apart = fused.flatMap(({ attention, mlp }) => [attention.qkv, mlp.gateUp]).filter((pack) => !isPacked(pack))
  if (apart.some((pack) => pack.some((linear) => linear.lora_A || linear.weight.requiresGrad)))
    return 'weights that train lie apart'
  for (const pack of apart) packInPlace(pack)
  return null
}

const linearsOf = ({ attention, mlp }: FusedLayer): Linear[] => [
  ...attention.qkv,
  attention.out,
  ...mlp.gateUp,
  mlp.down,
]
const normsOf = ({ inputNorm, outputNorm, attention }: FusedLayer): RMSNorm[] =>
  [inputNorm, outputNorm, attention.queryNorm, attention.keyNorm].filter((norm) => norm !== null)

/** As they are now. Biases are copies, and packed weights second handles; these are the caller's, see freeWeights. */
function fusedWeights(decoder: Decoder): FusedWeights {
  const { layers, norm, head, embedding } = decoder.module.parts
  return {
    layers: layers.map(({ fused }) => weightsOf(fused!)),
    norm: norm.weight,
    head: head.weight,
    embedding: embedding.weight,
  }
}

function weightsOf({ inputNorm, attention, outputNorm, mlp }: FusedLayer): LayerWeights {
  return {
    inputNorm: inputNorm.weight,
    qkv: keep(packedWeight(attention.qkv)),
    bias: biasOf(attention.qkv),
    out: attention.out.weight,
    queryNorm: attention.queryNorm?.weight ?? null,
    keyNorm: attention.keyNorm?.weight ?? null,
    outputNorm: outputNorm.weight,
    gateUp: keep(packedWeight(mlp.gateUp)),
    down: mlp.down.weight,
  }
}

function biasOf(pack: Pack): Tensor | null {
  const biases = pack.flatMap((linear) => linear.bias ?? [])
  return biases.length > 0 ? keep(noGrad(() => tidy(() => cat(biases).to(pack[0]!.weight.dtype)))) : null
}

function freeWeights({ layers }: FusedWeights): void {
  for (const { qkv, bias, gateUp } of layers) for (const t of [qkv, bias, gateUp]) t?.dispose()
}

/** Handles of everything a recording reads. */
function fingerprint(decoder: Decoder): string {
  const { layers, norm, head, embedding } = decoder.module.parts
  const read = layers.flatMap(({ fused }) => [...linearsOf(fused!), ...normsOf(fused!)])
  const biases = layers.flatMap(({ fused }) => fused!.attention.qkv.map((linear) => linear.bias))
  return [...[...read, norm, head, embedding].map((layer) => layer.weight), ...biases].map((t) => t?.handle).join()
}

const current = new Map<Decoder, { of: string; weights: FusedWeights }>()

/** As they are now, one set for all who read. Another set, also behind a change there and back: what was recorded with the one before is void. */
export function currentWeights(decoder: Decoder): FusedWeights {
  const of = fingerprint(decoder)
  const known = current.get(decoder)
  if (known?.of === of) return known.weights
  if (known) freeWeights(known.weights)
  const weights = fusedWeights(decoder)
  current.set(decoder, { of, weights })
  return weights
}

const padded = new Map<Decoder, { from: number; weight: Tensor }>()

/** The head with zero rows up to a multiple of 64, which the library's products want; one copy a decoder. */
export function paddedHead(decoder: Decoder, head: Tensor): Tensor {
  const V = head.size(0)
  if (V % 64 === 0) return head
  const known = padded.get(decoder)
  if (known?.from === head.handle) return known.weight
  known?.weight.dispose()
  const { device, dtype } = head
  const rows = Math.ceil(V / 64) * 64 - V
  const weight = keep(noGrad(() => tidy(() => cat([head, zeros([rows, head.size(1)], { device, dtype })]))))
  padded.set(decoder, { from: head.handle, weight })
  return weight
}

/** Before the decoder's weights go. */
export function forgetWeights(decoder?: Decoder): void {
  for (const [owner, { weights }] of current)
    if (!decoder || owner === decoder) {
      freeWeights(weights)
      current.delete(owner)
    }
  for (const [owner, { weight }] of padded)
    if (!decoder || owner === decoder) {
      weight.dispose()
      padded.delete(owner)
    }
}
