// What generation and its decoders exchange. P prompts, R rows, S hidden, V vocabulary.
import type { KVCache } from '../../nn/index.ts'
import type { Tensor } from '../../tensor/index.ts'
import type { Decoder } from '../model.ts'
import type { PackedCache } from './fused/packed-cache.ts'
import type { Scores, Taken } from './recorded/draws.ts'

/** The result of reading the prompts: a cache of P prompts, which prompt each of R rows continues, and from which position. */
export interface DecodeStart {
  cache: KVCache | PackedCache
  /** [R] the prompt of each row; null: row r continues prompt r. */
  rows: Tensor | null
  /** [R, columns], false at padding; null if there is none. */
  valid: Tensor | null
  /** [R] the position of each row's first new token. */
  next: readonly number[]
  columns: number
  /** [P] the number of tokens of each prompt, from the first column on; absent if padding may come before them. */
  lengths?: readonly number[]
}

/** One token for all rows at a time. */
export interface Decoding {
  /** Reads one token per row. */
  run(ids: readonly number[]): Scores
  /** Continues with some of the rows only, in the given order; absent if a step is bound to its rows. */
  keepRows?(rows: readonly number[]): void
  dispose(): void
}

/** Several tokens at a time for all rows, drawn on the device. */
export interface AheadDecoding {
  /**
   * Starts some steps. `numbers` [steps, R] decide the tokens of as many steps from here on; none when greedy or when they were given.
   * Draws of rows that are not `open` have no meaning.
   */
  start(steps: number, numbers: Float64Array | null, open: readonly boolean[]): void
  /** The last `steps` of them: the result waits for these, not for steps that are started in between. */
  look(steps: number): () => Taken
  dispose(): void
}

/** Whether the device captures CUDA graphs: then the pool's states hold the cache, and the prompts' cache needs no extra room. */
export function capturesGraphs(decoder: Decoder): boolean {
  return decoder.placement.device.startsWith('cuda')
}
