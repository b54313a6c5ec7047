import { languageModelNames } from '../../checkpoint/index.ts'
import { counted } from '../../core/index.ts'
import { type Preparation, pixelTypeOf, type RgbImage } from '../../image/index.ts'
import { loraTargets } from '../../llm/index.ts'
import { cat, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { OpenedGroundedFamily } from '../base-family.ts'
import type { AdapterSite, GroundedFamily, ImageLimits } from '../family.ts'
import { type Features, type Prompt, preparation } from './inputs.ts'
import { exportSa2VA, type Loaded, openSa2VA, type Sa2VAOpenOptions } from './load.ts'
import type { Sa2VA } from './model.ts'
import { type ImageInput, module, type PrepareSettings, prepare } from './prepare.ts'

export const sa2vaGroups = {
  mlp1: [/^mlp1\./],
  lora: [/\.lora_[AB]\./],
  text_hidden_fcs: [/^text_hidden_fcs\./],
  mask_decoder: [/^grounding_encoder\.sam2_model\.sam_mask_decoder\./],
  prompt_encoder: [/^grounding_encoder\.sam2_model\.sam_prompt_encoder\.(not_a_point_embed|no_mask_embed)\./],
  embeddings: [/^language_model\.model\.(embed_tokens|tok_embeddings)\.weight$/],
  head: [/^language_model\.(lm_head|output)\.weight$/],
} as const

/** The linear layers of mlp1. */
export const sa2vaProjector = /^mlp1\.\d+$/

/** Sa2VA as a run sees it. */
export class Sa2VAFamily
  extends OpenedGroundedFamily<Features, Prompt, Sa2VA, Loaded>
  implements GroundedFamily<ImageInput, Features, Prompt>
{
  readonly name = 'sa2va'
  readonly groups = sa2vaGroups
  readonly adapter: AdapterSite

  constructor(loaded: Loaded) {
    super(loaded)
    const { llm } = loaded.cfg
    this.adapter = {
      on: loaded.model.language_model,
      targets: loraTargets(llm.architectures[0]!),
      root: 'language_model.',
      projector: sa2vaProjector,
      names: languageModelNames,
      width: llm.hidden_size,
    }
  }

  static open(dir: string, options: Sa2VAOpenOptions = {}): Sa2VAFamily {
    return new Sa2VAFamily(openSa2VA(dir, options))
  }

  protected imageTokens(features: object): number {
    return this.loaded.prompter.grid ** 2 * (features as Features).tiles
  }

  prepare(image: RgbImage, limits: ImageLimits = {}): ImageInput {
    return prepare(image, this.preparation(limits).settings as PrepareSettings)
  }

  preparation(limits?: ImageLimits): Preparation {
    const type = pixelTypeOf(this.model.placement.dtype)
    return { module, settings: { ...preparation(this.loaded.cfg, limits), type } satisfies PrepareSettings }
  }

  /** Rows are contiguous, as in a file: kernels round differently for other strides, and stored features must give the same bits. */
  encode(inputs: readonly ImageInput[]): Features[] {
    return this.inParts(inputs, (some) => {
      const { vision, sam } = this.model.encodeAll(some)
      const [tokens, ...levels] = [vision, sam.level0, sam.level1, sam.level2].map((t) => t.contiguous())
      let next = 0
      return some.map(({ tiles, height, width }, i) => {
        next += tiles
        const [level0, level1, level2] = levels.map((t) => t.narrow(0, i, 1)) as [Tensor, Tensor, Tensor]
        const own = tokens!.narrow(0, next - tiles, tiles)
        return { vision: own, sam: { level0, level1, level2 }, tiles, height, width }
      })
    })
  }

  shapeOf({ tiles }: ImageInput): string {
    return counted(tiles, 'tile')
  }

  encodeTogether(inputs: readonly ImageInput[]): { all: Features; rows: Features[] } {
    const { device, dtype } = this.model.placement
    const { size, tiles, height, width } = inputs[0]!
    const side = this.loaded.cfg.sam.image_size
    const all = tidy(() => {
      const pixels = cat(inputs.map((x) => tensor(x.pixels, [tiles, 3, size, size], { device, dtype })))
      const sam = cat(inputs.map((x) => tensor(x.samPixels, [1, 3, side, side], { device, dtype })))
      return { vision: this.model.visionFeatures(pixels), sam: this.model.sam.encodeImage(sam), tiles, height, width }
    })
    return { all, rows: inputs.map((_, i) => ({ ...all, vision: all.vision.narrow(0, i * tiles, tiles) })) }
  }

  tensorsOf({ vision, sam }: Features): Record<string, Tensor> {
    const { level0, level1, level2 } = sam
    return { vision, level0, level1, level2 }
  }

  featuresOf(tensors: Readonly<Record<string, Tensor>>, { height, width }: RgbImage): Features {
    const { vision, level0, level1, level2 } = tensors as Record<'vision' | 'level0' | 'level1' | 'level2', Tensor>
    return { vision, sam: { level0, level1, level2 }, tiles: vision.size(0), height, width }
  }

  export(dir: string, maxShardBytes?: number): string[] {
    return exportSa2VA(this.loaded, dir, maxShardBytes)
  }
}
