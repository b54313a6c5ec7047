// Which model a folder holds, by config.json and the names of its tensors, before a weight is read.
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights } from '../checkpoint/index.ts'
import { type JsonObject, Mismatch, readJsonObject } from '../core/index.ts'
import { samFolder } from '../sam/index.ts'
import { type QwenBase, qwenBase } from './qwen_vl/index.ts'

export type ModelFamily = 'sa2va-internvl' | `sa2va-${QwenBase}` | QwenBase | 'mobilesam'

const supported = [
  'Sa2VAChatModel (on InternVL)',
  'Sa2VAChatModelQwen (on Qwen2.5-VL, Qwen3-VL)',
  'Qwen2_5_VLForConditionalGeneration',
  'Qwen3VLForConditionalGeneration',
  'MobileSAM',
].join(', ')

/** The family of a checkpoint folder; one that is not supported is refused by its name, with the reason. */
export function familyOf(dir: string): ModelFamily {
  if (samFolder(dir) !== null) return 'mobilesam'
  const where = join(dir, 'config.json')
  if (!existsSync(where)) {
    const hint = existsSync(dir)
      ? 'name the folder with config.json and the weights'
      : `there is no folder ${dir}; npx roundtrip-rl pull ORG/NAME downloads a model`
    throw new Mismatch({ where, expected: 'the config.json of a checkpoint', got: 'no such file', hint })
  }
  const raw = readJsonObject(where)
  // by the names of the weights; by config.json alone if there are no weights yet
  const isGrounded = () => isGroundedConfig(raw) || namesOf(dir).some((name) => /(^|\.)grounding_encoder\./.test(name))
  const family = familyOfConfig(raw, where, isGrounded)
  if (family.startsWith('sa2va-')) refuseSam3(raw, dir)
  return family
}

/**
 * `architectures[0]` decides. Converted folders may have the base's name there, so a Qwen-VL with a mask decoder is a Sa2VA too;
 * without the field the parts of the config decide. text_config.architectures repeats the wrapper's name and is not read.
 */
export function familyOfConfig(
  raw: JsonObject,
  where = 'config.json',
  grounded = () => isGroundedConfig(raw),
): ModelFamily {
  const name = nameOf(raw)
  refuseQuantised(raw, where)
  if (/Llava/i.test(name)) throw refused(where, name, 'its CLIP tower and Llama language model are not built')
  if (/^Qwen.*Moe/.test(name)) throw refused(where, name, 'it is a mixture of experts')
  if (/^Qwen3_5/.test(name)) throw refused(where, name, 'its attention is not built')
  if (name === 'Sa2VAChatModel') return 'sa2va-internvl'
  if (name === 'Sa2VAChatModelQwen') return `sa2va-${qwenBase(raw, where)}`
  if (/^Qwen(2_5_|3)VLForConditionalGeneration$/.test(name)) return ofQwen(raw, where, grounded())
  if (name !== '') throw refused(where, name)
  if (raw.llm_config) return 'sa2va-internvl'
  if (raw.text_config) return ofQwen(raw, where, grounded() || raw.model_type === 'sa2va_chat')
  throw refused(where, 'nothing', isRun(raw) ? 'it is a run; --model names what it trained' : undefined)
}

const isRun = (raw: JsonObject) => typeof raw.output === 'string' && raw.dataPath !== undefined

function refuseQuantised({ quantization_config: settings }: JsonObject, where: string): void {
  if (settings == null) return
  const got = (settings as JsonObject).quant_method ?? settings
  const hint = 'take the folder before it was quantised'
  throw new Mismatch({ where, field: 'quantization_config', expected: 'none: plain weights', got, hint })
}

function ofQwen(raw: JsonObject, where: string, grounded: boolean): ModelFamily {
  const base = qwenBase(raw, where)
  return grounded ? `sa2va-${base}` : base
}

function nameOf(raw: JsonObject): string {
  const list = raw.architectures
  return Array.isArray(list) && typeof list[0] === 'string' ? list[0] : ''
}

function isGroundedConfig(raw: JsonObject): boolean {
  return raw.model_type === 'sa2va_chat' || raw.grounding_encoder_config !== undefined
}

function namesOf(dir: string): readonly string[] {
  const isWeights = (file: string) => /^model\.safetensors|^pytorch_model\.bin|\.pth?$/.test(file)
  return readdirSync(dir).some(isWeights) ? openWeights(dir).names : []
}

/** SAM3's tower has the same class name around it; its tensors, or its module files, give it away. */
function refuseSam3(raw: JsonObject, dir: string): void {
  const sam3 = namesOf(dir).find((name) => /\.vision_backbone\.(trunk|sam2_convs)\./.test(name))
  const said = /sam3/i.test(JSON.stringify([raw.auto_map, raw.grounding_encoder_config, raw.grounding_encoder_type]))
  if (sam3 === undefined && !said) return
  const reason = `it has a SAM3 tower${sam3 ? ` (${sam3})` : ''}, and masks are drawn by SAM2 here`
  throw refused(join(dir, 'config.json'), nameOf(raw), reason)
}

function refused(where: string, got: string, reason?: string): Mismatch {
  const hint = reason ? `this checkpoint is not supported: ${reason}` : undefined
  return new Mismatch({ where, field: 'architectures[0]', expected: supported, got, ...(hint && { hint }) })
}
