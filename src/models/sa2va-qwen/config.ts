// Sa2VA around a Qwen-VL: class Sa2VAChatModelQwen. text_config says which Qwen-VL it is; the language keys at the top of some
// folders are the base model's and stale.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type JsonObject, Mismatch, readJsonObject } from '../../core/index.ts'
import { type LlmConfig, readLlmConfig } from '../../llm/index.ts'
import { type Sam2Config, sam2Config } from '../../sam/index.ts'
import { checkSections, type QwenVisionConfig, readQwenVision, wholeNumber } from '../qwen2_5_vl/index.ts'
import { type Qwen3VisionConfig, readQwen3Vision } from '../qwen3_vl/index.ts'

export type QwenBase = 'qwen2_5_vl' | 'qwen3_vl'

type Vision = { base: 'qwen2_5_vl'; vision: QwenVisionConfig } | { base: 'qwen3_vl'; vision: Qwen3VisionConfig }

/** config.json of a Sa2VA folder on a Qwen-VL. */
export type Sa2VAQwenConfig = Vision & {
  llm: LlmConfig
  sam: Sam2Config
  image_token_id: number
  /** Area of a resized picture: in the reference's code, or in config.json of a miniature. */
  min_pixels: number
  max_pixels: number
  torch_dtype: string
  raw: JsonObject
}

/** The limits of the reference: 512 and 2048 units of 28 x 28, also for Qwen3-VL, whose units are 32 x 32. */
const pixelLimits = { min: 512 * 28 * 28, max: 2048 * 28 * 28 }

export function readSa2VAQwenConfig(dir: string): Sa2VAQwenConfig {
  const where = join(dir, 'config.json')
  if (!existsSync(where))
    throw new Mismatch({ where, expected: 'the config.json of a Sa2VA checkpoint', got: 'no such file' })
  return parseSa2VAQwenConfig(readJsonObject(where), where)
}

export function parseSa2VAQwenConfig(raw: JsonObject, where = 'config.json'): Sa2VAQwenConfig {
  const base = qwenBase(raw, where)
  const text = objectAt(raw, 'text_config', where)
  const vision = objectAt(raw, 'vision_config', where)
  const architectures = [base === 'qwen3_vl' ? 'Qwen3ForCausalLM' : 'Qwen2ForCausalLM']
  const tied = text.tie_word_embeddings ?? raw.tie_word_embeddings
  const read = readLlmConfig({ ...text, architectures, tie_word_embeddings: tied }, where, 'text_config.')
  const llm = { ...read, mrope_interleaved: interleaved(text, base, where) }
  checkSections(llm, where)
  const parts: Vision =
    base === 'qwen3_vl'
      ? { base, vision: readQwen3Vision(vision, where) }
      : { base, vision: readQwenVision(vision, where) }
  checkWidth(parts.vision.out_hidden_size, llm.hidden_size, where)
  const pixels = (key: string, usual: number) => (raw[key] == null ? usual : wholeNumber(raw, key, where, ''))
  return {
    ...parts,
    llm,
    sam: sam2Config(raw.grounding_encoder_config ?? {}, `${where}: grounding_encoder_config`),
    image_token_id: wholeNumber(raw, 'image_token_id', where, ''),
    min_pixels: pixels('min_pixels', pixelLimits.min),
    max_pixels: pixels('max_pixels', pixelLimits.max),
    torch_dtype: String(text.dtype ?? text.torch_dtype ?? raw.torch_dtype ?? raw.dtype ?? 'bfloat16'),
    raw,
  }
}

/** Qwen3-VL's axes take turns, Qwen2.5-VL's follow each other, whether config.json says so or is silent. */
function interleaved(text: JsonObject, base: QwenBase, where: string): boolean {
  const expected = base === 'qwen3_vl'
  const field = text.rope_parameters ? 'rope_parameters' : 'rope_scaling'
  const said = (text[field] as JsonObject | null | undefined)?.mrope_interleaved
  if (said == null || said === expected) return expected
  throw new Mismatch({ where, field: `text_config.${field}.mrope_interleaved`, expected: String(expected), got: said })
}

/** Told by the model types of its parts: the name at the top is the same for both, or the base's own. */
export function qwenBase(raw: JsonObject, where: string): QwenBase {
  const parts = ['text_config', 'vision_config'].map((key) => (raw[key] as JsonObject | undefined)?.model_type)
  const named = [...parts, (raw.architectures as unknown[] | undefined)?.[0], raw.model_type].map(String)
  const is = (pattern: RegExp) => named.some((name) => pattern.test(name))
  const [older, newer] = [is(/^qwen2_5_vl/i), is(/^qwen3_?vl/i)]
  if (older !== newer && !is(/moe/i)) return newer ? 'qwen3_vl' : 'qwen2_5_vl'
  throw new Mismatch({
    where,
    field: 'text_config.model_type',
    expected: 'qwen2_5_vl_text or qwen3_vl_text',
    got: older && newer ? named.join(', ') : (parts[0] ?? parts[1] ?? 'nothing'),
  })
}

function objectAt(raw: JsonObject, key: string, where: string): JsonObject {
  const value = raw[key]
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw new Mismatch({ where, field: key, expected: 'an object', got: value ?? 'nothing' })
  return value as JsonObject
}

function checkWidth(out: number, hidden: number, where: string): void {
  if (out === hidden) return
  const field = 'vision_config.out_hidden_size'
  throw new Mismatch({ where, field, expected: `the hidden size ${hidden}`, got: out })
}

const helpful = 'You are a helpful assistant.'

/** The system turn of the folder's chat template; without a template the base's own habit. */
export function systemTurn(dir: string, base: QwenBase): string {
  const template = chatTemplateText(dir)
  if (template === null) return base === 'qwen2_5_vl' ? helpful : ''
  return template.includes(helpful) ? helpful : ''
}

function chatTemplateText(dir: string): string | null {
  const plain = join(dir, 'chat_template.jinja')
  if (existsSync(plain)) return readFileSync(plain, 'utf8')
  for (const file of ['chat_template.json', 'tokenizer_config.json']) {
    const path = join(dir, file)
    const text = existsSync(path) ? readJsonObject(path).chat_template : undefined
    if (typeof text === 'string') return text
  }
  return null
}
