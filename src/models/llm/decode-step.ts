import { log } from '../../core/index.ts'
import { kernelsOff } from '../../kernels/index.ts'
import type { KVCache } from '../../nn/index.ts'
import { keep, ones, type Tensor, tensor, tidy, zeros } from '../../tensor/index.ts'
import { decodePool } from './decode-pool.ts'
import type { DecodeState } from './decode-state.ts'
import type { DrawPlan, Scores, Taken } from './draws.ts'
import { type FusedState, sizeOf } from './fused-state.ts'
import { notFused } from './fused-weights.ts'
import type { Decoder } from './model.ts'
import { columnsOf, type PackedCache } from './packed-cache.ts'

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
  /** Starts some steps; `numbers` [steps, R] decide the tokens, none when greedy. */
  start(steps: number, numbers: Float64Array | null): void
  /** Waits for them. */
  look(): Taken
  dispose(): void
}

/** Decoding of up to `newTokens` tokens behind prompts. A state of the pool copies the start's cache and frees it. */
export function openDecoding(decoder: Decoder, start: DecodeStart, newTokens: number): Decoding {
  if (!records(decoder)) return new DecodeStep(decoder, start)
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
  const state = fuses(decoder, start)
    ? decodePool.takeFused(decoder, sizeOf(decoder, start, newTokens))
    : decodePool.take(decoder, start.next.length, start.columns + newTokens)
  taken(state, start, () => state.begin(start, draws))
  return {
    start: (steps, numbers) => state.start(steps, numbers),
    look: () => state.look(),
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

/** Op by op, looking only at the columns in use. */
class DecodeStep implements Decoding {
  readonly #decoder: Decoder
  readonly #cache: KVCache
  #token: Tensor // [R, 1]
  #position: Tensor // [R, 1]
  readonly #column: Tensor // [1]
  #visible: Tensor // [R, 1, 1, capacity]
  readonly #masked: boolean
  #columns: number

  constructor(decoder: Decoder, { cache: read, rows, valid, next, columns }: DecodeStart) {
    const cache = columnsOf(read)
    const { device } = cache
    const R = next.length
    if (rows) cache.select(rows)
    this.#decoder = decoder
    this.#cache = cache
    this.#columns = columns
    this.#token = keep(zeros([R, 1], { dtype: 'int64', device }))
    this.#position = keep(
      tensor(
        BigInt64Array.from(next, (n) => BigInt(n - 1)),
        [R, 1],
        { device },
      ),
    )
    this.#column = keep(tensor(BigInt64Array.of(BigInt(columns - 1)), { device }))
    this.#visible = keep(tidy(() => startMask(valid, R, columns, cache.capacity, device)))
    this.#masked = valid !== null
  }

  run(ids: readonly number[]): Scores {
    tidy(() => {
      this.#token.copy_(tensor(BigInt64Array.from(ids, BigInt), [ids.length, 1]))
      this.#position.add_(1)
      this.#column.add_(1)
      this.#visible.slice({ dim: 3, start: this.#columns, end: this.#columns + 1 }).fill_(true)
    })
    this.#columns++
    return tidy(() => this.#step(this.#columns))
  }

  keepRows(rows: readonly number[]): void {
    const index = tensor(BigInt64Array.from(rows, BigInt), { device: this.#cache.device })
    const kept = (t: Tensor) => {
      const picked = keep(t.indexSelect(0, index))
      t.dispose()
      return picked
    }
    this.#cache.select(index)
    this.#token = kept(this.#token)
    this.#position = kept(this.#position)
    this.#visible = kept(this.#visible)
    index.dispose()
  }

  #step(length: number): Scores {
    const decoder = this.#decoder
    const x = decoder.embed(this.#token) // [R, 1, S]
    const mask = this.#masked ? this.#visible.slice({ dim: 3, end: length }) : undefined
    const hidden = decoder
      .forward(x, { positions: this.#position, mask, cache: this.#cache, columns: this.#column, length })
      .squeeze(1)
    return { hidden, logits: decoder.logits(hidden) }
  }

  dispose(): void {
    for (const t of [this.#token, this.#position, this.#column, this.#visible]) t.dispose()
  }
}

function startMask(valid: Tensor | null, rows: number, used: number, capacity: number, device: string): Tensor {
  const mask = zeros([rows, 1, 1, capacity], { dtype: 'bool', device })
  const prompt = valid ? valid.view([rows, 1, 1, used]) : ones([rows, 1, 1, used], { dtype: 'bool', device })
  mask.slice({ dim: 3, end: used }).copy_(prompt)
  return mask
}
