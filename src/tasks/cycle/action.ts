// Mask actions: what is perturbed, with which log-density, and how an executed action becomes a mask. d prompt width, g grid side,
// h w low-res mask, M samples. Densities are divided by their dimension, so that a log-ratio has the scale of one token.
import type { RandomStream } from '../../core/index.ts'
import type { DrawnMask, GroundedFamily } from '../../models/index.ts'
import { wide } from '../../nn/index.ts'
import type { MaskConfidence } from '../../rewards/index.ts'
import { cat, int64Tensor, stack, type Tensor, tensor } from '../../tensor/index.ts'

/** Average over a g x g grid: [B, h, w] -> [B, g, g]. */
export function pooled(logits: Tensor, grid: number): Tensor {
  const [B, h, w] = logits.shape as [number, number, number]
  return logits.reshape([B, grid, h / grid, grid, w / grid]).mean([2, 4])
}

/** The grid that divides the mask: the asked one, or the mask's own side when that is smaller. */
export function gridOf(asked: number, side: number): number {
  let g = Math.min(asked, side)
  while (side % g !== 0) g--
  return g
}

/** Standard deviation over records, averaged over dimensions; of one record, over its dimensions. One number has none: 1. */
export function spreadOf(means: readonly Tensor[]): number {
  if (means.reduce((n, t) => n + t.numel, 0) < 2) return 1
  if (means.length === 1) return means[0]!.std(null, { correction: 1 }).item()
  return stack(means).std([0], { correction: 1 }).mean().item()
}

/** The first numbers of each stream, [M, count]. */
function normals(randoms: readonly RandomStream[], count: number, device: string): Tensor {
  const data = new Float32Array(randoms.length * count)
  randoms.forEach((random, m) => {
    for (let i = 0; i < count; i++) data[m * count + i] = random.normalAt(i)
  })
  return tensor(data, [randoms.length, count], { device })
}

function rowsOf(t: Tensor): Float32Array[] {
  const [rows, width] = t.shape as [number, number]
  const data = t.array() as Float32Array
  return Array.from({ length: rows }, (_, m) => data.slice(m * width, (m + 1) * width))
}

/** A sampled mask action: the numbers that were executed, and the mask output they belong to. */
export interface MaskAction {
  /** The disturbed prompt (embedding), or the disturbed grid of mask logits (field, both). */
  value: Float32Array
  choice: number
  /** `both`: the disturbed prompt the mask was drawn from. */
  prompt?: Float32Array
}

export interface Drawn {
  action: MaskAction
  logits: Tensor // [1, h, w], executed
  confidence: MaskConfidence
}

/** Of each drawn mask; waits for the device once. */
export function confidencesOf({ confidence }: DrawnMask): MaskConfidence[] {
  const numbers = confidence.numbers()
  return Array.from({ length: numbers.length / 2 }, (_, i) => ({ iou: numbers[2 * i]!, object: numbers[2 * i + 1]! }))
}

/** A answers with [SEG], of one record each, and the answer of each of M samples. */
export interface Answered {
  features: readonly object[]
  means: Tensor // [A, d], what the answers say
  of: readonly number[]
}

/** For each sample what belongs to its answer: [A, ..] -> [M, ..]. */
function spread(t: Tensor, of: readonly number[]): Tensor {
  return t.indexSelect(0, int64Tensor(of, { device: t.device }))
}

/** z = f + s e in the prompt space; the decoder is run on z. */
export function sampleEmbedding(
  family: GroundedFamily,
  { features, means, of }: Answered,
  scale: number,
  randoms: readonly RandomStream[],
): Drawn[] {
  const noise = normals(randoms, means.size(-1), means.device)
  const z = wide(spread(means, of)).add(noise.mul(scale)) // [M, d]
  const drawn = family.drawMasks(
    of.map((a) => features[a]!),
    z.to(means.dtype),
  )
  const sure = confidencesOf(drawn)
  return rowsOf(z).map((value, m) => ({
    action: { value, choice: drawn.choice[m]! },
    logits: drawn.logits.narrow(0, m, 1),
    confidence: sure[m]!,
  }))
}

/** u = m + s e on the pooled logits of the chosen mask; executed logits = y + upsample(u - m). */
export function sampleField(
  family: GroundedFamily,
  { features, means, of }: Answered,
  scale: number,
  grid: number,
  randoms: readonly RandomStream[],
): Drawn[] {
  const drawn = family.drawMasks(features, means)
  const sure = confidencesOf(drawn)
  const { values, logits } = disturbed(spread(drawn.logits, of), scale, grid, randoms)
  return values.map((value, m) => {
    const a = of[m]!
    return { action: { value, choice: drawn.choice[a]! }, logits: logits.narrow(0, m, 1), confidence: sure[a]! }
  })
}

/** Logits [M, h, w] moved by noise on their grid, and the grids that came of it. */
export function disturbed(drawn: Tensor, scale: number, grid: number, randoms: readonly RandomStream[]) {
  const y = wide(drawn)
  const [M, h, w] = y.shape as [number, number, number]
  const g = gridOf(grid, h)
  const noise = normals(randoms, g * g, y.device).mul(scale)
  const shift = noise.view([M, g, g])
  const values = rowsOf(pooled(y, g).add(shift).flatten({ startDim: 1 }))
  return { values, logits: y.add(shift.unsqueeze(1).upsampleBilinear2d([h, w], false).squeeze(1)) }
}

/** z = f + s1 xi in the prompt space, then u = m(z) + s2 e on the logits the decoder draws from z: two actions of one sample. */
export function sampleBoth(
  family: GroundedFamily,
  answered: Answered,
  scales: { prompt: number; field: number },
  grid: number,
  randoms: readonly { prompt: RandomStream; field: RandomStream }[],
): Drawn[] {
  const prompts = sampleEmbedding(
    family,
    answered,
    scales.prompt,
    randoms.map((r) => r.prompt),
  )
  const { values, logits } = disturbed(
    cat(prompts.map((p) => p.logits)),
    scales.field,
    grid,
    randoms.map((r) => r.field),
  )
  return prompts.map(({ action, confidence }, m) => {
    const { value: prompt, choice } = action
    return { action: { value: values[m]!, choice, prompt }, logits: logits.narrow(0, m, 1), confidence }
  })
}

/** Lists of equal length as rows, in one copy to the device: [M, n] */
export function rowsTensor(rows: readonly Float32Array[], device: string): Tensor {
  const n = rows[0]!.length
  const data = new Float32Array(rows.length * n)
  for (const [m, row] of rows.entries()) data.set(row, m * n)
  return tensor(data, [rows.length, n], { device })
}

/** Log-density of executed actions [M, n] under a mean each [M, n]: -|a - mean|^2 / (2 s^2 n), [M, 1]. */
export function actionDensity(actions: readonly Float32Array[], mean: Tensor, scale: number): Tensor {
  const n = mean.size(-1)
  return rowsTensor(actions, mean.device)
    .sub(wide(mean))
    .square()
    .sum(-1, { keepdim: true })
    .div(-2 * scale * scale * n)
}
