import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type JsonObject, Mismatch, readJsonObject } from '../../core/index.ts'
import { type LlmConfig, readLlmConfig } from '../../llm/index.ts'
import { generations, type QwenBase } from './generations.ts'
import { type QwenVisionConfig, wholeNumber } from './vision-config.ts'

/** What config.json says of a Qwen-VL, plain or inside a Sa2VA. */
export interface QwenParts {
  base: QwenBase
  vision: QwenVisionConfig
  llm: LlmConfig
  image_token_id: number
  torch_dtype: string
  raw: JsonObject
}

/** config.json of a plain Qwen2.5-VL or Qwen3-VL folder. */
export type QwenVLConfig = QwenParts

export function readQwenVLConfig(dir: string): QwenVLConfig {
  return parseQwenVLConfig(...readConfigFile(dir, 'Qwen-VL'))
}

/** config.json of a folder, and its path for messages. */
export function readConfigFile(dir: string, kind: string): [raw: JsonObject, where: string] {
  const where = join(dir, 'config.json')
  if (existsSync(where)) return [readJsonObject(where), where]
  throw new Mismatch({ where, expected: `the config.json of a ${kind} checkpoint`, got: 'no such file' })
}

export function parseQwenVLConfig(raw: JsonObject, where = 'config.json'): QwenVLConfig {
  const base = raw.model_type as QwenBase
  if (!Object.hasOwn(generations, String(base))) {
    const expected = Object.keys(generations).join(' or ')
    throw new Mismatch({ where, field: 'model_type', expected, got: base ?? 'nothing' })
  }
  const { flatText } = generations[base]
  const nested = (raw.text_config ?? undefined) as JsonObject | undefined
  const text = flatText ? { ...raw, ...nested } : objectAt(raw, 'text_config', where)
  const part = flatText && !nested ? '' : 'text_config.'
  const parts = parseQwenParts(raw, base, text, where, part)
  if (raw.tie_word_embeddings === true) parts.llm.tie_word_embeddings = true // either place may say so
  for (const key of ['vision_start_token_id', 'vision_end_token_id']) wholeNumber(raw, key, where, '')
  return parts
}

/** `text`: the keys of the language model, found at `part` of config.json. */
export function parseQwenParts(
  raw: JsonObject,
  base: QwenBase,
  text: JsonObject,
  where: string,
  part = 'text_config.',
): QwenParts {
  const { decoder, readVision, interleaved } = generations[base]
  const tied = text.tie_word_embeddings ?? raw.tie_word_embeddings
  const known = { ...text, architectures: [decoder], tie_word_embeddings: tied }
  if (base === 'qwen3_vl') requireKeys(text, where, part)
  const llm = { ...readLlmConfig(known, where, part), mrope_interleaved: interleaved }
  checkInterleaved(text, interleaved, where, part)
  checkSections(llm, where)
  const vision = readVision(objectAt({ vision_config: {}, ...raw }, 'vision_config', where), where)
  if (vision.out_hidden_size !== llm.hidden_size) {
    const [field, expected] = ['vision_config.out_hidden_size', `the hidden size ${llm.hidden_size}`]
    throw new Mismatch({ where, field, expected, got: vision.out_hidden_size })
  }
  const taps = vision.deepstack_visual_indexes.length
  if (taps > llm.num_hidden_layers) {
    const expected = `at most one for each of ${llm.num_hidden_layers} decoder layers`
    throw new Mismatch({ where, field: 'vision_config.deepstack_visual_indexes', expected, got: taps })
  }
  return {
    base,
    vision,
    llm,
    image_token_id: wholeNumber(raw, 'image_token_id', where, ''),
    torch_dtype: String(text.dtype ?? text.torch_dtype ?? raw.torch_dtype ?? raw.dtype ?? 'bfloat16'),
    raw,
  }
}

/** By the model types of its parts: the name at the top of a Sa2VA is the same for both, or the base's own. */
export function qwenBase(raw: JsonObject, where: string): QwenBase {
  const parts = ['text_config', 'vision_config'].map((key) => (raw[key] as JsonObject | undefined)?.model_type)
  const named = [...parts, (raw.architectures as unknown[] | undefined)?.[0], raw.model_type].map(String)
  const is = (pattern: RegExp) => named.some((name) => pattern.test(name))
  const [older, newer] = [is(/^qwen2_5_vl/i), is(/^qwen3_?vl/i)]
  if (older !== newer && !is(/moe/i)) return newer ? 'qwen3_vl' : 'qwen2_5_vl'
  const got = older && newer ? named.join(', ') : (parts[0] ?? parts[1] ?? 'nothing')
  throw new Mismatch({ where, field: 'text_config.model_type', expected: 'qwen2_5_vl_text or qwen3_vl_text', got })
}

export function objectAt(raw: JsonObject, key: string, where: string): JsonObject {
  const value = raw[key]
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw new Mismatch({ where, field: key, expected: 'an object', got: value ?? 'nothing' })
  return value as JsonObject
}

/** The class's own values of these fit no release. */
function requireKeys(text: JsonObject, where: string, part: string): void {
  const rope = { ...(text.rope_scaling as JsonObject | null), ...(text.rope_parameters as JsonObject | null), ...text }
  for (const key of ['num_key_value_heads', 'rope_theta'])
    if (rope[key] == null) throw new Mismatch({ where, field: `${part}${key}`, expected: 'a number', got: 'nothing' })
}

/** The generation decides how the axes share the frequencies; config.json may repeat it or omit it. */
function checkInterleaved(text: JsonObject, expected: boolean, where: string, part: string): void {
  const field = text.rope_parameters ? 'rope_parameters' : 'rope_scaling'
  const said = (text[field] as JsonObject | null | undefined)?.mrope_interleaved
  if (said == null || said === expected) return
  throw new Mismatch({ where, field: `${part}${field}.mrope_interleaved`, expected: String(expected), got: said })
}

function checkSections({ mrope_section: sections, head_dim: D }: LlmConfig, where: string): void {
  if (sections.length === 3 && sections.reduce((a, b) => a + b, 0) === D / 2) return
  const expected = `three numbers whose sum is half the head, ${D / 2}`
  const got = sections.length > 0 ? `[${sections}]` : 'nothing'
  throw new Mismatch({ where, field: 'rope_scaling.mrope_section', expected, got })
}
