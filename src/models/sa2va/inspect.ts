import type { WeightEntry } from '../../checkpoint/index.ts'
import { type LlmConfig, loraTargets } from '../../llm/index.ts'
import type { Sam2Config } from '../../sam/index.ts'
import { defaultPatterns, type FolderReport, type WeightGroup } from '../family.ts'
import { readSa2VAConfig, type Sa2VAConfig } from './config.ts'
import { sa2vaGroups } from './family.ts'
import { isVideoOnly, openModelWeights } from './load.ts'

/** Reads config.json and the headers of the weight files. */
export function inspectSa2VA(dir: string, rank: number): FolderReport {
  const cfg = readSa2VAConfig(dir)
  const adapted = loraTargets(cfg.llm.architectures[0]!)
  const isTarget = (name: string) => name.startsWith('language_model.') && adapted(name.slice('language_model.'.length))
  const trained = defaultPatterns(sa2vaGroups)
  return reportOf(dir, { parts, trained, isTarget, rank, llm: cfg.llm, architecture: architectureOf(cfg) })
}

export interface ReportFacts {
  /** Parts of the model in the order of the table, by the names of their weights. */
  parts: readonly [string, RegExp][]
  /** What the default recipe trains besides adapters. */
  trained: readonly RegExp[]
  /** Whether a weight's layer gets an adapter; the name without `.weight`. */
  isTarget: (name: string) => boolean
  rank: number
  llm: LlmConfig
  architecture: Record<string, string>
}

export function reportOf(dir: string, facts: ReportFacts, folder = openModelWeights(dir)): FolderReport {
  const entries = folder.names.map((name): [string, WeightEntry] => [name, folder.entry(name)])
  const groups = groupsOf(entries, facts)
  const lora = loraOf(entries, facts)
  return {
    path: dir,
    architecture: facts.architecture,
    files: { count: folder.files.length, bytes: entries.reduce((sum, [, e]) => sum + e.byteLength, 0) },
    groups,
    lora,
    memory: memoryOf(facts.llm, groups, lora.elements),
  }
}

/** What every Sa2VA has after its language model. */
export const groundingParts: readonly [string, RegExp][] = [
  ['text_hidden_fcs', /^text_hidden_fcs\./],
  ['sam2 image_encoder', /^grounding_encoder\.sam2_model\.image_encoder\./],
  ['sam2 no_mem_embed', /^grounding_encoder\.sam2_model\.no_mem_embed$/],
  ['sam2 sam_prompt_encoder', /^grounding_encoder\.sam2_model\.sam_prompt_encoder\./],
  ['sam2 sam_mask_decoder', /^grounding_encoder\.sam2_model\.sam_mask_decoder\./],
]

const parts: readonly [string, RegExp][] = [
  ['vision_model', /^vision_model\./],
  ['mlp1', /^mlp1\./],
  ['language_model', /^language_model\./],
  ...groundingParts,
]

function groupsOf(entries: readonly [string, WeightEntry][], { parts: order, trained }: ReportFacts): WeightGroup[] {
  const groups = new Map<string, WeightGroup>()
  for (const [name, { shape, dtype, byteLength }] of entries) {
    const key = isVideoOnly(name) ? 'sam2 video (unused)' : (order.find(([, p]) => p.test(name))?.[0] ?? 'other')
    const group = groups.get(key) ?? { name: key, tensors: 0, elements: 0, bytes: 0, trainable: 0, dtypes: {} }
    const elements = shape.reduce((a, b) => a * b, 1)
    group.tensors++
    group.elements += elements
    group.bytes += byteLength
    if (trained.some((p) => p.test(name))) group.trainable += elements
    group.dtypes[dtype] = (group.dtypes[dtype] ?? 0) + 1
    groups.set(key, group)
  }
  const rank = (name: string) => (order.findIndex(([n]) => n === name) + 100) % 100
  return [...groups.values()].sort((a, b) => rank(a.name) - rank(b.name))
}

function loraOf(entries: readonly [string, WeightEntry][], { isTarget, rank }: ReportFacts) {
  const layers = entries.filter(([name, { shape }]) => shape.length === 2 && isTarget(name.replace(/\.weight$/, '')))
  const elements = layers.reduce((sum, [, { shape }]) => sum + rank * (shape[0]! + shape[1]!), 0)
  return { rank, layers: layers.length, elements }
}

export function describeLlm(llm: LlmConfig): string {
  const heads = `${llm.num_attention_heads}/${llm.num_key_value_heads} heads of ${llm.head_dim}`
  return `${llm.architectures[0]}, ${llm.num_hidden_layers} layers of ${llm.hidden_size}, ${heads}, vocabulary ${llm.vocab_size}`
}

export function describeSam({ stages, embed_dim, image_size }: Sam2Config): string {
  return `SAM2, ${stages.join('+')} blocks from ${embed_dim} channels, pictures of ${image_size}`
}

function architectureOf(cfg: Sa2VAConfig): Record<string, string> {
  const { vision } = cfg
  return {
    vision: `InternViT, ${vision.num_hidden_layers} layers of ${vision.hidden_size}, ${vision.norm_type}, tiles of ${cfg.image_size}`,
    language: describeLlm(cfg.llm),
    masks: describeSam(cfg.sam),
    prompt: `${cfg.template}, pixel shuffle ${cfg.ps_version}, at most ${cfg.max_dynamic_patch} tiles${cfg.use_thumbnail ? ' and a thumbnail' : ''}`,
    dtype: cfg.torch_dtype,
  }
}

/** Bytes. Trained weights are float32: master, gradient, two moments, EMA copy; the frozen rest is bfloat16. */
function memoryOf(llm: LlmConfig, groups: readonly WeightGroup[], lora: number): Record<string, number> {
  const used = groups.filter((g) => !g.name.includes('video')).reduce((sum, g) => sum + g.elements, 0)
  const trained = groups.reduce((sum, g) => sum + g.trainable, 0) + lora
  const { num_hidden_layers: layers, num_key_value_heads: heads, head_dim: dim } = llm
  return {
    'weights in bfloat16': 2 * used,
    'weights in float32': 4 * used,
    'trained state (float32 weight, gradient, moments, EMA)': 20 * trained,
    'key/value cache per 1000 tokens in bfloat16': 2 * 2 * layers * heads * dim * 1000,
  }
}
