import { log } from '../../core/index.ts'
import { kernelsOff } from '../../kernels/index.ts'
import type { KVCache, RopeTable } from '../../nn/index.ts'
import { arange, type DType, keep, type Tensor, tensor, tidy, zeros } from '../../tensor/index.ts'
import { decodePool } from './decode-pool.ts'
import type { DecodeState } from './decode-state.ts'
import type { DrawPlan, Scores, Taken } from './draws.ts'
import { sizeOf } from './fused-caches.ts'
import type { FusedState } from './fused-state.ts'
import { notFused } from './fused-weights.ts'
import type { Decoder } from './model.ts'
import { columnsOf, type PackedCache } from './packed-cache.ts'
import { filled, ofRows, widened, withMoreRows } from './padded-rows.ts'

/** What the prompts left: a cache of P prompts, which prompt each of R rows continues, and where. */
export interface DecodeStart {
  cache: KVCache | PackedCache
  /** [R] the prompt of each row; null: row r continues prompt r. */
  rows: Tensor | null
  /** [R, columns], false at padding; null where there is none. */
  valid: Tensor | null
  /** [R] the position of each row's first new token. */
  next: readonly number[]
  columns: number
  /** [P] the tokens of each prompt, from the first column on; absent where padding may stand before them. */
  lengths?: readonly number[]
}

/** One token for all rows at a time. */
export interface Decoding {
  /** Reads one token per row. */
  run(ids: readonly number[]): Scores
  /** Goes on with some of the rows alone, in the given order; absent where a step is bound to its rows. */
  keepRows?(rows: readonly number[]): void
  dispose(): void
}

/** Whether a device records steps: then the states of the pool hold the cache, and the one of the prompts needs no room. */
export function records(decoder: Decoder): boolean {
  return decoder.placement.device.startsWith('cuda')
}

/** Several tokens at a time for all rows, drawn on the device. */
export interface AheadDecoding {
  /** Starts some steps; `numbers` [steps, R] decide the tokens, none when greedy. What rows that are not `open` draw means nothing. */
  start(steps: number, numbers: Float64Array | null, open: readonly boolean[]): void
  /** Waits for them. */
  look(): Taken
  dispose(): void
}

/** Decoding of up to `newTokens` tokens behind prompts. A state of the pool copies the start's cache and frees it. */
export function openDecoding(decoder: Decoder, start: DecodeStart, newTokens: number): Decoding {
  if (!records(decoder)) return new DecodeStep(decoder, start, newTokens)
  const state = decodePool.take(decoder, start.next.length, start.columns + newTokens)
  taken(state, start, () => state.begin(start))
  return { run: (ids) => state.run(ids), dispose: () => decodePool.release(state) }
}

/**
 * The same where the device draws by itself, behind each row's `first` token; only on devices that record. By kernels of ours where they
 * cover the decoder and its weights.
 */
export function openAhead(
  decoder: Decoder,
  start: DecodeStart,
  newTokens: number,
  draws: { plan: DrawPlan; first: readonly number[] },
): AheadDecoding {
  if (fuses(decoder, start)) return openFused(decoder, start, newTokens, draws)
  const state = decodePool.take(decoder, start.next.length, start.columns + newTokens)
  taken(state, start, () => state.begin(start, draws))
  return {
    start: (steps, numbers) => state.start(steps, numbers),
    look: () => state.look(),
    dispose: () => decodePool.release(state),
  }
}

function openFused(
  decoder: Decoder,
  start: DecodeStart,
  newTokens: number,
  { plan, first }: { plan: DrawPlan; first: readonly number[] },
): AheadDecoding {
  const more = withMoreRows(start)
  const [R, all] = [start.next.length, more.next.length]
  const state = decodePool.takeFused(decoder, sizeOf(decoder, more, newTokens))
  taken(state, start, () => state.begin(more, { plan, first: filled(first, all) }))
  return {
    start: (steps, numbers, open) => state.start(steps, numbers && widened(numbers, R, all), open),
    look: () => ofRows(state.look(), all, R),
    dispose: () => decodePool.release(state),
  }
}

