// What the decoder is asked for. Clicks and boxes are plain numbers in the frame of SAM2's input (0 .. image_size), so that they
// can be checked without waiting for a device.
import { type Refuse, refuseAt } from '../../core/index.ts'
import type { Tensor } from '../../tensor/index.ts'
import { embeddingSize, type Sam2Config } from './config.ts'

/** 1 inside the object, 0 outside; 2 and 3 are a box's top left and bottom right corner, -1 no point at all. */
export const pointLabels = { none: -1, outside: 0, inside: 1, topLeft: 2, bottomRight: 3 } as const

/** B prompts. At least one kind is given; those given have the same B, and every row the same number of points. */
export interface Sam2Prompt {
  /** Embeddings from the language model [B, n, d_model]. */
  language?: Tensor
  /** [B][N][x, y]. */
  points?: readonly (readonly (readonly number[])[])[]
  /** [B][N], see pointLabels. */
  labels?: readonly (readonly number[])[]
  /** [B][x1, y1, x2, y2]: two points in front of the clicks. */
  box?: readonly (readonly number[])[]
  /** Logits of an earlier mask [B, 1, S/4, S/4]. */
  maskInput?: Tensor
}

/** Clicks and box corners of all rows, flat. */
export interface PointList {
  batch: number
  count: number
  /** [B * N * 2] */
  coords: Float32Array
  /** [B * N] */
  labels: Int32Array
}

const fail: Refuse = refuseAt('sam2 prompt')

/** B, the same in every part of the prompt. */
export function batchOf(prompt: Sam2Prompt): number {
  const sizes = new Map<string, number>()
  if (prompt.language) sizes.set('language', prompt.language.shape[0] ?? 0)
  if (prompt.points) sizes.set('points', prompt.points.length)
  if (prompt.box) sizes.set('box', prompt.box.length)
  if (prompt.maskInput) sizes.set('maskInput', prompt.maskInput.shape[0] ?? 0)
  const first = [...sizes][0]
  if (!first) fail('prompt', 'a language embedding, points, a box or a mask', 'none of them')
  const [name, batch] = first
  if (batch === 0) fail(name, 'at least one row', 0)
  for (const [other, n] of sizes) if (n !== batch) fail(other, `${batch} rows, as ${name} has`, n)
  return batch
}

export function checkTensors(prompt: Sam2Prompt, cfg: Sam2Config): void {
  const { language, maskInput } = prompt
  if (language && (language.ndim !== 3 || language.size(2) !== cfg.d_model || language.size(1) === 0))
    fail('language', `[B, n, ${cfg.d_model}]`, `[${language.shape}]`)
  const side = 4 * embeddingSize(cfg)
  if (maskInput && String(maskInput.shape.slice(1)) !== String([1, side, side]))
    fail('maskInput', `[B, 1, ${side}, ${side}]`, `[${maskInput.shape}]`)
}

const separateCall = 'decode rows with other counts in a separate call: a filling point would change the mask'

/** Box corners, then clicks, of every row; null when the prompt has neither. */
export function pointList(prompt: Sam2Prompt): PointList | null {
  checkPairs(prompt)
  const rows = (prompt.points ?? prompt.box)?.map((_, b) => rowOf(prompt, b))
  if (!rows) return null
  const count = rows[0]!.labels.length
  rows.forEach((row, b) => {
    if (row.labels.length !== count)
      fail(`points.${b}`, `${count} points, as row 0 has`, row.labels.length, separateCall)
  })
  if (count === 0) fail('points', 'at least one point per row', 0)
  return {
    batch: rows.length,
    count,
    coords: Float32Array.from(rows.flatMap((r) => r.points.flat())),
    labels: Int32Array.from(rows.flatMap((r) => r.labels)),
  }
}

function checkPairs({ points, labels }: Sam2Prompt): void {
  if ((points === undefined) !== (labels === undefined))
    fail(points ? 'labels' : 'points', 'points and labels together', 'one without the other')
  if (points && points.length !== labels!.length) fail('labels', `${points.length} rows`, labels!.length)
}

function rowOf(prompt: Sam2Prompt, b: number): { points: number[][]; labels: number[] } {
  const box = prompt.box?.[b]
  if (box && box.length !== 4) fail(`box.${b}`, '[x1, y1, x2, y2]', box)
  const clicks = prompt.points?.[b] ?? []
  const labels = prompt.labels?.[b] ?? []
  if (labels.length !== clicks.length) fail(`labels.${b}`, `${clicks.length} labels`, labels.length)
  const bad = labels.find((l) => !Number.isInteger(l) || l < -1 || l > 3)
  if (bad !== undefined) fail(`labels.${b}`, 'whole numbers from -1 to 3', bad)
  const points = [...(box ? [box.slice(0, 2), box.slice(2)] : []), ...clicks.map((p) => [...p])]
  const odd = points.find((p) => p.length !== 2 || !p.every(Number.isFinite))
  if (odd) fail(`points.${b}`, 'two finite numbers per point', odd)
  const corners = box ? [pointLabels.topLeft, pointLabels.bottomRight] : []
  return { points, labels: [...corners, ...labels] }
}
