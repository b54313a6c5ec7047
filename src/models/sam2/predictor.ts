// SAM2 as a tool that answers clicks, as its image predictor does: one reading of an image, any number of prompts on it. Nothing here
// records a gradient. B prompts of a call, S side of SAM2's input.

import { imagenetMean, imagenetStd, type RgbImage } from '../../image/index.ts'
import { type Mask, maskFromDense } from '../../mask/index.ts'
import { cast } from '../../nn/index.ts'
import { cat, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import type { Sam2Features, Sam2Model } from './model.ts'
import type { Sam2Prompt } from './prompt.ts'
import { chooseMask, takeMask } from './selection.ts'

/** One prompt: clicks and a box in the frame of SAM2's input (0 .. S). */
export interface ClickPrompt {
  points: readonly (readonly [number, number])[]
  /** 1 inside, 0 outside; one for each point. */
  labels: readonly number[]
  box?: readonly [number, number, number, number] | null
  /** Logits of an earlier mask [1, 1, S/4, S/4]. */
  previous?: Tensor | null
}

export interface ClickMask {
  mask: Mask
  /** Overlap with the object as SAM2 itself expects it. */
  confidence: number
  /** Which of the decoder's masks was taken: 0 the single one, 1 .. the proposals. */
  token: number
  /** Low-resolution logits [1, 1, S/4, S/4], when asked for; the caller owns them. */
  logits: Tensor | null
}

export interface ClickOptions {
  /** Size of the masks. */
  height: number
  width: number
  /** The best of the proposals instead of the single mask with its fallback. Default false. */
  multimask?: boolean
  keepLogits?: boolean
  /** Prompts of one call of the decoder. */
  batch?: number
}

/** As the official predictor keeps them between clicks. */
const logitLimit = 32

export class Sam2Predictor {
  readonly model: Sam2Model
  /** How often the image encoder ran. */
  encodes = 0
  /** How often the decoder ran, and over how many prompts. */
  decodes = 0
  prompts = 0

  constructor(model: Sam2Model) {
    this.model = model
  }

  get side(): number {
    return this.model.config.image_size
  }

  /** The caller owns the features. */
  encode(image: RgbImage): Sam2Features {
    this.encodes++
    return noGrad(() => tidy(() => this.model.encodeImage(predictorInput(image, this.side, this.model.no_mem_embed))))
  }

  /** A mask for every prompt on one image. Prompts of the same make are decoded together: a filling point would change a mask. */
  draw(features: Sam2Features, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[] {
    const out: ClickMask[] = []
    for (const rows of alike(prompts, options.batch ?? 16)) {
      const drawn = this.#drawAlike(
        features,
        rows.map((r) => prompts[r]!),
        options,
      )
      rows.forEach((r, i) => {
        out[r] = drawn[i]!
      })
    }
    return out
  }

  #drawAlike(features: Sam2Features, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[] {
    const { height, width } = options
    this.decodes++
    this.prompts += prompts.length
    const { best, bits, ious, tokens } = noGrad(() =>
      tidy(() => {
        const decoded = this.model.decode(features, batchPrompt(prompts), { multimask: options.multimask ?? false })
        const index = options.multimask ? chooseMask(decoded.ious) : null
        const best = index ? takeMask(decoded.masks, index) : decoded.masks // [B, 1, S/4, S/4]
        const ious = index ? takeMask(decoded.ious, index) : decoded.ious
        const tokens = index ? index.add(1) : decoded.tokens!
        const bits = best.upsampleBilinear2d([height, width], false).gt(0).to('uint8').array() as Uint8Array
        const kept = options.keepLogits ? best.clamp({ min: -logitLimit, max: logitLimit }) : null
        return { best: kept, bits, ious: ious.numbers(), tokens: tokens.numbers() }
      }),
    )
    const masks = prompts.map((_, i) => ({
      mask: maskFromDense(bits.slice(i * height * width, (i + 1) * height * width), height, width),
      confidence: ious[i]!,
      token: tokens[i]!,
      logits: best && noGrad(() => best.narrow(0, i, 1)),
    }))
    best?.dispose()
    return masks
  }
}

/** Rows whose prompts have the same parts and counts, at most `most` together. */
function alike(prompts: readonly ClickPrompt[], most: number): number[][] {
  const groups = new Map<string, number[][]>()
  prompts.forEach((p, r) => {
    const key = `${p.points.length} ${p.box ? 'box' : ''} ${p.previous ? 'mask' : ''}`
    const runs = groups.get(key) ?? [[]]
    groups.set(key, runs)
    if (runs.at(-1)!.length === most) runs.push([])
    runs.at(-1)!.push(r)
  })
  return [...groups.values()].flat()
}

function batchPrompt(prompts: readonly ClickPrompt[]): Sam2Prompt {
  const [first] = prompts as [ClickPrompt]
  return {
    points: prompts.map((p) => p.points),
    labels: prompts.map((p) => p.labels),
    ...(first.box && { box: prompts.map((p) => p.box!) }),
    ...(first.previous && { maskInput: cat(prompts.map((p) => p.previous!)) }),
  }
}

/** Pixels / 255, stretched to the square on float values (bilinear, antialiased), normalised: [1, 3, S, S]. */
export function predictorInput(image: RgbImage, side: number, like: Tensor): Tensor {
  const { height, width, data } = image
  const { device } = like
  const pixels = tensor(data, [height, width, 3], { device }).to('float32').div(255).permute([2, 0, 1]).unsqueeze(0)
  const square = pixels.contiguous()._upsampleBilinear2dAa([side, side], false)
  const row = (values: readonly number[]) => tensor(Float32Array.from(values), [1, 3, 1, 1], { device })
  return cast(square.sub(row(imagenetMean)).div(row(imagenetStd)), like)
}
