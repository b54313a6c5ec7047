// Qwen2.5-VL and Qwen3-VL: a vision tower whose tokens are in the prompt of a decoder. N prompt tokens, U tokens of an image, S hidden.
// Unusual: a position has three axes (time, row, column); the tokens of an image share one time and count rows and columns. The tower of
// Qwen3-VL also adds to the states after the first layers (deepstack). Weights have the names of the released Qwen2.5-VL.
import { Mismatch } from '../../core/index.ts'
import {
  commonIds,
  Decoder,
  type Placement,
  type PromptInputs,
  type PromptPositions,
  Qwen2ForCausalLM,
} from '../../llm/index.ts'
import { cat, int64Tensor, noGrad, type Tensor, tensor, tidy, zeros } from '../../tensor/index.ts'
import type { QwenVLConfig } from './config.ts'
import { generations, type VisionOutput, type VisionTower, type Watch } from './generations.ts'
import type { Grid, PatchedImage } from './processor.ts'

/** The tower's output for one image. The tower is frozen, so it does not change in training. */
export interface QwenFeatures extends Grid, VisionOutput {
  /** Of the original. */
  height: number
  width: number
}

export interface QwenPrompt {
  ids: Int32Array
  /** One for each run of image tokens, in order. */
  images: readonly QwenFeatures[]
}

export class QwenVL extends Qwen2ForCausalLM {
  readonly visual: VisionTower
  readonly #cfg: QwenVLConfig
  readonly #decoder: Decoder

  constructor(cfg: QwenVLConfig) {
    super(cfg.llm)
    this.visual = generations[cfg.base].tower(cfg.vision)
    this.#cfg = cfg
    this.#decoder = new Decoder(cfg.llm, this)
  }

  get cfg(): QwenVLConfig {
    return this.#cfg
  }

  get decoder(): Decoder {
    return this.#decoder
  }

  get placement(): Placement {
    return this.#decoder.placement
  }

  /** With a gradient to the tower, if gradients are enabled. */
  look(image: PatchedImage, watch?: Watch): VisionOutput {
    return lookAt(this.visual, image, this.placement, watch)
  }

  /** Frozen features, shared by every pass over the image. The caller owns them. */
  encode(image: PatchedImage): QwenFeatures {
    return this.encodeAll([image])[0]!
  }

  encodeAll(images: readonly PatchedImage[]): QwenFeatures[] {
    const seen = noGrad(() => lookAtAll(this.visual, images, this.placement))
    return images.map(({ rows, columns, height, width }, i) => ({ ...seen[i]!, rows, columns, height, width }))
  }

  promptEmbeddings(prompt: QwenPrompt): Tensor {
    return this.promptInputs(prompt).embeddings
  }

