// Plain data of a prompt to Sa2VA on a Qwen-VL: pictures as patches, questions as ids, regions as a drawn outline or as copied cells.
import { Mismatch } from '../../core/index.ts'
import { outline, type RgbImage, regionGrid } from '../../image/index.ts'
import { type Mask, maskArea } from '../../mask/index.ts'
import type { Sam2Features } from '../../sam/index.ts'
import { type Tensor, tensor } from '../../tensor/index.ts'
import {
  type ChatTemplate,
  encodeRuns,
  imagePlaceholder,
  type Question,
  regionQuestion,
  regionString,
  segmentQuestion,
  type TextRange,
  type Tokenizer,
} from '../../text/index.ts'
import {
  type Grid,
  generations,
  type PatchedImage,
  type ProcessorConfig,
  patchResized,
  readProcessor,
} from '../qwen_vl/index.ts'
import { idsOf, requirePixels, samPrecision } from '../sa2va/index.ts'
import type { Sa2VAQwenConfig } from './config.ts'
import { type PrepareSettings, prepare, type QwenImageInput } from './prepare.ts'

/** How a region is shown: its outline drawn on the picture, or its visual tokens copied into the question. */
export type RegionPrompt = 'overlay' | 'cells'

/** Frozen features of one image; `sam` before conv_s0/conv_s1. */
export interface QwenGroundedFeatures extends Grid {
  tokens: Tensor // [U, S]
  /** Added to the language model's states after its first layers; [U, S] each, none for Qwen2.5-VL. */
  deepstack: readonly Tensor[]
  sam: Sam2Features
  /** Bytes of the picture the patches were cut from [h, w, 3]; an outline is drawn on it. */
  picture: Tensor
  height: number
  width: number
}

export interface QwenGroundedPrompt {
  ids: Int32Array
  features: QwenGroundedFeatures
  /** Units of each region whose tokens are copied, in raster order. */
  regions: readonly Int32Array[]
  /** The picture with outlines, read instead of the plain one. */
  drawn?: PatchedImage
}

/** Absent: as training does it, SAM2's pixels as the mask decoder rounds, the folder's own limit. */
export type PrepareOptions = Partial<Pick<PrepareSettings, 'resize' | 'precision' | 'maxPixels'>>

/** The folder's processor, with the limits of the reference's code instead of those in its file. */
export function groundedProcessor(dir: string, cfg: Sa2VAQwenConfig): ProcessorConfig {
  const read = readProcessor(dir, cfg, { ...generations[cfg.base].processor, fast: true })
  return { ...read, minPixels: cfg.min_pixels, maxPixels: cfg.max_pixels }
}

export function qwenPreparation(
  cfg: Sa2VAQwenConfig,
  processor: ProcessorConfig,
  options: PrepareOptions = {},
): PrepareSettings {
  const { resize = 'once', precision = samPrecision(cfg.sam), maxPixels = processor.maxPixels } = options
  return { processor, resize, precision, maxPixels, samSize: cfg.sam.image_size }
}

export function prepareQwenImage(
  image: RgbImage,
  cfg: Sa2VAQwenConfig,
  processor: ProcessorConfig,
  options?: PrepareOptions,
): QwenImageInput {
  return prepare(image, qwenPreparation(cfg, processor, options))
}

export function pictureTensor({ data, height, width }: RgbImage): Tensor {
  return tensor(data, [height, width, 3])
}

function pictureOf(picture: Tensor): RgbImage {
  const [height, width] = picture.shape as [number, number]
  return { data: picture.to('cpu').array() as Uint8Array, height, width }
}

/** How an answer ends; the turns around it are built by the prompter. */
const qwenTurns: ChatTemplate = {
  name: 'qwen_vl',
  system: '',
  instruction: (input) => `<|im_start|>user\n${input}<|im_end|>\n<|im_start|>assistant\n`,
  suffix: '<|im_end|>',
  suffixAsEos: true,
  sep: '\n',
  stopWords: ['<|im_end|>'],
}

const pad = '<|image_pad|>'

/** Tokens of images, regions and masks; they mean nothing in a caption. */
const notInCaptions = [
  ...['[SEG]', pad, '<|vision_start|>', '<|vision_end|>', '<|vision_pad|>', '<|video_pad|>'],
  ...['<vp>', '</vp>', '<p>', '</p>'],
]

