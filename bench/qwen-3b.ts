// The shape of Qwen2.5-VL-3B for benches: the miniature's files with the released sizes.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type JsonObject, packageRoot } from '../src/core/index.ts'
import { releasedConfig } from '../src/models/index.ts'

/** The folder of the miniature policy; what its config.json says beside sizes is as released. */
export const policy = join(packageRoot(), 'assets', 'points-miniature', 'policy')
export const policyConfig = JSON.parse(readFileSync(join(policy, 'config.json'), 'utf8')) as JsonObject

const { text_config, vision_config } = releasedConfig('qwen2_5-vl-3b') as Record<string, JsonObject>
export const qwen3b = {
  text: { ...text_config, model_type: 'qwen2_5_vl', vocab_size: 151936, tie_word_embeddings: true },
  vision: vision_config!,
}

/** The miniature's tokenizer with a word for each further id, so that every answer has a text. */
export function filledTokenizer(size: number): string {
  const tokenizer = JSON.parse(readFileSync(join(policy, 'tokenizer.json'), 'utf8'))
  const { added_tokens: added, model } = tokenizer
  for (const { content, id } of added) model.vocab[content] = id
  for (let id = Object.keys(model.vocab).length; id < size; id++) model.vocab[`w${id}`] = id
  return JSON.stringify(tokenizer)
}
