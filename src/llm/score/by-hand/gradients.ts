import type { AdapterState, Linear } from '../../../nn/index.ts'
import { _foreachAdd_, type Tensor } from '../../../tensor/index.ts'

/** Gradients of the adapters of one layer, before they are added to the trained tensors. Every gradient has separate memory. */
export class AdapterGrads {
  /** The gradient of s A is s times smaller than that of A itself, which is what goes in. */
  readonly scale: number
  #all: { master: Tensor; grad: Tensor }[] = []

  constructor({ scale }: AdapterState) {
    this.scale = scale
  }

  add({ lora_A, lora_B }: Linear, down: Tensor, up: Tensor): void {
    this.#all.push({ master: lora_A!.weight, grad: down }, { master: lora_B!.weight, grad: up })
  }

  /** Adds the sums to the masters before their scope ends. */
  hand(): void {
    const had: Tensor[] = []
    const more: Tensor[] = []
    for (const { master, grad } of this.#all) {
      const before = master.grad()
      if (before) {
        had.push(before)
        more.push(grad)
      } else master.setGrad(grad)
    }
    if (had.length > 0) _foreachAdd_(had, more)
    this.#all = []
  }
}