/** The default question about an outlined region. It names the outline, since the model was not trained on regions. */
export const outlinedQuestion = `${imagePlaceholder}\nPlease give me a short description of the region in the picture outlined in red.`

/** Builds prompts of one model: tokenizer, turns, and the ids of its special tokens. An empty text of `system`: no such turn. */
export class QwenPrompter {
  readonly tokenizer: Tokenizer
  readonly template: ChatTemplate
  readonly segId: number
  readonly captionSuppressIds: readonly number[]
  readonly region: RegionPrompt
  readonly #imageId: number
  readonly #processor: ProcessorConfig

  constructor(
    cfg: Sa2VAQwenConfig,
    processor: ProcessorConfig,
    tokenizer: Tokenizer,
    options: { system: string; region?: RegionPrompt },
  ) {
    const system = options.system === '' ? '' : `<|im_start|>system\n${options.system}<|im_end|>\n`
    this.tokenizer = tokenizer
    this.template = { ...qwenTurns, system }
    this.segId = tokenizer.requireId('[SEG]')
    this.captionSuppressIds = idsOf(tokenizer, notInCaptions)
    this.region = options.region ?? 'overlay'
    this.#imageId = cfg.image_token_id
    this.#processor = processor
    if (tokenizer.requireId(pad) !== cfg.image_token_id) {
      const got = tokenizer.requireId(pad)
      throw new Mismatch({ where: 'config.json', field: 'image_token_id', expected: `the id of ${pad}`, got })
    }
  }

  /** Describe one or several regions. `thin`: a mask hit no cell; its nearest one is used. */
  describe(
    features: QwenGroundedFeatures,
    mask: Mask | readonly Mask[],
    question?: string,
  ): QwenGroundedPrompt & { thin: boolean } {
    const masks = [mask].flat() as Mask[]
    requirePixels(masks.map(maskArea))
    if (this.region === 'cells') return this.#copied(features, masks, question ?? regionQuestion)
    const picture = masks.reduce((drawn, m) => outline(drawn, m), pictureOf(features.picture))
    const prompt = this.#prompt(question ?? outlinedQuestion, features, [])
    return { ...prompt, drawn: patchResized(picture, this.#processor), thin: false }
  }

  /** Find what a phrase means. */
  segment(features: QwenGroundedFeatures, phrase: string | { question: Question }): QwenGroundedPrompt {
    const text = typeof phrase === 'string' ? segmentQuestion(phrase) : phrase.question
    return this.#prompt(text, features, [])
  }

  #copied(features: QwenGroundedFeatures, masks: readonly Mask[], question: string) {
    const { merge } = this.#processor
    const size = { rows: features.rows / merge, columns: features.columns / merge }
    const regions = masks.map((m) => regionGrid(m, size))
    const units = regions.map(({ cells }) => Int32Array.from([...cells.keys()].filter((i) => cells[i])))
    return { ...this.#prompt(question, features, units), thin: regions.some((r) => r.fallback) }
  }

  /** `<image>` is where the picture is spoken of; the picture itself is before the text, its regions after it. */
  #prompt(question: Question, features: QwenGroundedFeatures, regions: readonly Int32Array[]): QwenGroundedPrompt {
    const units = (features.rows * features.columns) / this.#processor.merge ** 2
    const picture = `<|vision_start|>${pad.repeat(units)}<|vision_end|>`
    const asked = typeof question === 'string' ? { before: question, words: '', after: '' } : question
    const copies = regions.map((cells) => cells.length)
    const before = picture + regionString(copies, pad) + asked.before.replaceAll(imagePlaceholder, '')
    const input = before + asked.words + asked.after.replaceAll(imagePlaceholder, '')
    const { system, instruction } = this.template
    const whole = system + instruction(input)
    const start = whole.indexOf(input) + before.length
    const plain: TextRange[] = asked.words === '' ? [] : [[start, start + asked.words.length]]
    const ids = encodeRuns(this.tokenizer, { text: whole, plain }, pad, { addSpecial: false })
    const expected = copies.reduce((n, copied) => n + copied, units)
    const got = ids.reduce((n, id) => n + (id === this.#imageId ? 1 : 0), 0)
    if (got === expected) return { ids, features, regions }
    const hint = 'a question must not contain the token of the picture'
    throw new Mismatch({ where: 'prompt', field: pad, expected: `${expected} tokens`, got, hint })
  }
}
