// Mask actions: what is perturbed, with which log-density, and how an executed action becomes a mask. d prompt width, g grid side,
// h w low-res mask. Densities are divided by their dimension, so that a log-ratio lives on the scale of one token.
import type { RandomStream } from '../../core/index.ts'
import type { DrawnMask, GroundedFamily } from '../../models/index.ts'
import type { MaskConfidence } from '../../rewards/index.ts'
import { stack, type Tensor, tensor } from '../../tensor/index.ts'

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

function normals(random: RandomStream, count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => random.normalAt(i))
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

/** z = f + s e in the prompt space; the decoder is run on z. */
export function sampleEmbedding(
  family: GroundedFamily,
  features: object,
  mean: Tensor,
  scale: number,
  randoms: readonly RandomStream[],
): Drawn[] {
  const d = mean.size(-1)
  const noise = stack(randoms.map((r) => tensor(normals(r, d), [d], { device: mean.device })))
  const z = mean.to('float32').add(noise.mul(scale)) // [K, d]
  const drawn = family.drawMasks(features, z.to(mean.dtype))
  const sure = confidencesOf(drawn)
  return randoms.map((_, k) => ({
    action: { value: z.select(0, k).array() as Float32Array, choice: drawn.choice[k]! },
    logits: drawn.logits.narrow(0, k, 1),
    confidence: sure[k]!,
  }))
}

/** u = m + s e on the pooled logits of the chosen mask; executed logits = y + upsample(u - m). */
export function sampleField(
  family: GroundedFamily,
  features: object,
  mean: Tensor,
  scale: number,
  grid: number,
  randoms: readonly RandomStream[],
): Drawn[] {
  const drawn = family.drawMasks(features, mean)
  const [confidence] = confidencesOf(drawn)
  const y = drawn.logits.to('float32') // [1, h, w]
  const [, h, w] = y.shape as [number, number, number]
  const g = gridOf(grid, h)
  const m = pooled(y, g)
  return randoms.map((random) => {
    const shift = tensor(normals(random, g * g), [1, g, g], { device: y.device }).mul(scale)
    const value = m.add(shift).flatten().array() as Float32Array
    const logits = y.add(shift.unsqueeze(1).upsampleBilinear2d([h, w], false).squeeze(1))
    return { action: { value, choice: drawn.choice[0]! }, logits, confidence: confidence! }
  })
}

/** z = f + s1 xi in the prompt space, then u = m(z) + s2 e on the logits the decoder draws from z: two actions of one sample. */
export function sampleBoth(
  family: GroundedFamily,
  features: object,
  mean: Tensor,
  scales: { prompt: number; field: number },
  grid: number,
  randoms: readonly { prompt: RandomStream; field: RandomStream }[],
): Drawn[] {
  const prompts = sampleEmbedding(
    family,
    features,
    mean,
    scales.prompt,
    randoms.map((r) => r.prompt),
  )
  return prompts.map(({ action, logits, confidence }, k) => {
    const y = logits.to('float32') // [1, h, w]
    const [, h, w] = y.shape as [number, number, number]
    const g = gridOf(grid, h)
    const shift = tensor(normals(randoms[k]!.field, g * g), [1, g, g], { device: y.device }).mul(scales.field)
    const value = pooled(y, g).add(shift).flatten().array() as Float32Array
    const executed = y.add(shift.unsqueeze(1).upsampleBilinear2d([h, w], false).squeeze(1))
    return { action: { value, choice: action.choice, prompt: action.value }, logits: executed, confidence }
  })
}

/** Log-density of executed actions [M, n] under a mean each [M, n]: -|a - mean|^2 / (2 s^2 n), [M, 1]. */
export function actionDensity(actions: readonly Float32Array[], mean: Tensor, scale: number): Tensor {
  const n = mean.size(-1)
  const values = stack(actions.map((a) => tensor(a, [n], { device: mean.device })))
  return values
    .sub(mean.to('float32'))
    .square()
    .sum(-1, { keepdim: true })
    .div(-2 * scale * scale * n)
}
