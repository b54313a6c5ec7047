// Sa2VA: InternViT + pixel shuffle + mlp1 + language model + text_hidden_fcs + SAM2.
// T tiles, n tokens of a tile, h vision width, S hidden size, N prompt tokens. Unusual: region prompts repeat rows of the last
// tile; the [SEG] state is the final-norm state at the token's own position; two `not_a_point` tokens precede it in SAM2.
import { Mismatch } from '../../core/index.ts'
import {
  buildLanguageModule,
  commonIds,
  Decoder,
  type LanguageModule,
  type PromptInputs,
  startsOf,
} from '../../llm/index.ts'
import { LayerNorm, Linear } from '../../nn/index.ts'
import { cat, int64Tensor, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { InternVisionModel } from '../internvit/model.ts'
import { RecordedEncoder } from '../recorded-encoder.ts'
import { type Sa2VAConfig, tokenGrid } from './config.ts'
import { GroundedModule, GroundingEncoder, type HiddenLayers, hiddenLayers } from './grounding.ts'
import type { Features, Prompt } from './inputs.ts'
import type { ImageInput } from './prepare.ts'

/** Tiles that are encoded in one recorded pass: enough to fill a GPU. */
const tilesTogether = 8

export class Sa2VA extends GroundedModule<Features> {
  readonly vision_model: InternVisionModel
  readonly language_model: LanguageModule
  readonly mlp1: (LayerNorm | Linear | null)[]
  readonly text_hidden_fcs: HiddenLayers
  readonly grounding_encoder: GroundingEncoder
  readonly #cfg: Sa2VAConfig
  readonly #decoder: Decoder
  readonly #tiles: RecordedEncoder

  constructor(cfg: Sa2VAConfig) {
    super()
    const S = cfg.llm.hidden_size
    const wide = cfg.vision.hidden_size * Math.round(1 / cfg.downsample_ratio) ** 2
    this.vision_model = new InternVisionModel(cfg.vision)
    this.language_model = buildLanguageModule(cfg.llm)
    this.mlp1 = [new LayerNorm(wide, 1e-5), new Linear(wide, S), null, new Linear(S, S)]
    this.text_hidden_fcs = hiddenLayers(S, cfg.sam.d_model)
    this.grounding_encoder = new GroundingEncoder(cfg.sam)
    this.#cfg = cfg
    this.#decoder = new Decoder(cfg.llm, this.language_model)
    this.#tiles = new RecordedEncoder(this.vision_model, tilesTogether, (pixels) => [this.visionFeatures(pixels)])
  }

  get cfg(): Sa2VAConfig {
    return this.#cfg
  }

  get decoder(): Decoder {
    return this.#decoder
  }

  /** [T, 3, H, W] -> [T, n, 4h]: ViT, class token dropped, pixel shuffle. Depends on the image alone: frozen. */
  visionFeatures(pixels: Tensor): Tensor {
    return tidy(() => {
      const x = this.vision_model.forward(pixels, this.#cfg.select_layer).slice({ dim: 1, start: 1 })
      const [T, N, h] = x.shape as [number, number, number]
      const side = Math.sqrt(N)
      const step = Math.round(1 / this.#cfg.downsample_ratio)
      const g = side / step
      const cells = x.reshape([T, g, step, g, step, h]) // row, a, column, b
      const order = this.#cfg.ps_version === 'v1' ? [0, 3, 1, 2, 4, 5] : [0, 1, 3, 2, 4, 5]
      return cells.permute(order).reshape([T, g * g, step * step * h])
    })
  }

  /** [T, n, 4h] -> image tokens [T, n, S] */
  imageTokens(vision: Tensor): Tensor {
    return tidy(() => {
      const [norm, first, , second] = this.mlp1 as [LayerNorm, Linear, null, Linear]
      return second.forward(first.forward(norm.forward(vision)).gelu())
    })
  }

  /** Frozen features of an image, shared by policy, EMA copy, reference and all samples. The caller owns them. */
  encode(image: ImageInput): Features {
    const { tiles, height, width } = image
    return { ...noGrad(() => this.encodeAll([image])), tiles, height, width }
  }

  /** Of several images: the tiles of all of them, and SAM2's maps with a row for each. */
  encodeAll(images: readonly ImageInput[]): Pick<Features, 'vision' | 'sam'> {
    const { device, dtype } = this.placement
    return tidy(() => {
      const pixels = images.map(({ pixels, tiles, size }) => tensor(pixels, [tiles, 3, size, size], { device, dtype }))
      const [vision] = this.#tiles.run(pixels.length > 1 ? cat(pixels) : pixels[0]!) as [Tensor]
      const of = images.map((image) => image.samPixels)
      return { vision, sam: this.grounding_encoder.encode(of, this.placement) }
    })
  }

  /** Token embeddings with image and region rows in place: [1, N, S]. */
  promptEmbeddings(prompt: Prompt): Tensor {
    return this.allPromptInputs([prompt])[0]!.embeddings
  }

  /** The same for several prompts, whose tokens are embedded in one pass, and so are those of all images. */
  allPromptInputs(prompts: readonly Prompt[]): PromptInputs[] {
    return tidy(() => {
      const { device } = this.placement
      const images = [...new Set(prompts.map((prompt) => prompt.features))]
      const tokens = this.imageTokens(cat(images.map(({ vision }) => vision))).flatten({ endDim: 1 }) // [rows, S]
      const firstTile = startsOf(images.map(({ tiles }) => tiles))
      const firstToken = startsOf(prompts.map(({ ids }) => ids.length))
      // lists of many thousand numbers: flatMap would take milliseconds
      const [rows, places]: [number[], number[]] = [[], []]
      const ids = new Int32Array(firstToken.at(-1)!)
      prompts.forEach((prompt, r) => {
        ids.set(prompt.ids, firstToken[r]!)
        this.#addRows(prompt, firstTile[images.indexOf(prompt.features)]!, rows)
        for (const i of prompt.imagePositions) places.push(firstToken[r]! + i)
      })
      const embedded = this.#decoder.embed(int64Tensor(ids, [1, ids.length], { device }))
      const own = tokens.indexSelect(0, int64Tensor(rows, { device })).unsqueeze(0).to(embedded.dtype)
      const all = embedded.indexCopy(1, int64Tensor(places, { device }), own)
      const each = all.split(
        prompts.map((prompt) => prompt.ids.length),
        { dim: 1 },
      )
      return each.map((embeddings) => ({ embeddings, additions: [] }))
    })
  }

  /** Rows of a prompt's image, whose tiles begin at `first`, and of its regions: cells of the last tile (thumbnail, or the only one). */
  #addRows({ features: { tiles }, regions, imagePositions }: Prompt, first: number, rows: number[]): void {
    const [n, before] = [this.tokensPerTile, rows.length]
    for (let i = 0; i < tiles * n; i++) rows.push(first * n + i)
    for (const cells of regions)
      for (let i = 0; i < cells.length; i++) if (cells[i]) rows.push((first + tiles - 1) * n + i)
    const added = rows.length - before
    if (imagePositions.length === added) return
    const expected = `${added} tokens for ${tiles} tiles and ${regions.length} regions`
    throw new Mismatch({ where: 'prompt', field: '<IMG_CONTEXT>', expected, got: imagePositions.length })
  }

  override forgetRecordings(): void {
    this.#tiles.dispose()
    super.forgetRecordings()
  }

  /** Prompts of one image begin alike up to what is asked about it: a region's tokens, or the words. */
  sharedPrefix(a: Prompt, b: Prompt): number {
    if (a.features !== b.features) return 0
    const ofImage = a.features.tiles * this.tokensPerTile
    const region = (p: Prompt) => p.imagePositions[ofImage] ?? p.ids.length
    return Math.min(commonIds(a.ids, b.ids), region(a), region(b))
  }

  get tokensPerTile(): number {
    return tokenGrid(this.#cfg) ** 2
  }
}
