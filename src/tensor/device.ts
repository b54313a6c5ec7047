import { buffer, native } from '../engine/index.ts'
import { keep, tensorsIn, tidy } from './scope.ts'

/** CUDA: devices, memory, timing, captured graphs. On a build without CUDA count() is 0 and the rest says so. */
export const cuda = {
  count: (): number => native().cudaCount(),
  name: (device = 0): string => native().cudaName(device),
  synchronize: (): void => native().cudaSynchronize(),
  /** Bytes: in tensors now, reserved by the allocator, most in tensors so far, on the card. */
  memory(device = 0): { allocated: number; reserved: number; peak: number; total: number } {
    native().cudaMemory(device)
    return { allocated: buffer[0]!, reserved: buffer[1]!, peak: buffer[2]!, total: buffer[3]! }
  },
  resetPeak: (device = 0): void => native().cudaResetPeak(device),
  /** A point in the stream; elapsed() between two is in milliseconds. */
  event: (): number => native().cudaEvent(),
  elapsed: (from: number, to: number): number => native().cudaElapsed(from, to),
  sideStream: (on: boolean): void => native().cudaSideStream(on),
}

/** A step captured once and replayed: everything that changes between replays lives in tensors updated in place. */
export class CudaGraph {
  readonly #id: number

  private constructor(id: number) {
    this.#id = id
  }

  /** Runs `step` a few times to settle the allocator, then records it. What `step` returns stays valid across replays. */
  static capture<R>(step: () => R, warmups = 3): { graph: CudaGraph; result: R } {
    native().cudaSideStream(true)
    try {
      for (let i = 0; i < warmups; i++) tidy(() => void step() as never)
      native().cudaSynchronize()
      const id = native().graphBegin()
      let result: R
      try {
        result = tidy(step as never) as R
        for (const t of tensorsIn(result)) keep(t)
      } finally {
        native().graphEnd(id)
      }
      return { graph: new CudaGraph(id), result }
    } finally {
      native().cudaSideStream(false)
    }
  }

  replay(): void {
    native().graphReplay(this.#id)
  }

  dispose(): void {
    native().graphFree(this.#id)
  }
}
