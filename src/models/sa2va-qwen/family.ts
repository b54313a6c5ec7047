import type { AdapterNames } from '../../checkpoint/index.ts'
import { type Preparation, pixelTypeOf, type RgbImage } from '../../image/index.ts'
import { cat, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { OpenedGroundedFamily } from '../base-family.ts'
import type { AdapterSite, GroundedFamily, ImageLimits } from '../family.ts'
import { exportSa2VA } from '../sa2va/index.ts'
import { type QwenGroundedFeatures, type QwenGroundedPrompt, qwenPreparation } from './inputs.ts'
import { type LoadedSa2VAQwen, openSa2VAQwen, type QwenOpenOptions } from './load.ts'
import { placeOf, type Sa2VAQwen } from './model.ts'
import { module, type PrepareSettings, prepare, type QwenImageInput } from './prepare.ts'

/** The vision tower and its mergers are frozen, as in the released training: features are what the mergers give. */
export const qwenGroups = {
  lora: [/\.lora_[AB]\./],
  text_hidden_fcs: [/^text_hidden_fcs\./],
  mask_decoder: [/^grounding_encoder\.sam2_model\.sam_mask_decoder\./],
  prompt_encoder: [/^grounding_encoder\.sam2_model\.sam_prompt_encoder\.(not_a_point_embed|no_mask_embed)\./],
  embeddings: [/^model\.model\.language_model\.embed_tokens\.weight$/],
  head: [/^model\.lm_head\.weight$/],
} as const

/** PEFT wraps the whole Qwen-VL, which is below `model.` here. */
export const qwenAdapterNames: AdapterNames = { ours: 'model.', file: 'base_model.model.', adapter: null }

/** Every linear of the language model's layers; the vision tower has layers of the same names. */
export const isAdapted = (path: string): boolean => /^model\.language_model\.layers\.\d+\./.test(path)

/** Pixels of one tile, for limits that are given in tiles. */
export const tilePixels = 448 * 448

/** Sa2VA on Qwen2.5-VL or Qwen3-VL as a run sees it. */
export class Sa2VAQwenFamily
  extends OpenedGroundedFamily<QwenGroundedFeatures, QwenGroundedPrompt, Sa2VAQwen, LoadedSa2VAQwen>
  implements GroundedFamily<QwenImageInput, QwenGroundedFeatures, QwenGroundedPrompt>
{
  readonly name: string
  readonly groups = qwenGroups
  readonly adapter: AdapterSite

  constructor(loaded: LoadedSa2VAQwen) {
    super(loaded)
    this.name = `sa2va-${loaded.cfg.base}`
    const width = loaded.cfg.llm.hidden_size
    this.adapter = { on: loaded.model.model, targets: isAdapted, root: 'model.', names: qwenAdapterNames, width }
  }

  static open(dir: string, options: QwenOpenOptions = {}): Sa2VAQwenFamily {
    return new Sa2VAQwenFamily(openSa2VAQwen(dir, options))
  }

  protected imageTokens(features: object): number {
    return (features as QwenGroundedFeatures).tokens.size(0)
  }

  prepare(image: RgbImage, limits: ImageLimits = {}): QwenImageInput {
    return prepare(image, this.#preparation(limits))
  }

  preparation(limits: ImageLimits = {}): Preparation {
    return { module, settings: this.#preparation(limits) }
  }

  #preparation({ maxTiles }: ImageLimits): PrepareSettings {
    const maxPixels = maxTiles === undefined ? undefined : maxTiles * tilePixels
    const type = pixelTypeOf(this.model.placement.dtype)
    return { ...qwenPreparation(this.loaded.cfg, this.loaded.processor, { maxPixels }), type }
  }

  /** Contiguous, as in a file: stored features must give the same bits. */
  encode(inputs: readonly QwenImageInput[]): QwenGroundedFeatures[] {
    return this.inParts(inputs, (some) => this.model.encodeAll(some))
  }

  shapeOf({ patches }: QwenImageInput): string {
    return `${patches.rows} x ${patches.columns} patches`
  }

  encodeTogether(inputs: readonly QwenImageInput[]): { all: QwenGroundedFeatures; rows: QwenGroundedFeatures[] } {
    const { device, dtype } = this.model.placement
    const side = this.loaded.cfg.sam.image_size
    return tidy(() => {
      const pixels = cat(inputs.map((x) => tensor(x.samPixels, [1, 3, side, side], { device, dtype })))
      const sam = this.model.sam.encodeImage(pixels)
      const rows = inputs.map((input) => ({ ...this.model.look(input.patches), sam, ...placeOf(input) }))
      return { all: rows[0]!, rows }
    })
  }

  tensorsOf({ tokens, deepstack, sam, picture }: QwenGroundedFeatures): Record<string, Tensor> {
    const { level0, level1, level2 } = sam
    const named = Object.fromEntries(deepstack.map((t, i) => [`deepstack${i}`, t]))
    return { tokens, ...named, level0, level1, level2, picture }
  }

  featuresOf(tensors: Readonly<Record<string, Tensor>>, image: Pick<RgbImage, 'height' | 'width'>) {
    const get = (name: string) => tensors[name]!
    const { patch } = this.loaded.processor
    const picture = get('picture')
    const layers = Object.keys(tensors).filter((name) => name.startsWith('deepstack')).length
    return {
      tokens: get('tokens'),
      deepstack: Array.from({ length: layers }, (_, i) => get(`deepstack${i}`)),
      sam: { level0: get('level0'), level1: get('level1'), level2: get('level2') },
      ...{ rows: picture.size(0) / patch, columns: picture.size(1) / patch, picture },
      ...{ height: image.height, width: image.width },
    }
  }

  export(dir: string, maxShardBytes?: number): string[] {
    return exportSa2VA(this.loaded, dir, maxShardBytes)
  }
}
