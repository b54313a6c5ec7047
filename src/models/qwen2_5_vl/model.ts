// Qwen2.5-VL: a vision tower whose tokens are in the prompt of a Qwen2 decoder. N prompt tokens, U tokens of an image, S hidden.
// Unusual: a position has three axes (time, row, column); the tokens of an image share one time and count rows and columns.
import { Mismatch } from '../../core/index.ts'
import { commonIds, Decoder, type Placement, type PromptPositions, Qwen2ForCausalLM } from '../../llm/index.ts'
import { cat, int64Tensor, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import type { QwenVLConfig } from './config.ts'
import type { Grid, PatchedImage } from './processor.ts'
import { QwenVision } from './vision.ts'

/** The tokens of one image; frozen with the tower. */
export interface QwenFeatures extends Grid {
  tokens: Tensor // [U, S]
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
  readonly visual: QwenVision
  readonly #cfg: QwenVLConfig
  readonly #decoder: Decoder

  constructor(cfg: QwenVLConfig) {
    super(cfg.llm)
    this.visual = new QwenVision(cfg.vision)
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

  /** With gradient to the tower where one is recorded. */
  imageTokens(image: PatchedImage): Tensor {
    const { device, dtype } = this.placement
    return tidy(() => {
      const P = image.rows * image.columns
      return this.visual.forward(tensor(image.pixels, [P, image.pixels.length / P], { device }).to(dtype), image)
    })
  }

  /** Frozen features, shared by every pass over the image. The caller owns them. */
  encode(image: PatchedImage): QwenFeatures {
    const { rows, columns, height, width } = image
    return { tokens: noGrad(() => this.imageTokens(image)), rows, columns, height, width }
  }

  promptEmbeddings({ ids, images }: QwenPrompt): Tensor {
    return tidy(() => {
      const { device } = this.placement
      const embedded = this.#decoder.embed(int64Tensor(ids, [1, ids.length], { device }))
      const places = [...ids.keys()].filter((i) => ids[i] === this.#cfg.image_token_id)
      const tokens = images.reduce((n, f) => n + f.tokens.size(0), 0)
      if (places.length !== tokens) {
        throw new Mismatch({
          where: 'prompt',
          field: 'image tokens',
          expected: `${tokens} for ${images.length} images`,
          got: places.length,
        })
      }
      if (images.length === 0) return embedded
      const rows = cat(images.map((f) => f.tokens)).to(embedded.dtype)
      return embedded.indexCopy(1, int64Tensor(places, { device }), rows.unsqueeze(0))
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
  throw new Mismatch({
    where: 'prompt',
    field: 'images',
    expected: 'one for each run of image tokens',
    got: 'fewer',
  })
}
