import type { AdapterState, Linear } from '../../../nn/index.ts'
import { _foreachAdd_, type Tensor } from '../../../tensor/index.ts'

/** Gradients of the adapters of one layer, on their way into the tensors that train. Every gradient has memory of its own. */
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

  /** Gives what was added to the masters, before the scope it was made in ends. */
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
