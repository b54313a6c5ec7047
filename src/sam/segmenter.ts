// A segmenter answers clicks: one reading of an image, any number of prompts on it. Nothing here records a gradient.
import type { RgbImage } from '../image/index.ts'
import { type Mask, maskFromDense } from '../mask/index.ts'
import type { Module } from '../nn/index.ts'
import { noGrad, type Tensor } from '../tensor/index.ts'

/** One prompt: clicks and a box in the frame of the segmenter's input (`inputSize`). */
export interface ClickPrompt {
  points: readonly (readonly [number, number])[]
  /** 1 inside, 0 outside; one for each point. */
  labels: readonly number[]
  box?: readonly [number, number, number, number] | null
  /** Logits of an earlier mask [1, 1, h, w]. */
  previous?: Tensor | null
}

export interface ClickMask {
  mask: Mask
  /** Overlap with the object as the segmenter itself expects it. */
  confidence: number
  /** Which of the decoder's masks was taken: 0 the single one, 1 .. the proposals. */
  token: number
  /** Low-resolution logits [1, 1, h, w], when asked for; the caller owns them. */
  logits: Tensor | null
}

export interface ClickOptions {
  /** Size of the image, and of the masks. */
  height: number
  width: number
  /** The best of the proposals instead of the segmenter's own choice. Default false. */
  multimask?: boolean
  keepLogits?: boolean
  /** Prompts of one call of the decoder. */
  batch?: number
}

/** `F`: the features of an image, an object of tensors. `M`: the model, which the segmenter owns. */
export abstract class Segmenter<F extends object = object, M extends Module = Module> {
  readonly model: M
  /** How often the image encoder ran. */
  encodes = 0
  /** How often the decoder ran, and over how many prompts. */
  decodes = 0
  prompts = 0

  constructor(model: M) {
    this.model = model
  }

  /** Size of an image in the frame of the input: clicks are scaled to it. */
  abstract inputSize(image: { height: number; width: number }): { height: number; width: number }
  protected abstract encodeImage(image: RgbImage): F
  /** Prompts with the same parts and counts. */
  protected abstract drawAlike(features: F, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[]

  /** Frees the weights. */
  dispose(): void {
    for (const t of this.model.parameters().values()) t.dispose()
  }

  /** The caller owns the features. */
  encode(image: RgbImage): F {
    this.encodes++
    return this.encodeImage(image)
  }

  /** A mask for every prompt on one image. Only prompts of one kind are decoded together: padding points change a mask. */
  draw(features: F, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[] {
    const out: ClickMask[] = []
    for (const rows of alike(prompts, options.batch ?? 16)) {
      this.decodes++
      this.prompts += rows.length
      const some = rows.map((r) => prompts[r]!)
      for (const [i, mask] of this.drawAlike(features, some, options).entries()) out[rows[i]!] = mask
    }
    return out
  }
}

/** What one call of the decoder gave for B prompts, as a mask each. `logits` [B, 1, h, w] are split up and freed. */
export function clickMasks(
  { logits, bits, ious, tokens }: { logits: Tensor | null; bits: Uint8Array; ious: number[]; tokens: number[] },
  { height, width }: ClickOptions,
): ClickMask[] {
  const size = height * width
  const masks = ious.map((confidence, i) => ({
    mask: maskFromDense(bits.subarray(i * size, (i + 1) * size), height, width),
    confidence,
    token: tokens[i]!,
    logits: logits && noGrad(() => logits.narrow(0, i, 1)),
  }))
  logits?.dispose()
  return masks
}

/** Rows whose prompts have the same parts and counts, no more than `max` together. */
function alike(prompts: readonly ClickPrompt[], max: number): number[][] {
  const groups = new Map<string, number[][]>()
  prompts.forEach((p, r) => {
    const key = `${p.points.length} ${p.box ? 'box' : ''} ${p.previous ? 'mask' : ''}`
    const runs = groups.get(key) ?? [[]]
    groups.set(key, runs)
    if (runs.at(-1)!.length === max) runs.push([])
    runs.at(-1)!.push(r)
  })
  return [...groups.values()].flat()
}
