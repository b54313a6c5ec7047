// What generation and teacher forcing need of a model built around a decoder: prompts as embeddings, and where their tokens stand.
import { type Tensor, tensor } from '../../tensor/index.ts'
import type { Decoder, Home } from './model.ts'

export interface PromptIds {
  readonly ids: Int32Array
}

/** Where the tokens of a prompt stand: one list for each axis of a position, and the position after the last. */
export interface PromptPositions {
  axes: readonly Int32Array[]
  next: number
}

export interface Speaker<P extends PromptIds> {
  readonly home: Home
  readonly decoder: Decoder
  /** [1, N, S] */
  promptEmbeddings(prompt: P): Tensor
  /** Absent: token i stands at position i. */
  promptPositions?(prompt: P): PromptPositions
  /** Leading tokens whose embeddings and positions are the same in both prompts, where that is worth knowing: one image. */
  sharedPrefix?(a: P, b: P): number
}

export function positionsOf<P extends PromptIds>(model: Speaker<P>, prompt: P): PromptPositions {
  const N = prompt.ids.length
  return model.promptPositions?.(prompt) ?? { axes: [Int32Array.from({ length: N }, (_, i) => i)], next: N }
}

/** Leading ids that two prompts have in common. */
export function commonIds(a: Int32Array, b: Int32Array): number {
  const most = Math.min(a.length, b.length)
  let n = 0
  while (n < most && a[n] === b[n]) n++
  return n
}

/** Positions of rows of equal length, [axes, R, L], or [R, L] for one axis. */
export function positionTensor(rows: readonly (readonly Int32Array[])[], device: string): Tensor {
  const [R, L, axes] = [rows.length, rows[0]![0]!.length, rows[0]!.length]
  const flat = BigInt64Array.from(
    Array.from({ length: axes }, (_, axis) => rows.flatMap((row) => Array.from(row[axis]!))).flat(),
    BigInt,
  )
  return tensor(flat, axes === 1 ? [R, L] : [axes, R, L], { device })
}

/** A prompt's positions with those of completions behind it: each goes on from the prompt, on every axis alike. */
export function withCompletions({ axes, next }: PromptPositions, lengths: readonly number[]): Int32Array[] {
  const tail = lengths.flatMap((n) => Array.from({ length: n }, (_, j) => next + j))
  return axes.map((axis) => Int32Array.from([...axis, ...tail]))
}
