import type { Tensor } from '../tensor/index.ts'

/** Tensors by name, in registration order: the order is part of the numbers. */
export type NamedTensors = ReadonlyMap<string, Tensor>

/**
 * The processes that train together. Every rank calls the same methods in the same order; a call that differs is an
 * error on all of them. With one process each method is the identity, so callers have no `if (size > 1)`.
 */
export interface World {
  /** 0 to size - 1; rank 0 writes. */
  readonly rank: number
  readonly size: number
  /** Bytes handed to collectives so far. */
  readonly sent: number
  /** Seconds spent in collectives so far, most of them waiting for other ranks. */
  readonly waited: number
  /** Sums over ranks, element by element, added in the order of ranks in float64: the same bits everywhere, every time. */
  sum(values: readonly number[]): Promise<number[]>
  /** Every rank's value, by rank. Plain data, as structuredClone takes it: NaN and typed arrays stay what they are. */
  gather<T>(value: T): Promise<T[]>
  /** True where any rank says true: wishes to stop, non-finite losses, gradients that exist somewhere. */
  agree(flags: readonly boolean[]): Promise<boolean[]>
  barrier(): Promise<void>
  /** Gradients become their sums over ranks, reduced in float32. One that exists on some ranks counts as 0 on the others. */
  sumGradients(parameters: NamedTensors): Promise<void>
  /** Tensors take the values of one rank. */
  broadcast(tensors: NamedTensors, from?: number): Promise<void>
  /** What this process is doing, for the report about one that falls silent. */
  note(step: number, phase: string): void
  /** Reports to the others that this process is about to end because of an error. */
  fail(error: unknown): Promise<void>
  /** All ranks together, after the last collective. */
  close(): Promise<void>
}

/** The only process: no store, no socket, no thread. */
export const alone: World = {
  rank: 0,
  size: 1,
  sent: 0,
  waited: 0,
  sum: async (values) => [...values],
  gather: async (value) => [value],
  agree: async (flags) => [...flags],
  barrier: async () => {},
  sumGradients: async () => {},
  broadcast: async () => {},
  note: () => {},
  fail: async () => {},
  close: async () => {},
}
