// What decides the memory of a model, from its config.json alone: no weight is read and none exists.

import type { JsonObject } from '../core/index.ts'
import { coversProducts } from '../kernels/index.ts'
import { type Decoder, type LlmConfig, layerMatrices, loraTargets, otherLayers, shapeOf } from '../llm/index.ts'
import { type Module, targetRule, tensorAt } from '../nn/index.ts'
import type { Sam2Config } from '../sam/index.ts'
import { familyOfConfig } from './families.ts'
import { defaultPatterns } from './family.ts'
import { isAdaptedPath } from './qwen_vl/family.ts'
import { generations, parseQwenVLConfig, QwenVL } from './qwen_vl/index.ts'
import { sa2vaGroups, sa2vaProjector } from './sa2va/family.ts'
import { parseSa2VAConfig, Sa2VA, tokenGrid } from './sa2va/index.ts'
import { isAdapted, qwenGroups, tilePixels } from './sa2va-qwen/family.ts'
import { parseSa2VAQwenConfig, Sa2VAQwen } from './sa2va-qwen/index.ts'

export interface ModelSizes {
  llm: LlmConfig
  /** Values that training and sampling read. */
  values: number
  /** Values of the groups that train by default, adapters left out. */
  trained: number
  /** [out, in] of the layers that get adapters. */
  adapted: readonly (readonly [number, number])[]
  /** [out, in] of the matrices that can be quantized; one that gets adapters is the same array as above. */
  matrices: readonly (readonly [number, number])[]
  /** Whether the layers with a custom derivative (src/llm/score/by-hand) cover the language model. */
  ownLayers: boolean
  /** Whether the custom kernels can decode it. */
  ownDecoding: boolean
  /** Whether they multiply so many rows, the head's too. */
  ownProducts(rows: number): boolean
  /** Size of SAM2's maps beside those of the released models; 0: the model draws no masks. */
  samScale: number
  /** Tokens of the largest picture within a limit of tiles. */
  imageTokens(tiles: number): number
  /** Values of the features that stay in memory for such a picture. */
  featureValues(tiles: number): number
}

/** `targets`: the setting `lora.targets`. */
export function modelSizes(raw: JsonObject, targets: string | null = null): ModelSizes {
  const family = familyOfConfig(raw)
  if (Object.hasOwn(generations, family)) return plainQwen(raw, targets)
  return family === 'sa2va-internvl' ? onInternVL(raw, targets) : onQwen(raw, targets)
}

/** SAM2's features of a picture: 256 channels at a quarter, an eighth and a sixteenth of its side. */
const samValues = ({ d_model, image_size }: Pick<Sam2Config, 'd_model' | 'image_size'>) =>
  d_model * [4, 8, 16].reduce((sum, step) => sum + (image_size / step) ** 2, 0)

const samScale = (sam: Sam2Config) => samValues(sam) / samValues({ d_model: 256, image_size: 1024 })

function onInternVL(raw: JsonObject, targets: string | null): ModelSizes {
  const cfg = parseSa2VAConfig(raw)
  const isDefault = loraTargets(cfg.llm.architectures[0]!)
  const isTarget = targetRule(targets, { root: 'language_model.', isDefault, projector: sa2vaProjector })
  const cells = tokenGrid(cfg) ** 2
  const pictures = (tiles: number) => tiles + Number(cfg.use_thumbnail && tiles > 1)
  const wide = cfg.vision.hidden_size * Math.round(1 / cfg.downsample_ratio) ** 2
  return {
    ...counted(new Sa2VA(cfg), isTarget, defaultPatterns(sa2vaGroups)),
    samScale: samScale(cfg.sam),
    imageTokens: (tiles) => pictures(tiles) * cells,
    featureValues: (tiles) => pictures(tiles) * cells * wide + samValues(cfg.sam),
  }
}

function onQwen(raw: JsonObject, targets: string | null): ModelSizes {
  const cfg = parseSa2VAQwenConfig(raw)
  const isTarget = targetRule(targets, { root: 'model.', isDefault: isAdapted })
  const unit = (cfg.vision.patch_size * cfg.vision.spatial_merge_size) ** 2
  const tokens = (tiles: number) => Math.floor(Math.min(cfg.max_pixels, tiles * tilePixels) / unit)
  const levels = 1 + cfg.vision.deepstack_visual_indexes.length
  return {
    ...counted(new Sa2VAQwen(cfg), isTarget, defaultPatterns(qwenGroups)),
    samScale: samScale(cfg.sam),
    imageTokens: tokens,
    featureValues: (tiles) => tokens(tiles) * levels * cfg.llm.hidden_size + samValues(cfg.sam),
  }
}

/** Side of the images of the point task, which draws its masks with another model. */
const pointsSide = 840

function plainQwen(raw: JsonObject, targets: string | null): ModelSizes {
  const cfg = parseQwenVLConfig(raw)
  const tokens = Math.round(pointsSide / (cfg.vision.patch_size * cfg.vision.spatial_merge_size)) ** 2
  const isTarget = targetRule(targets, { root: '', isDefault: isAdaptedPath })
  const levels = 1 + cfg.vision.deepstack_visual_indexes.length
  return {
    ...counted(new QwenVL(cfg), isTarget, []),
    samScale: 0,
    imageTokens: () => tokens,
    featureValues: () => tokens * levels * cfg.llm.hidden_size,
  }
}

/** Projections that read the same input. */
const packs = [['q', 'k', 'v'], ['o'], ['gate', 'up'], ['down']]

/** With adapters on the same packs of every layer. */
function coversLayers({ architectures, num_hidden_layers }: LlmConfig, adapted: readonly string[]): boolean {
  const counts = packs.map((pack) => pack.map((name) => adapted.filter((n) => n.endsWith(`.${name}_proj`)).length))
  const covered = counts.filter((pack) => pack.every((count) => count === num_hidden_layers)).flat()
  return architectures[0] === 'Qwen2ForCausalLM' && covered.length * num_hidden_layers === adapted.length
}

/** Constructing a model allocates nothing: its tensors have shapes alone. */
function counted(
  model: Module & { readonly decoder: Decoder },
  isTarget: (name: string) => boolean,
  trained: readonly RegExp[],
): Omit<ModelSizes, 'samScale' | 'imageTokens' | 'featureValues'> {
  const isMatrix = layerMatrices(model.decoder)
  const sum = { values: 0, trained: 0, adapted: [] as [number, number][], matrices: [] as [number, number][] }
  const names: string[] = []
  for (const slot of model.slots()) {
    const { shape, numel } = tensorAt(slot)
    sum.values += numel
    if (trained.some((pattern) => pattern.test(slot.name))) sum.trained += numel
    const name = slot.name.replace(/\.weight$/, '')
    const size: [number, number] = [shape[0]!, shape[1]!]
    if (shape.length === 2 && isTarget(name)) {
      names.push(name)
      sum.adapted.push(size)
    }
    if (isMatrix(slot)) sum.matrices.push(size)
  }
  const llm = model.decoder.cfg
  const ownDecoding = otherLayers(model.decoder) === null
  for (const t of model.parameters().values()) t.dispose()
  const shape = shapeOf(model.decoder)
  const ownProducts = (rows: number) => ownDecoding && coversProducts(shape, rows)
  return { llm, ...sum, ownLayers: coversLayers(llm, names), ownDecoding, ownProducts }
}
