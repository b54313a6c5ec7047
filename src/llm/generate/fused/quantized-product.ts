// Matrices in 8 or 4 bit as the custom kernels multiply or widen them. Adapters cannot be merged into rounded numbers: products of few rows
// add them, wide matrices contain them.
// R rows, N features, K columns, r rank.
import { maxQuantizedRows, type QuantizedMatrix, quantizedProduct, widen } from '../../../kernels/index.ts'
import { type Linear, type Pack, packedWeight } from '../../../nn/index.ts'
import { _foreachMul, cat, copyAll, empty, keep, type Tensor, tidy, tidyNoGrad, zeros } from '../../../tensor/index.ts'

/** Whether a layer's adapter takes part. */
export const adapted = (linear: Linear): boolean => linear.lora_A !== undefined && linear.adapter?.enabled === true

/** The largest rank of adapters that take part, up to a multiple of 16; 0 if none does. */
export function rankOf(linears: readonly Linear[]): number {
  const ranks = linears.map((linear) => (adapted(linear) ? linear.lora_A!.weight.size(0) : 0))
  return Math.ceil(Math.max(0, ...ranks) / 16) * 16
}

/** Copies in the dtype of activations that stay in place: a recorded step keeps reading them whatever the role. */
interface Factors {
  down: Tensor // [parts * r, K], times the adapters' scale
  up: Tensor // [N, r]
  /** The place of each adapter in them. */
  places: readonly { linear: Linear; down: Tensor; up: Tensor }[]
}

/** Takes the adapters' values as they are now. */
export function refresh(products: readonly QuantizedProduct[]): void {
  const places = products.flatMap(({ places }) => places)
  if (places.length === 0) return
  const values = (name: 'lora_A' | 'lora_B') => places.map(({ linear }) => linear[name]!.weight)
  tidyNoGrad(() => {
    const scaled = _foreachMul(values('lora_A'), places[0]!.linear.adapter!.scale) // all adapters have one
    copyAll([...places.map(({ down }) => down), ...places.map(({ up }) => up)], [...scaled, ...values('lora_B')])
  })
}

/** The product with the matrices of a pack, which lie together. Its tensors are its own, but for the numbers. */
export class QuantizedProduct {
  readonly #pack: Pack
  readonly #matrix: Omit<QuantizedMatrix, 'bias'>
  readonly #factors: Factors | null
  readonly #rank: number

  constructor(pack: Pack, rank: number) {
    this.#pack = pack
    this.#rank = rank
    this.#matrix = tidyNoGrad(() => ({
      numbers: keep(packedWeight(pack)),
      scale: keep(cat(pack.map((linear) => linear.weight_scale!))),
    }))
    this.#factors = pack.some(adapted) ? this.#roomForFactors() : null
  }

  get places(): Factors['places'] {
    return this.#factors?.places ?? []
  }

  /** [R, K] -> [R, N] */
  of(x: Tensor, bias: Tensor | null): Tensor {
    return tidy(() => (x.size(0) > maxQuantizedRows ? this.#ofMany(x, bias) : this.#ofFew(x, bias)))
  }

  #ofFew(x: Tensor, bias: Tensor | null): Tensor {
    const y = empty([x.size(0), this.#matrix.numbers.size(0)], { device: x.device, dtype: x.dtype })
    const low = this.#lowRank((down) => x.linear(down))
    quantizedProduct(x, { ...this.#matrix, bias }, y, low)
    return y
  }

  /** The wide matrix exists for this product only, with the adapters in it. */
  #ofMany(x: Tensor, bias: Tensor | null): Tensor {
    const low = this.#lowRank((down) => down)
    return x.linear(widen(this.#matrix, low), { bias })
  }

  #lowRank(inputs: (down: Tensor) => Tensor) {
    if (!this.#factors) return null
    const { down, up } = this.#factors
    return { inputs: inputs(down), factors: up, parts: this.#pack.map((linear) => linear.weight.size(0)) }
  }

  #roomForFactors(): Factors {
    const { numbers, scale } = this.#matrix
    const [features, columns] = [numbers.size(0), this.#pack[0]!.inFeatures]
    const make = (...shape: number[]) => keep(zeros(shape, { device: scale.device, dtype: scale.dtype }))
    const [down, up] = [make(this.#pack.length * this.#rank, columns), make(features, this.#rank)]
    let feature = 0
    const places = this.#pack.flatMap((linear, i) => {
      const [from, own] = [feature, linear.weight.size(0)]
      feature += own
      if (!adapted(linear)) return []
      const rank = linear.lora_A!.weight.size(0)
      const place = () => [down.narrow(0, i * this.#rank, rank), up.narrow(0, from, own).narrow(1, 0, rank)] as const
      const [lower, upper] = tidyNoGrad(place)
      return [{ linear, down: keep(lower), up: keep(upper) }]
    })
    return { down, up, places }
  }

  dispose(): void {
    const { down, up, places } = this.#factors ?? { places: [] }
    const own = [...Object.values(this.#matrix), down, up, ...places.flatMap((place) => [place.down, place.up])]
    for (const t of own) t?.dispose()
  }
}
