// Which tokens of a completion count. EOS is a set of ids; the EOS token itself is trained on, what follows it is not.
import { Mismatch } from '../core/index.ts'

export interface MaskOptions {
  eos: ReadonlySet<number>
  pad: number
  maskTruncated: boolean
  /** Rows that ended for another reason than an EOS id, such as a stop string: not truncated. */
  finished?: readonly boolean[]
}

export interface CompletionMasks {
  /** Rows and the longest row's length; masks are row-major, 0 or 1. */
  rows: number
  columns: number
  /** Up to and including the first EOS: the attention mask's part for the completion. */
  completionMask: Uint8Array
  /** The same, with truncated rows 0 where maskTruncated is set. */
  lossMask: Uint8Array
  truncated: boolean[]
  /** Kept tokens per row, EOS included. */
  lengths: number[]
  /** Sum of the loss mask. */
  numItems: number
  metrics: Record<string, number>
}

/** Masks of sampled rows. Rows may be padded to one length, or ragged: then a row without EOS ends where its ids end. */
export function completionMasks(ids: readonly ArrayLike<number>[], options: MaskOptions): CompletionMasks {
  const rows = ids.length
  const columns = ids.reduce((most, row) => Math.max(most, row.length), 0)
  const lengths = ids.map((row, i) => keptLength(row, options.eos, i))
  const truncated = ids.map((row, i) => isTruncated(row[lengths[i]! - 1]!, i, options))
  const completionMask = new Uint8Array(rows * columns)
  const lossMask = new Uint8Array(rows * columns)
  let numItems = 0
  lengths.forEach((length, i) => {
    completionMask.fill(1, i * columns, i * columns + length)
    if (options.maskTruncated && truncated[i]) return
    lossMask.fill(1, i * columns, i * columns + length)
    numItems += length
  })
  return {
    rows,
    columns,
    completionMask,
    lossMask,
    truncated,
    lengths,
    numItems,
    metrics: metricsOf(lengths, truncated),
  }
}

function keptLength(row: ArrayLike<number>, eos: ReadonlySet<number>, at: number): number {
  if (row.length === 0)
    throw new Mismatch({ where: 'completionMasks', field: `row ${at}`, expected: 'at least one token', got: 'none' })
  for (let t = 0; t < row.length; t++) if (eos.has(row[t]!)) return t + 1
  return row.length
}

function isTruncated(last: number, row: number, options: MaskOptions): boolean {
  return !(options.finished?.[row] ?? false) && !options.eos.has(last) && last !== options.pad
}

function metricsOf(lengths: readonly number[], truncated: readonly boolean[]): Record<string, number> {
  const ended = lengths.filter((_, i) => !truncated[i])
  return {
    ...spread('completions/', '_length', lengths),
    'completions/clipped_ratio': truncated.filter(Boolean).length / Math.max(lengths.length, 1),
    ...spread('completions/', '_terminated_length', ended.length > 0 ? ended : [0]),
  }
}

function spread(before: string, after: string, values: readonly number[]): Record<string, number> {
  return {
    [`${before}mean${after}`]: values.reduce((a, b) => a + b, 0) / values.length,
    [`${before}min${after}`]: Math.min(...values),
    [`${before}max${after}`]: Math.max(...values),
  }
}