function taken(state: DecodeState | FusedState, start: DecodeStart, begin: () => void): void {
  try {
    begin()
    start.cache.dispose()
  } catch (error) {
    decodePool.release(state)
    throw error
  }
}

const told = new Set<string>()

/** Whether kernels of ours decode; where they do not, and nobody asked for that, the log says why, once. */
function fuses(decoder: Decoder, { next, columns }: DecodeStart): boolean {
  const reason = Math.max(...next) > columns ? 'positions ahead of the columns' : notFused(decoder)
  if (reason && reason !== kernelsOff() && !told.has(reason))
    log.info(`decoding takes torch's ops, not kernels of ours: ${reason}`)
  if (reason) told.add(reason)
  return reason === null
}

/** Op by op, looking only at the columns in use. What a step needs besides its tokens is made for all steps at once. */
class DecodeStep implements Decoding {
  readonly #decoder: Decoder
  readonly #cache: KVCache
  /** [steps, R, 1, 1, D] */
  #rope: RopeTable
  readonly #columns: Tensor // [steps] the column each step writes
  /** Added to the scores, [R, 1, 1, capacity]: minus infinity at padding; null where there is none. */
  #padding: Tensor | null
  readonly #start: number
  #step = 0

  constructor(decoder: Decoder, { cache: read, rows, valid, next, columns }: DecodeStart, steps: number) {
    const cache = columnsOf(read)
    const { device } = cache
    if (rows) cache.select(rows)
    this.#decoder = decoder
    this.#cache = cache
    this.#start = columns
    const count = (from: number) => arange(from, from + steps, { dtype: 'int64', device })
    const { cos, sin } = tidy(() => {
      const first = tensor(BigInt64Array.from(next, BigInt), { device }) // [R]
      return decoder.stepRotations(count(0).unsqueeze(1).add(first))
    })
    this.#rope = { cos: keep(cos), sin: keep(sin) }
    this.#columns = keep(count(columns))
    this.#padding = valid && keep(tidy(() => paddingOf(valid, cache.capacity, decoder.placement.dtype)))
  }

  run(ids: readonly number[]): Scores {
    const at = this.#step++
    const length = this.#start + at + 1
    return tidy(() => {
      const decoder = this.#decoder
      const { device } = this.#cache
      const x = decoder.embed(tensor(BigInt64Array.from(ids, BigInt), [ids.length, 1], { device })) // [R, 1, S]
      const rope = { cos: this.#rope.cos.select(0, at), sin: this.#rope.sin.select(0, at) }
      const columns = this.#columns.slice({ dim: 0, start: at, end: at + 1 })
      const mask = this.#padding?.slice({ dim: 3, end: length })
      const hidden = decoder.forward(x, { rope, mask, cache: this.#cache, columns, length }).squeeze(1)
      return { hidden, logits: decoder.logits(hidden) }
    })
  }

  keepRows(rows: readonly number[]): void {
    const index = tensor(BigInt64Array.from(rows, BigInt), { device: this.#cache.device })
    const kept = (t: Tensor, dim: number) => {
      const picked = keep(t.indexSelect(dim, index))
      t.dispose()
      return picked
    }
    this.#cache.select(index)
    this.#rope = { cos: kept(this.#rope.cos, 1), sin: kept(this.#rope.sin, 1) }
    this.#padding &&= kept(this.#padding, 0)
    index.dispose()
  }

  dispose(): void {
    for (const t of [this.#rope.cos, this.#rope.sin, this.#columns, this.#padding]) t?.dispose()
  }
}

/** valid [R, columns] -> [R, 1, 1, capacity] */
function paddingOf(valid: Tensor, capacity: number, dtype: DType): Tensor {
  const [rows, used] = valid.shape as [number, number]
  const added = zeros([rows, 1, 1, capacity], { dtype, device: valid.device })
  const prompt = added.slice({ dim: 3, end: used })
  prompt.copy_(prompt.maskedFill(valid.view([rows, 1, 1, used]).logicalNot(), Number.NEGATIVE_INFINITY))
  return added
}
