import { type AdapterNames, exportModel } from '../../checkpoint/index.ts'
import { type Preparation, pixelTypeOf, type RgbImage } from '../../image/index.ts'
import type { DecoderOpenOptions } from '../../llm/index.ts'
import { cat, type Tensor, tidy } from '../../tensor/index.ts'
import { chatTemplates } from '../../text/index.ts'
import { OpenedFamily } from '../base-family.ts'
import type { AdapterSite, VqaFamily } from '../family.ts'
import { generations } from './generations.ts'
import { type LoadedQwenVL, openQwenVL, questionPrompt, releasedName } from './load.ts'
import type { QwenFeatures, QwenPrompt, QwenVL } from './model.ts'
import { module, prepare } from './prepare.ts'
import { type PatchedImage, type PatchSettings, smartResize } from './processor.ts'

/** As PEFT writes them with transformers from 4.52 on; older names are read too. */
const adapterNames: AdapterNames = { ours: 'model.', file: 'base_model.model.model.language_model.', adapter: null }

/** q, k, v, o of the language model. */
export const isAdaptedPath = (path: string): boolean => /^model\.layers\.\d+\.self_attn\.[qkvo]_proj$/.test(path)

/** Qwen2.5-VL or Qwen3-VL as a run sees it. q, k, v, o of the language model get adapters; the vision tower is frozen. */
export class QwenVLFamily
  extends OpenedFamily<QwenVL, LoadedQwenVL>
  implements VqaFamily<PatchedImage, QwenFeatures, QwenPrompt>
{
  readonly name: string
  readonly coords: 'pixel' | 'thousand'
  readonly groups = { lora: [/\.lora_[AB]\./] } as const
  readonly stopWords: readonly string[] = []
  readonly adapter: AdapterSite

  constructor(loaded: LoadedQwenVL) {
    super(loaded)
    this.name = loaded.cfg.base
    this.coords = generations[loaded.cfg.base].coords
    const width = loaded.cfg.llm.hidden_size
    this.adapter = { on: loaded.model, targets: isAdaptedPath, root: '', names: adapterNames, width }
  }

  static open(dir: string, options: DecoderOpenOptions = {}): QwenVLFamily {
    return new QwenVLFamily(openQwenVL(dir, options))
  }

  get tokenizer() {
    return this.loaded.tokenizer
  }

  protected get template() {
    return chatTemplates.qwen_chat
  }

  protected imageTokens(features: object): number {
    return (features as QwenFeatures).tokens.size(0)
  }

  get imageIds() {
    const { image_token_id, base, llm } = this.loaded.cfg
    const { tokenizer } = this
    const others = generations[base].neverDrawn.map((token) => tokenizer.idOf(token)).filter((id) => id !== undefined)
    const unused = Array.from({ length: llm.vocab_size - tokenizer.vocabSize }, (_, i) => tokenizer.vocabSize + i)
    return [image_token_id, ...others, ...unused]
  }

  ask(features: QwenFeatures, question: string): QwenPrompt {
    return questionPrompt(this.loaded, question, [features])
  }

  frameOf({ rows, columns }: QwenFeatures): { width: number; height: number } {
    const { patch } = this.loaded.processor
    return { width: columns * patch, height: rows * patch }
  }

  prepare(image: RgbImage): PatchedImage {
    return prepare(image, this.preparation().settings as PatchSettings)
  }

  preparation(): Preparation {
    const type = pixelTypeOf(this.model.placement.dtype)
    return { module, settings: { ...this.loaded.processor, type } satisfies PatchSettings }
  }

  encode(inputs: readonly PatchedImage[]): QwenFeatures[] {
    return this.model.encodeAll(inputs)
  }

  shapeOf({ rows, columns }: PatchedImage): string {
    return `${rows} x ${columns} patches`
  }

  encodeTogether(inputs: readonly PatchedImage[]): { all: QwenFeatures; rows: QwenFeatures[] } {
    const { rows, columns, height, width } = inputs[0]!
    const place = { rows, columns, height, width }
    return tidy(() => {
      const seen = inputs.map((input) => this.model.look(input))
      const tokens = cat(seen.map((one) => one.tokens))
      const deepstack = seen[0]!.deepstack.map((_, j) => cat(seen.map((one) => one.deepstack[j]!)))
      const each = tokens.size(0) / inputs.length
      const part = (t: Tensor, i: number) => t.narrow(0, i * each, each)
      const row = (i: number) => ({ tokens: part(tokens, i), deepstack: deepstack.map((t) => part(t, i)), ...place })
      return { all: { tokens, deepstack, ...place }, rows: inputs.map((_, i) => row(i)) }
    })
  }

  tensorsOf({ tokens, deepstack }: QwenFeatures): Record<string, Tensor> {
    return { tokens, ...Object.fromEntries(deepstack.map((t, j) => [`deepstack${j}`, t])) }
  }

  featuresOf(tensors: Readonly<Record<string, Tensor>>, image: Pick<RgbImage, 'height' | 'width'>): QwenFeatures {
    const { processor, cfg } = this.loaded
    const { height, width } = image
    const [h, w] = smartResize(height, width, processor)
    const grid = { rows: h / processor.patch, columns: w / processor.patch }
    const deepstack = cfg.vision.deepstack_visual_indexes.map((_, j) => tensors[`deepstack${j}`]!)
    return { tokens: tensors['tokens']!, deepstack, ...grid, height, width }
  }

  export(dir: string, maxShardBytes?: number): string[] {
    return exportModel(this.model, this.dir, dir, { maxShardBytes, ourName: releasedName })
  }
}
