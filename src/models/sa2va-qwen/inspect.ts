import { defaultPatterns, type FolderReport } from '../family.ts'
import { groundingParts, reportOf } from '../sa2va/index.ts'
import { readSa2VAQwenConfig, type Sa2VAQwenConfig } from './config.ts'
import { isAdapted, qwenGroups } from './family.ts'

const parts: readonly [string, RegExp][] = [
  ['visual', /^model\.model\.visual\./],
  ['language_model', /^model\.(model\.language_model|lm_head)\./],
  ...groundingParts,
]

/** Reads config.json and the headers of the weight files. */
export function inspectSa2VAQwen(dir: string, rank: number): FolderReport {
  const cfg = readSa2VAQwenConfig(dir)
  const isTarget = (name: string) => name.startsWith('model.') && isAdapted(name.slice('model.'.length))
  const trained = defaultPatterns(qwenGroups)
  return reportOf(dir, { parts, trained, isTarget, rank, llm: cfg.llm, architecture: architectureOf(cfg) })
}

function architectureOf(cfg: Sa2VAQwenConfig): Record<string, string> {
  const { vision, llm, sam, base } = cfg
  const heads = `${llm.num_attention_heads}/${llm.num_key_value_heads} heads of ${llm.head_dim}`
  const name = base === 'qwen3_vl' ? 'Qwen3-VL' : 'Qwen2.5-VL'
  const deepstack = cfg.base === 'qwen3_vl' ? `, deepstack from ${cfg.vision.deepstack_visual_indexes.join(', ')}` : ''
  return {
    vision: `${name}, ${vision.depth} layers of ${vision.hidden_size}, patches of ${vision.patch_size}${deepstack}`,
    language: `${llm.architectures[0]}, ${llm.num_hidden_layers} layers of ${llm.hidden_size}, ${heads}, vocabulary ${llm.vocab_size}`,
    masks: `SAM2, ${sam.stages.join('+')} blocks from ${sam.embed_dim} channels, pictures of ${sam.image_size}`,
    prompt: `the processor's chat template, pictures of ${cfg.min_pixels} to ${cfg.max_pixels} pixels`,
    dtype: cfg.torch_dtype,
  }
}
