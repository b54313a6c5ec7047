// Sizes of states that decode with the custom kernels, and their caches as the kernels read them. What prompts left is kept once for all rows
// that continue it. R rows, P prompts, L layers, K key/value heads, D head size.
import { canShare, shareOf } from '../../../kernels/index.ts'
import { keep, type Tensor, tidy } from '../../../tensor/index.ts'
import type { Decoder } from '../../model.ts'
import type { DecodeStart } from '../decoding.ts'

export interface FusedSize {
  rows: number
  prompts: number
  /** Neighbouring rows of one prompt that are read together. */
  share: number
  /** Columns for prompts, and for new tokens. */
  room: number
  ownRoom: number
}

/** Prompts of one step have similar lengths, and the next step's may be slightly longer: one allocation fits both. */
const roomStep = { prompts: 256, own: 64 }
const rounded = (n: number, step: number) => Math.ceil(n / step) * step

/** Whether a state of one size can do what another is asked for: kernels read as far as a prompt goes, whatever room there is. */
export function hasRoomFor(have: FusedSize, asked: FusedSize): boolean {
  const alike = have.rows === asked.rows && have.prompts === asked.prompts && have.share === asked.share
  return alike && have.room >= asked.room && have.ownRoom >= asked.ownRoom
}

/** The prompt of each row. */
export function promptOfRows({ rows, next }: DecodeStart): number[] {
  return rows ? tidy(() => rows.numbers()) : next.map((_, r) => r)
}

export function sizeOf({ cfg }: Decoder, start: DecodeStart, newTokens: number): FusedSize {
  const of = promptOfRows(start)
  const alike = (n: number) => of.length % n === 0 && of.every((prompt, r) => prompt === of[r - (r % n)])
  const possible = [1, 2, 4].filter((n) => alike(n) && canShare(n, cfg.head_dim))
  const share = shareOf(possible, of.length, cfg.num_key_value_heads)
  const prompts = start.cache.batch
  const room = rounded(start.columns, roomStep.prompts)
  return { rows: of.length, prompts, share, room, ownRoom: rounded(newTokens, roomStep.own) }
}

export interface LayerCaches {
  promptKeys: Tensor // [P, K, room, D]
  promptValues: Tensor
  ownKeys: Tensor // [R, K, ownRoom, D]
  ownValues: Tensor
}

/** Views of a memory. */
export class FusedCaches {
  readonly prompts: Tensor // [L, 2, P, K, room, D]
  readonly layers: readonly LayerCaches[]
  readonly #own: Tensor // [L, 2, R, K, ownRoom, D]

  static elements(decoder: Decoder, size: FusedSize): number {
    const { prompts, own } = shapes(decoder, size)
    return product(prompts) + product(own)
  }

  /** `memory` [n]: at least so many elements. */
  constructor(memory: Tensor, decoder: Decoder, size: FusedSize) {
    const { prompts, own } = shapes(decoder, size)
    const view = (from: number, shape: number[]) => keep(tidy(() => memory.narrow(0, from, product(shape)).view(shape)))
    this.prompts = view(0, prompts)
    this.#own = view(product(prompts), own)
    const part = (all: Tensor, layer: number, which: number) => keep(tidy(() => all.select(0, layer).select(0, which)))
    this.layers = Array.from({ length: prompts[0]! }, (_, i) => ({
      ...{ promptKeys: part(this.prompts, i, 0), promptValues: part(this.prompts, i, 1) },
      ...{ ownKeys: part(this.#own, i, 0), ownValues: part(this.#own, i, 1) },
    }))
  }

  dispose(): void {
    for (const t of [this.prompts, this.#own, ...this.layers.flatMap((l) => Object.values(l) as Tensor[])]) t.dispose()
  }
}

const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1)

function shapes({ cfg }: Decoder, { rows, prompts, room, ownRoom }: FusedSize) {
  const { num_hidden_layers: L, num_key_value_heads: K, head_dim: D } = cfg
  return { prompts: [L, 2, prompts, K, room, D], own: [L, 2, rows, K, ownRoom, D] }
}
