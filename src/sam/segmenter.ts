// A segmenter answers clicks: one reading of an image, any number of prompts on it. Nothing here records a gradient.
import type { FeatureStore } from '../checkpoint/index.ts'
import { chunks } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import { type Mask, maskFromDense } from '../mask/index.ts'
import type { Module } from '../nn/index.ts'
import { noGrad, type Tensor, tidy } from '../tensor/index.ts'

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

/** A model that says what it computes besides its weights. */
type Configured = Module & { readonly config: object }

/** `F`: the features of an image, an object of tensors. `M`: the model, which the segmenter owns. */
export abstract class Segmenter<F extends object = object, M extends Configured = Configured> {
  readonly model: M
  /** How often the image encoder ran. */
  encodes = 0
  /** How often the decoder ran, and over how many prompts. */
  decodes = 0
  prompts = 0
  /** Keeps features on disk. */
  store: FeatureStore | null = null

  constructor(model: M) {
    this.model = model
  }

  /** Size of an image in the frame of the input: clicks are scaled to it. */
  abstract inputSize(image: { height: number; width: number }): { height: number; width: number }
  protected abstract encodeImages(images: readonly RgbImage[]): F[]
  /** Prompts with the same parts and counts, all on one image or each on another. */
  protected abstract drawAlike(features: F, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[]
  /** Images of one pass. With more than 1 `join` makes their features one batch. */
  protected readonly imagesTogether: number = 1
  protected join(features: readonly F[]): F {
    return features[0]!
  }

  /** Frees the weights. */
  dispose(): void {
    for (const t of this.model.parameters().values()) t.dispose()
  }

  encode(image: RgbImage): F {
    return this.encodeAll([image])[0]!
  }

  /** The caller owns the features. */
  encodeAll(images: readonly RgbImage[]): F[] {
    const { store } = this
    // one by one: what is stored does not depend on which images came together
    const one = (image: RgbImage) => ({ ...this.#encodeNow([image])[0]! }) as Record<string, Tensor>
    if (store) return images.map((image) => store.get('', image, () => one(image)) as F)
    return this.#encodeNow(images)
  }

  #encodeNow(images: readonly RgbImage[]): F[] {
    this.encodes += images.length
    return chunks(images, this.imagesTogether).flatMap((some) => this.encodeImages(some))
  }

  /** A mask for every prompt on one image. Only prompts of one kind are decoded together: padding points change a mask. */
  draw(features: F, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[] {
    const drawRows = (rows: readonly number[]) => this.drawAlike(features, at(prompts, rows), options)
    return this.#drawParts(alike(prompts.map(kindOf), options.batch ?? 16), drawRows)
  }

  /** A mask for one prompt on each of several images. */
  drawEach(features: readonly F[], prompts: readonly ClickPrompt[], options: readonly ClickOptions[]): ClickMask[] {
    const kinds = prompts.map((p, r) => `${kindOf(p)} ${options[r]!.height} ${options[r]!.width}`)
    return this.#drawParts(alike(kinds, this.imagesTogether), (rows) =>
      tidy(() => this.drawAlike(this.join(at(features, rows)), at(prompts, rows), options[rows[0]!]!)),
    )
  }

  #drawParts(parts: readonly number[][], drawRows: (rows: readonly number[]) => ClickMask[]): ClickMask[] {
    const out: ClickMask[] = []
    for (const rows of parts) {
      this.decodes++
      this.prompts += rows.length
      for (const [i, mask] of drawRows(rows).entries()) out[rows[i]!] = mask
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

/** Prompts of one kind have the same parts and counts. */
const kindOf = ({ points, box, previous }: ClickPrompt) =>
  `${points.length} ${box ? 'box' : ''} ${previous ? 'mask' : ''}`

const at = <T>(all: readonly T[], rows: readonly number[]): T[] => rows.map((r) => all[r]!)

/** Rows of one kind, no more than `max` together. */
function alike(kinds: readonly string[], max: number): number[][] {
  const groups = new Map<string, number[][]>()
  kinds.forEach((kind, r) => {
    const runs = groups.get(kind) ?? [[]]
    groups.set(kind, runs)
    if (runs.at(-1)!.length === max) runs.push([])
    runs.at(-1)!.push(r)
  })
  return [...groups.values()].flat()
}
