// Sa2VA around a Qwen-VL: class Sa2VAChatModelQwen. text_config says which Qwen-VL it is; the language keys at the top of some
// folders are the base model's and stale.
import type { JsonObject } from '../../core/index.ts'
import { type Sam2Config, sam2Config } from '../../sam/index.ts'
import { objectAt, parseQwenParts, type QwenParts, qwenBase, readConfigFile, wholeNumber } from '../qwen_vl/index.ts'

/** config.json of a Sa2VA folder on a Qwen-VL. */
export interface Sa2VAQwenConfig extends QwenParts {
  sam: Sam2Config
  /** Area of a resized picture: in the reference's code, or in config.json of a miniature. */
  min_pixels: number
  max_pixels: number
}

/** The limits of the reference: 512 and 2048 units of 28 x 28, also for Qwen3-VL, whose units are 32 x 32. */
const pixelLimits = { min: 512 * 28 * 28, max: 2048 * 28 * 28 }

export function readSa2VAQwenConfig(dir: string): Sa2VAQwenConfig {
  return parseSa2VAQwenConfig(...readConfigFile(dir, 'Sa2VA'))
}

export function parseSa2VAQwenConfig(raw: JsonObject, where = 'config.json'): Sa2VAQwenConfig {
  const pixels = (key: string, usual: number) => (raw[key] == null ? usual : wholeNumber(raw, key, where, ''))
  objectAt(raw, 'vision_config', where)
  return {
    ...parseQwenParts(raw, qwenBase(raw, where), objectAt(raw, 'text_config', where), where),
    sam: sam2Config(raw.grounding_encoder_config ?? {}, `${where}: grounding_encoder_config`),
    min_pixels: pixels('min_pixels', pixelLimits.min),
    max_pixels: pixels('max_pixels', pixelLimits.max),
  }
}
