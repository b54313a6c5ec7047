// Layers. B batch, T tokens, D features, C channels, H W rows and columns.
import { copyAll, type DType, embedding, empty, keep, rmsNorm, type Tensor, tidyNoGrad } from '../tensor/index.ts'
import type { Adapter } from './lora.ts'
import { Module, weight } from './module.ts'
import { isQuantized, multiplyQuantized } from './quantized.ts'

/** Copies of weights in the dtype of activations, for a time in which the weights stay as they are. */
let copies: ReadonlyMap<Tensor, Tensor> = new Map()

/** A weight in the activation's dtype: trainable ones are float32 masters over bf16 activations. */
export function cast(w: Tensor, x: Tensor): Tensor {
  if (w.dtype === x.dtype) return w
  const copy = copies.get(w)
  return copy?.dtype === x.dtype ? copy : w.to(x.dtype)
}

/** Places for copies of float32 weights in a narrower dtype: one launch for all of them, instead of one for each time a layer reads a weight. */
export class CastCopies {
  readonly #places: readonly Tensor[]

  constructor(like: readonly Tensor[], dtype: DType) {
    this.#places = like.map(({ shape, device }) => keep(empty([...shape], { dtype, device })))
  }

  /** Runs `fn`, which leaves these weights as they are and records no gradient. */
  during<R>(weights: readonly Tensor[], fn: () => R): R {
    const before = copies
    tidyNoGrad(() => copyAll(this.#places, weights))
    copies = new Map(weights.map((w, i) => [w, this.#places[i]!]))
    try {
      return fn()
    } finally {
      copies = before
    }
  }

  dispose(): void {
    for (const place of this.#places) place.dispose()
  }
}

export class Linear extends Module {
  readonly inFeatures: number
  weight: Tensor // [out, in]; in 8 or 4 bit as quantized.ts says
  weight_scale?: Tensor // of a quantized weight
  bias?: Tensor // [out]
  lora_A?: Adapter
  lora_B?: Adapter
  /** Set with the adapters: alpha / r, dropout, and whether they take part. */
  #adapter: AdapterState | undefined

  constructor(inFeatures: number, outFeatures: number, options: { bias?: boolean } = {}) {
    super()
    this.inFeatures = inFeatures
    this.weight = weight(outFeatures, inFeatures)
    if (options.bias ?? true) this.bias = weight(outFeatures)
  }

  forward(x: Tensor): Tensor {
    const bias = this.bias ? cast(this.bias, x) : null
    const y = isQuantized(this.weight)
      ? multiplyQuantized(x, { numbers: this.weight, scale: this.weight_scale! }, bias)
      : x.linear(cast(this.weight, x), { bias }) // [.., out]
    const state = this.#adapter
    if (!state?.enabled || !this.lora_A || !this.lora_B) return y
    const input = state.dropout > 0 ? x.dropout(state.dropout, true) : x
    const delta = input.linear(cast(this.lora_A.weight, x)).linear(cast(this.lora_B.weight, x))
    return y.add(delta, { alpha: state.scale })
  }

  get adapter(): AdapterState | undefined {
    return this.#adapter
  }

  setAdapter(state: AdapterState | undefined): void {
    this.#adapter = state
  }
}

/** Shared by all adapters of a model: switching it switches them all. */
export interface AdapterState {
  rank: number
  alpha: number
  scale: number
  dropout: number
  enabled: boolean
}

export class Embedding extends Module {
  weight: Tensor // [V, D]

  constructor(count: number, dim: number) {
    super()
    this.weight = weight(count, dim)
  }

  forward(ids: Tensor): Tensor {
    return embedding(this.weight, ids)
  }
}

export class LayerNorm extends Module {
  weight: Tensor
  bias: Tensor
  readonly eps: number

  constructor(dim: number, eps: number) {
    super()
    this.weight = weight(dim)
    this.bias = weight(dim)
    this.eps = eps
  }

  forward(x: Tensor): Tensor {
    return x.layerNorm(this.weight.shape, { weight: cast(this.weight, x), bias: cast(this.bias, x), eps: this.eps })
  }
}

export class RMSNorm extends Module {
  weight: Tensor
  readonly #eps: number

  constructor(dim: number, eps: number) {
    super()
    this.weight = weight(dim)
    this.#eps = eps
  }

  get eps(): number {
    return this.#eps
  }

  forward(x: Tensor): Tensor {
    return rmsNorm(x, cast(this.weight, x), this.#eps)
  }
}

/** Normalises over the channels of each pixel, [B, C, H, W]. */
export class LayerNorm2d extends Module {
  weight: Tensor
  bias: Tensor
  readonly #eps: number

  constructor(channels: number, eps = 1e-6) {
    super()
    this.weight = weight(channels)
    this.bias = weight(channels)
    this.#eps = eps
  }

  forward(x: Tensor): Tensor {
    const centred = x.sub(x.mean(1, { keepdim: true }))
    const spread = centred.pow(2).mean(1, { keepdim: true }).add(this.#eps).sqrt()
    const scaled = cast(this.weight, x).view([1, -1, 1, 1]).mul(centred.div(spread))
    return scaled.add(cast(this.bias, x).view([1, -1, 1, 1]))
  }
}

export class Conv2d extends Module {
  weight: Tensor // [out, in / groups, kH, kW]
  bias?: Tensor
  readonly #stride: number
  readonly #padding: number
  readonly #groups: number

  constructor(
    inChannels: number,
    outChannels: number,
    kernel: number,
    options: { stride?: number; padding?: number; bias?: boolean; groups?: number } = {},
  ) {
    super()
    this.#groups = options.groups ?? 1
    this.weight = weight(outChannels, inChannels / this.#groups, kernel, kernel)
    if (options.bias ?? true) this.bias = weight(outChannels)
    this.#stride = options.stride ?? 1
    this.#padding = options.padding ?? 0
  }

  forward(x: Tensor): Tensor {
    const bias = this.bias ? cast(this.bias, x) : null
    return x.conv2d(cast(this.weight, x), {
      bias,
      stride: this.#stride,
      padding: this.#padding,
      groups: this.#groups,
    })
  }
}

export class ConvTranspose2d extends Module {
  weight: Tensor // [in, out, kH, kW]
  bias: Tensor
  readonly #stride: number

  constructor(inChannels: number, outChannels: number, kernel: number, options: { stride?: number } = {}) {
    super()
    this.weight = weight(inChannels, outChannels, kernel, kernel)
    this.bias = weight(outChannels)
    this.#stride = options.stride ?? 1
  }

  forward(x: Tensor): Tensor {
    return x.convTranspose2d(cast(this.weight, x), { bias: cast(this.bias, x), stride: this.#stride })
  }
}

/** A weight without a layer around it that the checkpoint stores as `name.weight`. */
export class WeightOnly extends Module {
  weight: Tensor

  constructor(...shape: number[]) {
    super()
    this.weight = weight(...shape)
  }
}
