// A teacher-forced pass over packed tokens: every prompt once, its completions after it, nothing filled up. T tokens, S hidden.
import { cat, type Tensor, tensor, tidy } from '../../../tensor/index.ts'
import { allInputsOf, type PromptedModel, type PromptIds, positionsOf } from '../../prompted-model.ts'
import { type Packing, packingOf } from './attention-calls.ts'
import type { TrainingHead } from './head.ts'
import { TrainingLayers } from './layers.ts'

/** The rows of a completion: the row that predicts its token 0, and the row that read token 0. */
export interface CompletionRows {
  before: number
  start: number
}

export interface PackedStates {
  hidden: Tensor // [T, S]
  places: readonly CompletionRows[]
  /** Scores the states, if kernels do it. */
  head: TrainingHead | null
}

export interface PackedOptions {
  checkpointing?: boolean
  /** Also if flash attention is missing. */
  anywhere?: boolean
}

/** Hidden states, or null if the decoder must go op by op. */
export function packedStates<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  completions: readonly (readonly Int32Array[])[],
  options: PackedOptions,
): PackedStates | null {
  const { decoder } = model
  const layers = TrainingLayers.of(decoder, options.anywhere)
  if (!layers || completions.some((group) => group.length === 0)) return null
  const reads = completions.map((group) => group.map(readOf))
  const packing = packingOf(prompts.map(({ ids }, r) => ({ prompt: ids.length, read: reads[r]!.map((c) => c.length) })))
  const hidden = tidy(() => {
    const x = packedEmbeddings(model, prompts, reads, packing)
    if (!x) return null
    const positions = packedPositions(model, prompts, reads, packing)
    return decoder.finish(layers.forward({ x, positions, packing, recompute: options.checkpointing ?? false }))
  })
  return hidden && { hidden, places: placesOf(prompts, reads, packing), head: layers.head }
}

/** The last token of a completion predicts nothing and is not read, unless it is the only one: no stretch is empty. */
function readOf(completion: Int32Array): Int32Array {
  return completion.length > 1 ? completion.subarray(0, -1) : Int32Array.of(completion[0] ?? 0)
}

/** [T, S]; null if prompts give more than embeddings. */
function packedEmbeddings<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  reads: readonly (readonly Int32Array[])[],
  { shared }: Packing,
): Tensor | null {
  const inputs = allInputsOf(model, prompts)
  if (inputs.some(({ additions }) => additions.length > 0)) return null
  const ids = BigInt64Array.from(reads.flat().flatMap((c) => Array.from(c, BigInt)))
  const behind = model.decoder.embed(tensor(ids, { device: model.placement.device })) // [C, S]
  const rows = inputs.map(({ embeddings }) => embeddings.squeeze(0))
  if (shared) return cat([...rows, behind])
  let next = 0
  return cat(
    rows.flatMap((prompt, r) => {
      const [n] = reads[r]!.map((c) => c.length) as [number]
      next += n
      return [prompt, behind.narrow(0, next - n, n)]
    }),
  )
}

/** [1, T], or [axes, 1, T] */
function packedPositions<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  reads: readonly (readonly Int32Array[])[],
  { tokens, promptStarts, readStarts }: Packing,
): Tensor {
  const stand = prompts.map((prompt) => positionsOf(model, prompt))
  const axes = stand[0]!.axes.length
  const flat = new BigInt64Array(axes * tokens)
  for (let axis = 0; axis < axes; axis++) {
    let next = 0
    stand.forEach(({ axes: own, next: first }, r) => {
      own[axis]!.forEach((at, i) => {
        flat[axis * tokens + promptStarts[r]! + i] = BigInt(at)
      })
      for (const read of reads[r]!) {
        const start = axis * tokens + readStarts[next++]!
        read.forEach((_, j) => {
          flat[start + j] = BigInt(first + j)
        })
      }
    })
  }
  return tensor(flat, axes === 1 ? [1, tokens] : [axes, 1, tokens], { device: model.placement.device })
}

function placesOf(
  prompts: readonly PromptIds[],
  reads: readonly (readonly Int32Array[])[],
  { promptStarts, readStarts }: Packing,
): CompletionRows[] {
  let next = 0
  return prompts.flatMap(({ ids }, r) =>
    reads[r]!.map(() => ({ before: promptStarts[r]! + ids.length - 1, start: readStarts[next++]! })),
  )
}
