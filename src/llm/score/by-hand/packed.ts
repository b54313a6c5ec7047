// A teacher-forced pass over packed tokens: every prompt once, its completions after it, nothing filled up. T tokens, S hidden.
import { cat, int64Tensor, type Tensor, tidy } from '../../../tensor/index.ts'
import { allInputsOf, type PromptedModel, type PromptIds, positionsOf } from '../../prompted-model.ts'
import { type Lengths, type Packing, packingOf, startsOf } from './attention-calls.ts'
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
  // the last token of a completion predicts nothing and is not read, unless it is the only one: no stretch is empty
  const readOf = (ids: Int32Array) => (ids.length > 1 ? ids.subarray(0, -1) : Int32Array.of(ids[0] ?? 0))
  const reads = completions.map((group) => group.map(readOf))
  const rows = rowsOf(model, prompts, reads)
  const pass = { model, prompts, reads, rows, packing: packingOf(rows) }
  const recompute = options.checkpointing ?? false
  const hidden = tidy(() => {
    const positions = packedPositions(pass)
    const states = layers.forward({ input: () => packedEmbeddings(pass), positions, packing: pass.packing, recompute })
    return states && decoder.finish(states)
  })
  return hidden && { hidden, places: placesOf(pass), head: layers.head }
}

/** What is read, and where. */
interface PackedPass<P extends PromptIds> {
  model: PromptedModel<P>
  prompts: readonly P[]
  reads: readonly (readonly Int32Array[])[]
  rows: readonly Lengths[]
  packing: Packing
}

/** A prompt that begins as an earlier one does, with the same image, becomes a branch of it, unless copies of its other tokens are more. */
function rowsOf<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  reads: readonly (readonly Int32Array[])[],
): Lengths[] {
  const points = new Map<number, number>() // of a prompt with branches
  const trunks: number[] = []
  const from = prompts.map((prompt, r) => {
    const shared = (t: number) => Math.min(model.sharedPrefix?.(prompts[t]!, prompt) ?? 0, prompt.ids.length - 1)
    const of = trunks.find((t) => shared(t) > (reads[r]!.length - 1) * (prompt.ids.length - shared(t)))
    if (of === undefined) trunks.push(r)
    else points.set(of, Math.min(points.get(of) ?? shared(of), shared(of)))
    return of
  })
  return prompts.map(({ ids }, r) => {
    const of = from[r]
    const row = { prompt: ids.length, branch: of === undefined ? undefined : { of, at: points.get(of)! } }
    return { ...row, read: reads[r]!.map((c) => c.length + copiedOf(row)) }
  })
}

/** Tokens of a prompt that are read before each of its completions. */
const copiedOf = ({ prompt, branch }: Omit<Lengths, 'read'>) => (branch ? prompt - branch.at : 0)

/** [T, S]; null if prompts give more than embeddings. */
function packedEmbeddings<P extends PromptIds>({ model, prompts, reads, rows, packing }: PackedPass<P>): Tensor | null {
  const inputs = allInputsOf(model, prompts)
  if (inputs.some(({ additions }) => additions.length > 0)) return null
  const { shared, order } = packing
  const said = order.flatMap((r) => reads[r]!)
  const starts = startsOf(said.map((c) => c.length))
  const ids = new Int32Array(starts.at(-1)!)
  for (const [i, c] of said.entries()) ids.set(c, starts[i]!)
  const behind = model.decoder.embed(int64Tensor(ids, { device: model.placement.device })) // [C, S]
  const whole = inputs.map(({ embeddings }) => embeddings.squeeze(0))
  let next = 0
  const completions = order.map((r) =>
    reads[r]!.flatMap(({ length: n }) => {
      next += n
      const copied = copiedOf(rows[r]!)
      const before = copied > 0 ? [whole[r]!.narrow(0, rows[r]!.prompt - copied, copied)] : []
      return [...before, behind.narrow(0, next - n, n)]
    }),
  )
  if (!shared) return cat(order.flatMap((r, i) => [whole[r]!, ...completions[i]!]))
  return cat([...whole.filter((_, r) => !rows[r]!.branch), ...completions.flat()])
}

/** [1, T], or [axes, 1, T] */
function packedPositions<P extends PromptIds>({ model, prompts, reads, rows, packing }: PackedPass<P>): Tensor {
  const { tokens, promptStarts, readStarts } = packing
  const stand = prompts.map((prompt) => positionsOf(model, prompt))
  const axes = stand[0]!.axes.length
  const flat = new Int32Array(axes * tokens)
  for (let axis = 0; axis < axes; axis++) {
    let k = 0
    stand.forEach(({ axes: all, next }, r) => {
      const own = all[axis]!
      const copied = copiedOf(rows[r]!)
      if (!rows[r]!.branch) flat.set(own, axis * tokens + promptStarts[r]!)
      for (const read of reads[r]!) {
        const tail = [...own.subarray(own.length - copied), ...read.map((_, j) => next + j)]
        flat.set(tail, axis * tokens + readStarts[k++]!)
      }
    })
  }
  return int64Tensor(flat, axes === 1 ? [1, tokens] : [axes, 1, tokens], { device: model.placement.device })
}

function placesOf({ rows, packing }: Pick<PackedPass<PromptIds>, 'rows' | 'packing'>): CompletionRows[] {
  const { promptStarts, readStarts } = packing
  let k = 0
  return rows.flatMap((row, r) =>
    row.read.map(() => {
      const start = readStarts[k++]! + copiedOf(row)
      return { before: row.branch ? start - 1 : promptStarts[r]! + row.prompt - 1, start }
    }),
  )
}
