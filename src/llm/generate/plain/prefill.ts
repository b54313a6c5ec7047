// Reading prompts into a key/value cache. Prompts that begin alike (several phrases or regions of one image) read that beginning once.
// B prompts, G groups of them, W columns read at a time, L columns in the cache, S hidden.
import type { KVCache } from '../../../nn/index.ts'
import { cat, int64Tensor, type Tensor, tensor, tidy } from '../../../tensor/index.ts'
import {
  allInputsOf,
  batchedAdditions,
  type PromptedModel,
  type PromptIds,
  padded,
  positionsOf,
  positionTensor,
} from '../../prompted-model.ts'
import type { DecodeStart } from '../decoding.ts'
import { type PackedPrompts, packedPrefill } from '../fused/packed-prefill.ts'
import type { Group } from '../fused/prefixes.ts'

/** As a start of decoding with a row for each prompt. */
export interface Prefilled extends Omit<DecodeStart, 'rows'> {
  /** Scores of the first new token, [B, V]. */
  logits: Tensor
}

/** A stretch of tokens to read: embeddings [1, n, S] and their positions on every axis. */
interface Stretch {
  x: Tensor
  additions: readonly Tensor[]
  axes: readonly Int32Array[]
}

/** The cache belongs to the caller and has room for `newTokens` more. */
export function prefill<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  newTokens: number,
): Prefilled {
  const groups = groupsOf(model, prompts)
  const packed = packedPrefill(model, prompts, groups)
  if (packed) return withoutPadding(model, prompts, packed)
  const shares = groups.length < prompts.length
  const groupOf = prompts.map((_, b) => groups.findIndex((g) => g.members.includes(b)))
  const starts = groupOf.map((g) => (shares ? groups[g]!.prefix : 0))
  const first = shares ? Math.max(...starts) : 0
  const rest = Math.max(...prompts.map((p, b) => p.ids.length - starts[b]!))
  const cache = model.decoder.emptyCache(shares ? groups.length : prompts.length, first + rest + newTokens)
  try {
    return tidy(() => {
      const positions = prompts.map((p) => positionsOf(model, p))
      const inputs = allInputsOf(model, prompts)
      const piece = (b: number, from: number, to: number): Stretch => ({
        x: inputs[b]!.embeddings.narrow(1, from, to - from),
        additions: inputs[b]!.additions.map((t) => t.narrow(1, from, to - from)),
        axes: positions[b]!.axes.map((axis) => axis.subarray(from, to)),
      })
      let before: Uint8Array[] = prompts.map(() => new Uint8Array(0))
      if (shares) {
        const heads = groups.map(({ members, prefix }) => piece(members[0]!, 0, prefix))
        const read = readColumns(model, cache, heads, [], first)
        cache.select(index(groupOf, model.placement.device))
        before = groupOf.map((g) => read.columns[g]!)
      }
      const tails = prompts.map((p, b) => piece(b, starts[b]!, p.ids.length))
      const { hidden, columns } = readColumns(model, cache, tails, before, rest)
      const padded = columns.some((row) => row.includes(0))
      return {
        cache,
        logits: model.decoder.logits(hidden.select(1, rest - 1)),
        valid: padded ? bits(columns, model.placement.device) : null,
        columns: first + rest,
        next: positions.map((p) => p.next),
      }
    })
  } catch (error) {
    cache.dispose()
    throw error
  }
}

/** Tokens begin at the first column; a shorter prompt leaves the columns after it empty. */
function withoutPadding<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  { cache, lengths, last }: PackedPrompts,
): Prefilled {
  const columns = Math.max(...lengths)
  const rows = lengths.map((n) => new Uint8Array(columns).fill(1, 0, n))
  return {
    ...{ cache, lengths, columns },
    logits: tidy(() => model.decoder.logits(last)),
    valid: lengths.every((n) => n === columns) ? null : bits(rows, model.placement.device),
    next: prompts.map((p) => positionsOf(model, p).next),
  }
}

export function groupsOf<P extends PromptIds>(model: PromptedModel<P>, prompts: readonly P[]): Group[] {
  const groups: Group[] = []
  prompts.forEach((prompt, b) => {
    const most = (n: number) => Math.min(n, prompt.ids.length - 1)
    for (const group of groups) {
      const shared = model.sharedPrefix?.(prompts[group.members[0]!]!, prompt) ?? 0
      if (shared === 0) continue
      group.members.push(b)
      group.prefix = most(Math.min(group.prefix, shared))
      return
    }
    groups.push({ members: [b], prefix: most(prompt.ids.length) })
  })
  return groups
}

/** Reads one stretch per row, padded on the left to `width`, after the columns in `before` (1: a token, 0: padding). */
function readColumns<P extends PromptIds>(
  model: PromptedModel<P>,
  cache: KVCache,
  rows: readonly Stretch[],
  before: readonly Uint8Array[],
  width: number,
): { hidden: Tensor; columns: Uint8Array[] } {
  const { device } = model.placement
  const start = before[0]?.length ?? 0
  const columns = rows.map(({ x }, r) =>
    Uint8Array.from([...(before[r] ?? []), ...new Uint8Array(width - x.size(1)), ...new Uint8Array(x.size(1)).fill(1)]),
  )
  const plain = start === 0 && columns.every((row) => !row.includes(0))
  const stand = rows.map(({ axes }) => axes.map((axis) => atTheEnd(axis, width)))
  const hidden = model.decoder.forward(cat(rows.map(({ x }) => padded(x, width, 'left'))), {
    additions: batchedAdditions(
      rows.map((row) => row.additions),
      width,
      'left',
    ),
    positions: positionTensor(stand, device),
    mask: plain ? undefined : maskOf(columns, start, width, device),
    cache,
    columns: columnRange(start, start + width, device),
    length: start + width,
  })
  return { hidden, columns }
}

/** Padding is at position 0. */
function atTheEnd(axis: Int32Array, width: number): Int32Array {
  const out = new Int32Array(width)
  out.set(axis, width - axis.length)
  return out
}

const index = (values: readonly number[], device: string) => int64Tensor(values, { device })

function columnRange(start: number, end: number, device: string): Tensor {
  return index(
    Array.from({ length: end - start }, (_, i) => start + i),
    device,
  )
}

function bits(rows: readonly Uint8Array[], device: string): Tensor {
  const width = rows[0]!.length
  const all = new Uint8Array(rows.length * width)
  rows.forEach((row, r) => {
    all.set(row, r * width)
  })
  return tensor(all, [rows.length, width], { dtype: 'bool', device })
}

/** [B, 1, W, L]: earlier tokens of the row; a padding token attends to itself, so that no row is without a key. */
function maskOf(columns: readonly Uint8Array[], start: number, width: number, device: string): Tensor {
  const here = columnRange(start, start + width, device).unsqueeze(1) // [W, 1]
  const all = columnRange(0, start + width, device).unsqueeze(0) // [1, L]
  const visible = here.ge(all).logicalAnd(bits(columns, device).unsqueeze(1)) // [B, W, L]
  return visible.logicalOr(here.eq(all)).unsqueeze(1)
}
