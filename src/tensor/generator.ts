import { buffer, type GeneratorHandle, native } from '../engine/index.ts'
import { keep } from './scope.ts'
import { type Tensor, tensorOfHandle } from './tensor.ts'

/** A generator of its own: seeded explicitly, its state can be stored and put back. */
export class Generator implements GeneratorHandle {
  readonly generator: number

  constructor(seed: number, device = 'cpu') {
    const index = device.startsWith('cuda') ? Number(device.split(':')[1] ?? 0) : -1
    this.generator = native().generatorNew(index)
    this.seed(seed)
  }

  seed(seed: number): this {
    native().generatorSeed(this.generator, seed)
    return this
  }

  state(): Tensor {
    native().generatorState(this.generator)
    return tensorOfHandle(buffer[0]!)
  }

  restore(state: Tensor): void {
    buffer[0] = state.handle
    native().generatorRestore(this.generator)
  }
}

/** Seeds the default generator of the CPU, which ops use when no generator is given. */
export function manualSeed(seed: number): void {
  native().generatorSeed(-1, seed)
}

/** State of the default generator, as kept tensors; for checkpointing, which draws the same numbers again. */
export function generatorState(): Tensor[] {
  native().generatorState(-1)
  return [keep(tensorOfHandle(buffer[0]!))]
}

export function restoreGenerators(states: readonly Tensor[]): void {
  buffer[0] = states[0]!.handle
  native().generatorRestore(-1)
}
