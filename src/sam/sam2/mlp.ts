import { Linear, Module } from '../../nn/index.ts'
import type { Tensor } from '../../tensor/index.ts'

type Activation = 'relu' | 'gelu'

/** Linear layers with an activation between them, none after the last. */
export class Mlp extends Module {
  readonly layers: Linear[]
  readonly #activation: Activation

  /** `widths`: input, hidden .., output. */
  constructor(widths: readonly number[], activation: Activation) {
    super()
    this.layers = widths.slice(1).map((out, i) => new Linear(widths[i]!, out))
    this.#activation = activation
  }

  forward(x: Tensor): Tensor {
    const last = this.layers.length - 1
    return this.layers.reduce((h, layer, i) => {
      const y = layer.forward(h)
      if (i === last) return y
      return this.#activation === 'gelu' ? y.gelu() : y.relu()
    }, x)
  }
}
