import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { Mismatch, readJsonObject } from '../core/index.ts'
import { openWeights, renamed, type WeightFolder } from './weights.ts'

// LoRA adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.

const count = z.int().positive()
const modules = z.union([z.string(), z.array(z.string())])

/** The fields we act on; PEFT's versions add others, which are kept as they are. */
export const AdapterConfig = z.looseObject({
  peft_type: z.literal('LORA'),
  r: count,
  lora_alpha: z.number().positive(),
  lora_dropout: z.number().min(0).max(1).default(0),
  target_modules: modules.nullable(),
  modules_to_save: z.array(z.string()).nullish(),
  bias: z.literal('none').default('none'),
  fan_in_fan_out: z.literal(false).default(false),
  use_rslora: z.boolean().default(false),
  use_dora: z.literal(false).default(false),
  rank_pattern: z.record(z.string(), count).default({}),
  alpha_pattern: z.record(z.string(), z.number().positive()).default({}),
  base_model_name_or_path: z.string().nullish(),
})
export type AdapterConfig = z.infer<typeof AdapterConfig>

/** Keys of PEFT 0.21 whose default is null. */
const nullKeys =
  'alora_invocation_tokens arrow_config auto_mapping base_model_name_or_path corda_config eva_config exclude_modules kasa_config layer_replication layers_pattern layers_to_transform lora_ga_config megatron_config modules_to_save monteclora_config revision target_parameters trainable_token_indices use_bdlora velora_config'

/** Everything PEFT 0.21 writes, at its defaults. */
const peftDefaults = {
  ...Object.fromEntries(nullKeys.split(' ').map((key) => [key, null])),
  alpha_pattern: {},
  bias: 'none',
  ensure_weight_tying: false,
  fan_in_fan_out: false,
  inference_mode: true,
  init_lora_weights: true,
  loftq_config: {},
  lora_bias: false,
  lora_dropout: 0,
  megatron_core: 'megatron.core',
  peft_type: 'LORA',
  peft_version: '0.21.0',
  qalora_group_size: 16,
  rank_pattern: {},
  task_type: 'CAUSAL_LM',
  use_dora: false,
  use_qalora: false,
  use_rslora: false,
} as const

/** How names in memory map to names in an adapter file: `ours` + X is `file` + X. In memory the adapter's name follows lora_A and
 * lora_B; null if names in memory leave it out too. */
export interface AdapterNames {
  ours: string
  file: string
  adapter: string | null
}

/** Our layers' own spelling, for a language model wrapped by PEFT inside a larger model: no adapter name. */
export const languageModelNames: AdapterNames = { ours: 'language_model.', file: 'base_model.model.', adapter: null }

const loraPart = /\.(lora_[AB]|lora_embedding_[AB]|lora_magnitude_vector)(?=\.|$)/

function withoutPrefix(name: string, prefix: string): string {
  if (name.startsWith(prefix)) return name.slice(prefix.length)
  throw new Mismatch({ where: 'adapter', field: name, expected: `a name that begins with ${prefix}`, got: name })
}

/** `language_model.X.lora_A.weight` -> `base_model.model.X.lora_A.weight`; an adapter's name is dropped. */
export function toFileName(name: string, names: AdapterNames): string {
  let inner = withoutPrefix(name, names.ours)
  if (names.adapter !== null) {
    const suffix = `.${names.adapter}`
    const at = loraPart.exec(inner)
    const end = at ? at.index + at[0].length : -1
    if (at && inner.startsWith(suffix, end)) inner = inner.slice(0, end) + inner.slice(end + suffix.length)
  }
  return names.file + inner
}

/** The way back. */
export function fromFileName(name: string, names: AdapterNames): string {
  const inner = withoutPrefix(name, names.file)
  return names.ours + (names.adapter === null ? inner : inner.replace(loraPart, (part) => `${part}.${names.adapter}`))
}

/** Finds which of our prefixes the adapter was trained for: the one under which every file name is a name of the model.
 * Files may come from a wrapped language model or from a wrapped whole model. */
export function matchNames(fileNames: readonly string[], ours: ReadonlySet<string>): AdapterNames {
  const first = fileNames[0] ?? ''
  for (const file of ['base_model.model.', '']) {
    if (!first.startsWith(file)) continue
    for (const adapter of ['default', null]) {
      const inner = fromFileName(first, { ours: '', file, adapter })
      const prefixes = [...ours].filter((name) => name === inner || name.endsWith(`.${inner}`))
      for (const prefix of prefixes) {
        const names = { ours: prefix.slice(0, prefix.length - inner.length), file, adapter }
        if (fileNames.every((name) => name.startsWith(file) && ours.has(fromFileName(name, names)))) return names
      }
    }
  }
  const expected = 'adapter tensors that fit the model under one prefix'
  throw new Mismatch({ where: 'adapter', expected, got: `${fileNames.length} tensors, the first ${first}` })
}

export interface Adapter {
  config: AdapterConfig
  weights: WeightFolder
}

/** Since transformers 4.52 the layers of a vision-language model are below `model.language_model`; released files have them below `model`. */
function releasedLayout(name: string): string {
  return name.replace(/^(base_model\.model\.)?model\.language_model\.(?=layers\.)/, '$1model.')
}

/** The adapter's tensors under the layout in which they fit the model: as stored, or as released files have them. */
export function fitAdapter(
  weights: WeightFolder,
  ours: ReadonlySet<string>,
): { weights: WeightFolder; names: AdapterNames } {
  try {
    return { weights, names: matchNames(weights.names, ours) }
  } catch (error) {
    const released = renamed(weights, releasedLayout)
    if (released.names.join() === weights.names.join()) throw error
    return { weights: released, names: matchNames(released.names, ours) }
  }
}

export function readAdapter(dir: string): Adapter {
  const path = join(dir, 'adapter_config.json')
  const parsed = AdapterConfig.safeParse(readJsonObject(path))
  if (!parsed.success) {
    const got = parsed.error.issues.map((i) => `${i.path.join('.')}: ${i.message}`).join('; ')
    throw new Mismatch({ where: path, expected: 'the configuration of a plain LoRA adapter', got })
  }
  const files = ['adapter_model.safetensors', 'adapter_model.bin']
  const file = files.find((name) => existsSync(join(dir, name)))
  if (!file) throw new Mismatch({ where: dir, expected: files.join(' or '), got: 'neither' })
  return { config: parsed.data, weights: openWeights(join(dir, file)) }
}

/** Keys that PEFT sets from the call, with those of its defaults that a caller wants otherwise. */
export type AdapterSettings = Pick<AdapterConfig, 'r' | 'lora_alpha' | 'target_modules'> & Partial<AdapterConfig>

/** The text of adapter_config.json as PEFT writes it: sorted keys, two spaces, no newline at the end. */
export function adapterConfigText(settings: AdapterSettings): string {
  const config: Record<string, unknown> = { ...peftDefaults, ...settings }
  const keys = Object.keys(config).sort()
  return JSON.stringify(Object.fromEntries(keys.map((key) => [key, config[key]])), null, 2)
}
