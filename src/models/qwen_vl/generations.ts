// What differs between Qwen2.5-VL and Qwen3-VL. Everything else of the two is one code.
import type { JsonObject } from '../../core/index.ts'
import type { Module } from '../../nn/index.ts'
import type { Tensor } from '../../tensor/index.ts'
import { clipProcessor, type Grid, type ProcessorConfig } from './processor.ts'
import { QwenVision } from './vision-2_5.ts'
import { Qwen3Vision } from './vision-3.ts'
import { type QwenVisionConfig, readVision2_5, readVision3 } from './vision-config.ts'

export type QwenBase = 'qwen2_5_vl' | 'qwen3_vl'

/** Called with the states after each part, for whoever compares them; they are freed when the call returns. */
export type Watch = (name: string, states: Tensor) => void

/** Tokens of an image, and what is added after the first layers of the language model; [U, out] each. */
export interface VisionOutput {
  tokens: Tensor
  deepstack: readonly Tensor[]
}

export type VisionTower = Module & {
  readonly patch_embed: { forward(patches: Tensor): Tensor }
  /** Patches of some images [P, 3 * frames * p * p] -> their tokens, unit by unit. */
  forward(patches: Tensor, grids: readonly Grid[], watch?: Watch): VisionOutput
  /** Added to the embedded patches, [P, h]. */
  positions?(grid: Grid): Tensor
}

interface Generation {
  label: string
  /** Qwen2 has biases on q, k, v; Qwen3 normalises q and k per head. */
  decoder: 'Qwen2ForCausalLM' | 'Qwen3ForCausalLM'
  /** The axes of a position take turns over the frequencies instead of having a block each. */
  interleaved: boolean
  /** Released files have the keys of the language model at the top of config.json, not in text_config. */
  flatText: boolean
  readVision: (raw: JsonObject, where: string) => QwenVisionConfig
  tower: (cfg: QwenVisionConfig) => VisionTower
  /** What preprocessor_config.json leaves out. */
  processor: ProcessorConfig
  /** Text of the system turn if nobody sets one; empty: no such turn. */
  system: string
  /** Units of the points and boxes it writes: pixels of the resized image, or thousandths of the sides. */
  coords: 'pixel' | 'thousand'
  /** Tokens that an answer never contains, besides the image's. */
  neverDrawn: readonly string[]
  /** Sa2VA reads the [SEG] state before the final norm. */
  segBeforeNorm: boolean
}

const half = [0.5, 0.5, 0.5]

export const generations: Readonly<Record<QwenBase, Generation>> = {
  qwen2_5_vl: {
    label: 'Qwen2.5-VL',
    decoder: 'Qwen2ForCausalLM',
    interleaved: false,
    flatText: true,
    readVision: readVision2_5,
    tower: (cfg) => new QwenVision(cfg),
    processor: clipProcessor,
    system: 'You are a helpful assistant.',
    coords: 'pixel',
    neverDrawn: ['<|vision_start|>', '<|vision_end|>'],
    segBeforeNorm: false,
  },
  qwen3_vl: {
    label: 'Qwen3-VL',
    decoder: 'Qwen3ForCausalLM',
    interleaved: true,
    flatText: false,
    readVision: readVision3,
    tower: (cfg) => new Qwen3Vision(cfg),
    processor: {
      ...clipProcessor,
      mean: half,
      std: half,
      minPixels: 2 ** 16,
      maxPixels: 2 ** 24,
      patch: 16,
      fast: true,
    },
    system: '',
    coords: 'thousand',
    neverDrawn: ['<|vision_start|>', '<|vision_end|>', '<|vision_pad|>', '<|video_pad|>'],
    segBeforeNorm: true,
  },
}
