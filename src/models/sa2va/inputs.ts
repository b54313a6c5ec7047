// Plain data of a prompt: what a record becomes before any weight is involved.
import { Mismatch } from '../../core/index.ts'
import { type Precision, type RgbImage, regionGrid } from '../../image/index.ts'
import type { Mask } from '../../mask/index.ts'
import type { Sam2Config, Sam2Features } from '../../sam/index.ts'
import type { Tensor } from '../../tensor/index.ts'
import {
  type ChatTemplate,
  encodeRuns,
  type PromptText,
  type Question,
  regionCaptionPrompt,
  segmentPrompt,
  type Tokenizer,
} from '../../text/index.ts'
import type { ImageLimits } from '../family.ts'
import { type Sa2VAConfig, tokenGrid } from './config.ts'
import { type ImageInput, type PrepareSettings, prepare } from './prepare.ts'

/** Frozen features of one image; `vision` is before mlp1, `sam` before conv_s0/conv_s1. */
export interface Features {
  vision: Tensor
  sam: Sam2Features
  tiles: number
  height: number
  width: number
}

export interface Prompt {
  ids: Int32Array
  /** Positions of <IMG_CONTEXT> in ids. */
  imagePositions: number[]
  features: Features
  /** Cells of each region prompt, row-major over the token grid. */
  regions: Uint8Array[]
}

/** What an image becomes, within the limits. */
export function preparation(cfg: Sa2VAConfig, { maxTiles = cfg.max_dynamic_patch }: ImageLimits = {}): PrepareSettings {
  return {
    tileSize: cfg.image_size,
    minTiles: Math.min(cfg.min_dynamic_patch, maxTiles),
    maxTiles,
    thumbnail: cfg.use_thumbnail,
    samSize: cfg.sam.image_size,
    precision: samPrecision(cfg.sam),
  }
}

export function prepareImage(image: RgbImage, cfg: Sa2VAConfig, limits?: ImageLimits): ImageInput {
  return prepare(image, preparation(cfg, limits))
}

/** Placeholder in a prompt for each row of an image's tokens. */
const imageToken = '<IMG_CONTEXT>'

/** Tokens of images, regions and masks; they mean nothing in a caption. */
const notInCaptions = ['[SEG]', '<IMG_CONTEXT>', '<img>', '</img>', '<vp>', '</vp>', '<p>', '</p>']

/** The reference normalises SAM2's picture in the dtype of its weights, every step rounded. */
export function samPrecision(sam: Pick<Sam2Config, 'rounding'>): Precision {
  return sam.rounding === 'bf16-ref' ? 'bfloat16' : 'float32'
}

/** `pixels`: of each mask that a prompt is about. */
export function requirePixels(pixels: readonly number[]): void {
  if (pixels.length > 0 && !pixels.includes(0)) return
  const got = pixels.length === 0 ? 'no mask' : 'an empty mask'
  throw new Mismatch({ where: 'region prompt', field: 'mask', expected: 'at least one pixel', got })
}

/** Ids that a caption may not contain, for `suppressIds` of generate. */
export function idsOf(tokenizer: Tokenizer, tokens: readonly string[]): number[] {
  return tokens.map((token) => tokenizer.idOf(token)).filter((id) => id !== undefined)
}

/** Builds prompts of one model: tokenizer, template, and the ids of its special tokens. */
export class Prompter {
  readonly tokenizer: Tokenizer
  readonly template: ChatTemplate
  readonly segId: number
  readonly captionSuppressIds: readonly number[]
  readonly #imageId: number
  readonly grid: number

  constructor(cfg: Sa2VAConfig, tokenizer: Tokenizer, template: ChatTemplate) {
    this.tokenizer = tokenizer
    this.template = template
    this.segId = tokenizer.requireId('[SEG]')
    this.captionSuppressIds = idsOf(tokenizer, notInCaptions)
    this.#imageId = tokenizer.requireId(imageToken)
    this.grid = tokenGrid(cfg)
  }

  /** Describe one or several regions: each mask's cells become tokens of the prompt. `thin`: a mask hit no cell; the nearest one is used. */
  describe(features: Features, mask: Mask | readonly Mask[], question?: string): Prompt & { thin: boolean } {
    const regions = [mask].flat().map((m) => regionGrid(m as Mask, this.grid))
    requirePixels(regions.map(({ count }) => count))
    const { template } = this
    const size = { numTiles: features.tiles, tokensPerTile: this.grid ** 2 }
    const text = regionCaptionPrompt({ ...size, regionTokens: regions.map((r) => r.count), question, template })
    const cells = regions.map((r) => r.cells)
    return { ...this.#prompt({ text, plain: [] }, features, cells), thin: regions.some((r) => r.fallback) }
  }

  /** Find what a phrase means. Words that came from elsewhere stay words, whatever they spell. */
  segment(features: Features, phrase: string | { question: Question }): Prompt {
    const words = typeof phrase === 'string' ? { phrase } : phrase
    const { template } = this
    const size = { numTiles: features.tiles, tokensPerTile: this.grid ** 2 }
    return this.#prompt(segmentPrompt({ ...size, template, ...words }), features, [])
  }

  #prompt({ text, plain }: PromptText, features: Features, regions: Uint8Array[]): Prompt {
    const ids = encodeRuns(this.tokenizer, { text, plain }, imageToken)
    const imagePositions: number[] = []
    ids.forEach((id, i) => {
      if (id === this.#imageId) imagePositions.push(i)
    })
    return { ids, imagePositions, features, regions }
  }
}