  promptInputs({ ids, images }: QwenPrompt): PromptInputs {
    return tidy(() => {
      const all = (tensors: readonly Tensor[]) => (tensors.length > 0 ? cat([...tensors]) : null)
      const taps = this.#cfg.vision.deepstack_visual_indexes.map((_, j) => all(images.map((f) => f.deepstack[j]!)))
      const tokens = all(images.map((f) => f.tokens))
      return imageInputs(this.#decoder, ids, this.#cfg.image_token_id, tokens, taps)
    })
  }

  sharedPrefix(a: QwenPrompt, b: QwenPrompt): number {
    const same = a.images.length > 0 && a.images.length === b.images.length
    return same && a.images.every((f, i) => f === b.images[i]) ? commonIds(a.ids, b.ids) : 0
  }

  promptPositions({ ids, images }: QwenPrompt): PromptPositions {
    const { image_token_id: image, vision } = this.#cfg
    return gridPositions(ids, images, image, vision.spatial_merge_size)
  }
}

/**
 * Token embeddings with the rows of images in place, and what the tower adds after the first layers: rows of image tokens [U, S], null
 * without an image.
 */
export function imageInputs(
  decoder: Decoder,
  ids: Int32Array,
  imageToken: number,
  tokens: Tensor | null,
  taps: readonly (Tensor | null)[],
): PromptInputs {
  const { device } = decoder.placement
  const embedded = decoder.embed(int64Tensor(ids, [1, ids.length], { device }))
  const places = [...ids.keys()].filter((i) => ids[i] === imageToken)
  const expected = tokens?.size(0) ?? 0
  if (places.length !== expected)
    throw new Mismatch({ where: 'prompt', field: 'image tokens', expected: String(expected), got: places.length })
  const at = int64Tensor(places, { device })
  const put = (onto: Tensor, rows: Tensor | null) =>
    rows ? onto.indexCopy(1, at, rows.unsqueeze(0).to(onto.dtype)) : onto
  const nothing = zeros(embedded.shape as number[], { dtype: embedded.dtype, device })
  return { embeddings: put(embedded, tokens), additions: taps.map((rows) => put(nothing, rows)) }
}

/** The tower's output for an image; with a gradient, if gradients are enabled. */
export function lookAt(tower: VisionTower, image: PatchedImage, placement: Placement, watch?: Watch): VisionOutput {
  return lookTogether(tower, [image], placement, watch)[0]!
}

/** Patches of a pass: more are not faster on a GPU, and its memory grows with them. */
const patchesTogether = 16384

/** Several images in one pass on a GPU, one by one on the CPU. */
export function lookAtAll(
  tower: VisionTower,
  images: readonly PatchedImage[],
  placement: Placement,
): readonly VisionOutput[] {
  const parts: PatchedImage[][] = []
  let room = 0
  for (const image of images) {
    const size = placement.device === 'cpu' ? patchesTogether : image.rows * image.columns
    if (size > room) parts.push([])
    room = (size > room ? patchesTogether : room) - size
    parts.at(-1)!.push(image)
  }
  return parts.flatMap((some) => lookTogether(tower, some, placement))
}

/** All images in one pass. */
export function lookTogether(
  tower: VisionTower,
  images: readonly PatchedImage[],
  { device, dtype }: Placement,
  watch?: Watch,
): VisionOutput[] {
  return tidy(() => {
    const patches = images.map(({ pixels, rows, columns }) =>
      tensor(pixels, [rows * columns, pixels.length / rows / columns], { device, dtype }),
    )
    return apart(tower.forward(patches.length === 1 ? patches[0]! : cat(patches), images, watch), images)
  })
}

/** Rows of a joint output, image by image, each with memory that can be freed by itself. */
function apart({ tokens, deepstack }: VisionOutput, images: readonly PatchedImage[]): VisionOutput[] {
  if (images.length === 1) return [{ tokens, deepstack }]
  const patches = images.map(({ rows, columns }) => rows * columns)
  const merged = patches.reduce((a, b) => a + b) / tokens.size(0)
  const counts = patches.map((n) => n / merged)
  const split = (t: Tensor) => t.split(counts, { dim: 0 }).map((part) => part.clone())
  const [own, ...taps] = [tokens, ...deepstack].map(split) as [Tensor[], ...Tensor[][]]
  return own.map((part, i) => ({ tokens: part, deepstack: taps.map((parts) => parts[i]!) }))
}

/**
 * Text counts on all three axes alike. An image of r x c units is at one time; its rows and columns count from there, and the
 * text continues after the largest of them.
 */
export function gridPositions(
  ids: Int32Array,
  grids: readonly Grid[],
  imageToken: number,
  merge: number,
): PromptPositions {
  const axes = [0, 1, 2].map(() => new Int32Array(ids.length)) as [Int32Array, Int32Array, Int32Array]
  let next = 0
  let image = 0
  for (let i = 0; i < ids.length; ) {
    if (ids[i] !== imageToken) {
      for (const axis of axes) axis[i] = next
      next++
      i++
      continue
    }
    const [rows, columns] = unitsOf(grids[image++], merge)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++, i++) {
        axes[0][i] = next
        axes[1][i] = next + r
        axes[2][i] = next + c
      }
    next += Math.max(rows, columns)
  }
  return { axes, next }
}

function unitsOf(grid: Grid | undefined, merge: number): [number, number] {
  if (grid) return [grid.rows / merge, grid.columns / merge]
  throw new Mismatch({ where: 'prompt', field: 'images', expected: 'one for each run of image tokens', got: 'fewer' })
}
