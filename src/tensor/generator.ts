import { buffer, type GeneratorHandle, native } from '../engine/index.ts'
import { deviceIndex } from './device.ts'
import { keep } from './scope.ts'
import { type Tensor, tensorOfHandle } from './tensor.ts'

/** A separate generator: seeded explicitly, with a state that can be saved and restored. */
export class Generator implements GeneratorHandle {
  readonly generator: number

  constructor(seed: number, device = 'cpu') {
    this.generator = native().generatorNew(device.startsWith('cuda') ? deviceIndex(device) : -1)
    this.seed(seed)
  }

  /** Frees it; its number goes to the next generator. */
  dispose(): void {
    native().generatorFree(this.generator)
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

/** Ids of the generators that ops use when none is given: the CPU's, then one for each CUDA device. */
let defaults: number[] | undefined
function defaultIds(): readonly number[] {
  defaults ??= [-1, ...Array.from({ length: native().cudaCount() }, (_, device) => -2 - device)]
  return defaults
}

/** Seeds the default generators of the CPU and of every CUDA device. */
export function manualSeed(seed: number): void {
  for (const id of defaultIds()) native().generatorSeed(id, seed)
}

/** States of the default generators, as kept tensors; for checkpointing, which draws the same numbers again. */
export function generatorState(): Tensor[] {
  return defaultIds().map((id) => {
    native().generatorState(id)
    return keep(tensorOfHandle(buffer[0]!))
  })
}

export function restoreGenerators(states: readonly Tensor[]): void {
  defaultIds().forEach((id, i) => {
    buffer[0] = states[i]!.handle
    native().generatorRestore(id)
  })
}
