import { Mismatch } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { keep, tensorsIn, tidy } from './scope.ts'

/** The number in `cuda:N`; plain `cuda` is the current device. */
export function deviceIndex(device: string): number {
  const found = /^cuda(?::(\d+))?$/.exec(device)
  if (!found) throw new Mismatch({ where: 'device', expected: 'cuda or cuda:N', got: device })
  return found[1] === undefined ? native().cudaCurrent() : Number(found[1])
}

const indexOf = (device: number | string | undefined) =>
  typeof device === 'number' ? device : deviceIndex(device ?? 'cuda')

/** Refuses a GPU that the engine does not see. */
function requireDevice(device: string): void {
  const count = native().cudaCount()
  if (Number(/^cuda:(\d+)$/.exec(device)?.[1] ?? 0) < count) return
  throw new Mismatch({
    where: 'settings',
    field: 'device',
    expected: count === 0 ? 'cpu: the engine sees no CUDA device' : `one of ${count} CUDA devices`,
    got: device,
    hint: '`npx roundtrip-rl info` shows what the engine sees; --device cpu needs no GPU',
  })
}

/** CUDA: devices, memory, timing, captured graphs. On a build without CUDA count() is 0 and the rest says so. */
export const cuda = {
  count: (): number => native().cudaCount(),
  name: (device = 0): string => native().cudaName(device),
  /** Makes `cuda:N` the current device of this thread: what `cuda` means from now on. */
  use(device: string): void {
    requireDevice(device)
    native().cudaUse(deviceIndex(device))
  },
  requireDevice,
  synchronize: (device?: number | string): void => {
    if (native().cudaCount() > 0) native().cudaSynchronize(indexOf(device))
  },
  /** Sums inside `fn` run in a fixed order, so that the same input gives the same bits; an op that has none is an error. */
  inFixedOrder<R>(on: boolean, fn: () => R): R {
    if (!on || native().cudaCount() === 0) return fn()
    native().cudaFixedOrder(true)
    try {
      return fn()
    } finally {
      native().cudaFixedOrder(false)
    }
  },
  /** Bytes: in tensors now, reserved by the allocator, peak in tensors so far, total of the GPU. */
  memory(device?: number | string): { allocated: number; reserved: number; peak: number; total: number } {
    native().cudaMemory(indexOf(device))
    return { allocated: buffer[0]!, reserved: buffer[1]!, peak: buffer[2]!, total: buffer[3]! }
  },
  resetPeak: (device?: number | string): void => native().cudaResetPeak(indexOf(device)),
  /** A point in the stream; elapsed() between two is in milliseconds. Freed by freeEvent(). */
  event: (device?: number | string): number => native().cudaEvent(indexOf(device)),
  elapsed: (from: number, to: number): number => native().cudaElapsed(from, to),
  freeEvent: (event: number): void => native().cudaEventFree(event),
}

/**
 * On CUDA the work of `beside` goes to a second stream, where it runs at the same time as that of `here`. Both begin after all that was
 * asked for before, and what follows waits for both. Neither may free a tensor that was there before.
 */
export function sideBySide<A, B>(device: string, here: () => A, beside: () => B): [A, B] {
  if (!device.startsWith('cuda')) return [here(), beside()]
  const index = deviceIndex(device)
  native().cudaFork(index)
  const first = here()
  native().cudaBeside(true, index)
  return runAndLeave(
    () => [first, beside()],
    () => native().cudaBeside(false, index),
  )
}

/**
 * Runs `fn`, and `undo` after an error. An error of `undo` is ignored: after a device error every call fails, and the first error is the
 * one to report.
 */
function runOrUndo<R>(fn: () => R, undo: () => void): R {
  try {
    return fn()
  } catch (error) {
    try {
      undo()
    } catch {
      // known already
    }
    throw error
  }
}

/** Runs `fn`, then `leave`, also after an error. */
function runAndLeave<R>(fn: () => R, leave: () => void): R {
  const result = runOrUndo(fn, leave)
  leave()
  return result
}

interface CaptureOptions {
  /** Where the step's tensors are; the current device if absent. */
  device?: string
  /** Runs before the recording, which settle the allocator and the libraries. */
  warmups?: number
}

/**
 * A step captured once and replayed: everything that changes between replays is in tensors updated in place. All captures of a
 * device share one side stream and one memory pool, so two graphs must not be replayed at the same time.
 */
export class CudaGraph {
  readonly #id: number

  private constructor(id: number) {
    this.#id = id
  }

  /** Runs `step` a few times, then records it. What `step` returns stays valid across replays. */
  static capture<R>(step: () => R, options: CaptureOptions = {}): { graph: CudaGraph; result: R } {
    const device = indexOf(options.device)
    native().cudaSideStream(true, device)
    return runAndLeave(
      () => {
        for (let i = 0; i < (options.warmups ?? 3); i++) tidy(() => void step() as never)
        native().cudaSynchronize(device)
        return CudaGraph.#record(step, device)
      },
      () => native().cudaSideStream(false, device),
    )
  }

  static #record<R>(step: () => R, device: number): { graph: CudaGraph; result: R } {
    const graph = new CudaGraph(native().graphBegin(device))
    return runOrUndo(
      () => {
        const result = tidy(step as never) as R
        for (const t of tensorsIn(result)) keep(t)
        native().graphEnd(graph.#id, device)
        return { graph, result }
      },
      () => {
        native().graphEnd(graph.#id, device)
        graph.dispose()
      },
    )
  }

  replay(): void {
    native().graphReplay(this.#id)
  }

  dispose(): void {
    native().graphFree(this.#id)
  }
}
