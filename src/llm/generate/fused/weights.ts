// The weights of a decoder as the custom kernels read them, or why they cannot. S hidden, I feed-forward, V vocabulary.
import { coversColumns, type DecodeShape, kernelsOff, noKernels, unsupportedShape } from '../../../kernels/index.ts'
import {
  bitsOf,
  isPacked,
  isQuantized,
  Linear,
  type Pack,
  packedWeight,
  packInPlace,
  type RMSNorm,
} from '../../../nn/index.ts'
import { cat, keep, products, type Tensor, tidyNoGrad, zeros } from '../../../tensor/index.ts'
import type { FusedLayer } from '../../causal-lm.ts'
import type { Decoder } from '../../model.ts'
import { adapted, QuantizedProduct, rankOf, refresh } from './quantized-product.ts'

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
  /** Of matrices in 8 or 4 bit, whose numbers alone are above. */
  quantized: Record<MatrixName, QuantizedProduct> | null
}

type MatrixName = 'qkv' | 'out' | 'gateUp' | 'down'

export interface FusedWeights {
  layers: LayerWeights[]
  norm: Tensor
  head: Tensor // [V, S]
  embedding: Tensor
}

export function shapeOf({ cfg }: Decoder): DecodeShape {
  const { hidden_size: hidden, intermediate_size: inner, head_dim: dim } = cfg
  return { hidden, inner, heads: cfg.num_attention_heads, groups: cfg.num_key_value_heads, dim }
}

/** Why the kernels cannot take over a decoder's layers on any device; null if they can. */
export function otherLayers(decoder: Decoder): string | null {
  const hasAll = decoder.module.parts.layers.every((layer) => layer.fused)
  return hasAll ? unsupportedShape(shapeOf(decoder)) : `${decoder.cfg.architectures[0]} has another layout`
}

/** Why a decoder is not for the kernels where it is, whatever its weights are; null if it is. */
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
  const quantized = all.some((linear) => isQuantized(linear.weight))
  if ([...(quantized ? [] : all), head].some((layer) => layer instanceof Linear && adapted(layer)))
    return 'adapters are apart from their layers (sampling.weights)'
  if (fused.some(({ attention, mlp }) => [attention.out, ...mlp.gateUp, mlp.down].some((linear) => linear.bias)))
    return 'biases of other products than q, k, v'
  const unsuited = quantized ? notQuantized(all) : null
  if (unsuited) return unsuited
  const others = [...fused.flatMap(normsOf), head, norm, embedding].map((layer) => layer.weight)
  const tensors = [...others, ...all.map(({ weight, weight_scale }) => weight_scale ?? weight)]
  const biases = all.flatMap((linear) => linear.bias ?? [])
  if ([...tensors, ...biases].some((t) => t.dtype !== 'bfloat16')) return 'weights that train in float32'
  const apart = fused.flatMap(({ attention, mlp }) => [attention.qkv, mlp.gateUp]).filter((pack) => !isPacked(pack))
  if (!quantized && apart.some((pack) => pack.some((linear) => linear.lora_A || linear.weight.requiresGrad)))
    return 'weights that train lie apart'
  for (const pack of apart) packInPlace(pack)
  return null
}

/** Why quantized matrices cannot be multiplied as they are; null if they can. */
function notQuantized(all: readonly Linear[]): string | null {
  const bits = bitsOf(all[0]!.weight)
  if (!bits || all.some(({ weight }) => bitsOf(weight) !== bits)) return 'matrices are stored in different bits'
  if (all.some((linear) => adapted(linear) && linear.adapter!.dropout > 0)) return 'adapters with dropout'
  const other = all.map(({ inFeatures }) => inFeatures).find((columns) => !coversColumns(columns, bits))
  return other === undefined ? null : `matrices of ${other} columns in ${bits} bit`
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
  const rank = rankOf(layers.flatMap(({ fused }) => linearsOf(fused!)))
  return {
    layers: layers.map(({ fused }) => weightsOf(fused!, rank)),
    norm: norm.weight,
    head: head.weight,
    embedding: embedding.weight,
  }
}

function weightsOf({ inputNorm, attention, outputNorm, mlp }: FusedLayer, rank: number): LayerWeights {
  const product = (...pack: Pack) => new QuantizedProduct(pack, rank)
  const inner = () => ({ qkv: product(...attention.qkv), out: product(attention.out) })
  const outer = () => ({ gateUp: product(...mlp.gateUp), down: product(mlp.down) })
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
    quantized: isQuantized(mlp.down.weight) ? { ...inner(), ...outer() } : null,
  }
}

/** The product of rows with a matrix of a layer, in whatever form it is stored. */
export function multiply(x: Tensor, weights: LayerWeights, name: MatrixName): Tensor {
  const bias = name === 'qkv' ? weights.bias : null
  return weights.quantized ? weights.quantized[name].of(x, bias) : x.linear(weights[name], { bias })
}

/** The same, or its sums over parts of the columns [parts, R, out] in float32: a product of few rows and outputs takes less time in parts. */
export function multiplyInParts(x: Tensor, weights: LayerWeights, name: 'out' | 'down'): Tensor {
  const { [name]: weight, quantized } = weights
  const parts = [4, 2].find((n) => weight.size(0) * n <= 8192 && x.size(1) % (8 * n) === 0)
  if (quantized || !parts || x.size(0) > 64) return multiply(x, weights, name)
  return products([{ a: { of: x }, b: { of: weight, transposed: true }, parts }])[0]!
}

function biasOf(pack: Pack): Tensor | null {
  const biases = pack.flatMap((linear) => linear.bias ?? [])
  const { weight, weight_scale } = pack[0]!
  return biases.length > 0 ? keep(tidyNoGrad(() => cat(biases).to((weight_scale ?? weight).dtype))) : null
}

function freeWeights({ layers }: FusedWeights): void {
  for (const { qkv, bias, gateUp, quantized } of layers)
    for (const t of [qkv, bias, gateUp, ...Object.values(quantized ?? {})]) t?.dispose()
}

/** Handles of everything a recording reads, and which adapters have copies that it reads. */
function fingerprint(decoder: Decoder): string {
  const { layers, norm, head, embedding } = decoder.module.parts
  const read = layers.flatMap(({ fused }) => [...linearsOf(fused!), ...normsOf(fused!)])
  const biases = layers.flatMap(({ fused }) => fused!.attention.qkv.map((linear) => linear.bias))
  const weights = [...[...read, norm, head, embedding].map((layer) => layer.weight), ...biases].map((t) => t?.handle)
  const copied = layers.flatMap(({ fused }) => linearsOf(fused!).map((l) => adapted(l) && l.lora_A!.weight.size(0)))
  return [...weights, ...copied].join()
}

const current = new Map<Decoder, { of: string; weights: FusedWeights }>()

/** As they are now, one set for all who read. Another set, also after a change there and back, invalidates what was recorded with the previous one. */
export function currentWeights(decoder: Decoder): FusedWeights {
  const of = fingerprint(decoder)
  const known = current.get(decoder)
  if (known && known.of !== of) freeWeights(known.weights)
  const weights = known?.of === of ? known.weights : fusedWeights(decoder)
  current.set(decoder, { of, weights })
  for (const { quantized } of weights.layers) refresh(Object.values(quantized ?? {}))
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
  const weight = keep(tidyNoGrad(() => cat([head, zeros([rows, head.size(1)], { device, dtype })])))
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
