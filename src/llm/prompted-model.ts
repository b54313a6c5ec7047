// What generation and teacher forcing need of a model built around a decoder: prompts as embeddings, and the positions of their tokens.
import { cat, int64Tensor, type Tensor, zeros } from '../tensor/index.ts'
import type { Decoder, Placement } from './model.ts'

/** Token ids of a prompt. */
export interface PromptIds {
  readonly ids: Int32Array
}

/** Positions of the tokens of a prompt: one list for each axis of a position, and the position after the last. */
export interface PromptPositions {
  axes: readonly Int32Array[]
  next: number
}

export interface PromptInputs {
  embeddings: Tensor // [1, N, S]
  /** Added after layer 0, 1, ...: [1, N, S] each. */
  additions: readonly Tensor[]
}

export interface PromptedModel<P extends PromptIds> {
  readonly placement: Placement
  readonly decoder: Decoder
  /** [1, N, S] */
  promptEmbeddings(prompt: P): Tensor
  /** If the first layers get more than embeddings; it replaces `promptEmbeddings`. */
  promptInputs?(prompt: P): PromptInputs
  /** Several prompts, where an image that some of them are about need be worked on only once. */
  allPromptInputs?(prompts: readonly P[]): PromptInputs[]
  /** Absent: token i is at position i. */
  promptPositions?(prompt: P): PromptPositions
  /** Leading tokens whose embeddings and positions are the same in both prompts, where that is worth knowing: one image. */
  sharedPrefix?(a: P, b: P): number
  /** Frees the captured graphs of the image encoders, before the weights are freed. */
  forgetRecordings?(): void
}

export function inputsOf<P extends PromptIds>(model: PromptedModel<P>, prompt: P): PromptInputs {
  return model.promptInputs?.(prompt) ?? { embeddings: model.promptEmbeddings(prompt), additions: [] }
}

export function allInputsOf<P extends PromptIds>(model: PromptedModel<P>, prompts: readonly P[]): PromptInputs[] {
  return model.allPromptInputs?.(prompts) ?? prompts.map((prompt) => inputsOf(model, prompt))
}

/** [B, n, S] -> [B, width, S], zeros on one side. */
export function padded(x: Tensor, width: number, side: 'left' | 'right'): Tensor {
  const short = width - x.size(1)
  if (short === 0) return x
  const nothing = zeros([x.size(0), short, x.size(2)], { dtype: x.dtype, device: x.device })
  return cat(side === 'left' ? [nothing, x] : [x, nothing], { dim: 1 })
}

/** The additions of several rows as one batch: [B, width, S] for each layer that has one. */
export function batchedAdditions(
  rows: readonly (readonly Tensor[])[],
  width: number,
  side: 'left' | 'right',
): Tensor[] {
  const layers = rows[0]?.length ?? 0
  return Array.from({ length: layers }, (_, i) => cat(rows.map((row) => padded(row[i]!, width, side))))
}

/** 0, 1, 2, ... */
let ascending = new Int32Array(0)

/** Not to be changed: several prompts have the same. */
export function positionsOf<P extends PromptIds>(model: PromptedModel<P>, prompt: P): PromptPositions {
  const N = prompt.ids.length
  if (N > ascending.length) ascending = Int32Array.from({ length: 2 * N }, (_, i) => i)
  return model.promptPositions?.(prompt) ?? { axes: [ascending.subarray(0, N)], next: N }
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
  const flat = new Int32Array(axes * R * L)
  for (const [r, row] of rows.entries()) for (const [a, axis] of row.entries()) flat.set(axis, (a * R + r) * L)
  return int64Tensor(flat, axes === 1 ? [R, L] : [axes, R, L], { device })
}

/** A prompt's positions with those of completions after it: each continues the prompt, on every axis alike. Filled up with 0 to a width. */
export function withCompletions(
  { axes, next }: PromptPositions,
  lengths: readonly number[],
  width: number,
): Int32Array[] {
  const tail = lengths.flatMap((n) => Array.from({ length: n }, (_, j) => next + j))
  return axes.map((axis) => {
    const row = new Int32Array(width)
    row.set([...axis, ...tail])
    return row
  })
}
