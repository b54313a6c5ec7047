import { openWeights, renamed, TensorReader, type WeightFolder } from '../../checkpoint/index.ts'
import { Mismatch } from '../../core/index.ts'
import type { DecoderOpenOptions } from '../../llm/index.ts'
import { cuda, tidy } from '../../tensor/index.ts'
import { loadTokenizer, type Tokenizer } from '../../text/index.ts'
import { fillModel } from '../sa2va/load.ts'
import { chatText, systemTurn } from './chat.ts'
import { type QwenParts, type QwenVLConfig, readQwenVLConfig } from './config.ts'
import { generations } from './generations.ts'
import { type QwenFeatures, type QwenPrompt, QwenVL } from './model.ts'
import { type ProcessorConfig, readProcessorConfig } from './processor.ts'

export interface LoadedQwenVL {
  dir: string
  cfg: QwenVLConfig
  processor: ProcessorConfig
  model: QwenVL
  tokenizer: Tokenizer
  /** Text of the system turn; empty: none. */
  system: string
}

/** Names as Qwen2.5-VL was released. Newer files say model.visual and model.language_model; a wrapper puts another `model.` before them. */
export function releasedName(name: string): string {
  const inner = name.replace(/^model\.(?=(model\.(visual|language_model)|lm_head)\.)/, '')
  return inner.replace(/^model\.visual\./, 'visual.').replace(/^model\.language_model\./, 'model.')
}

/** A plain Qwen2.5-VL or Qwen3-VL folder as the hub has it. */
export function openQwenVL(dir: string, options: DecoderOpenOptions = {}): LoadedQwenVL {
  if (options.device?.startsWith('cuda')) cuda.use(options.device)
  const cfg = readQwenVLConfig(dir)
  const folder = renamed(openWeights(dir), releasedName)
  settleHead(cfg, folder)
  const others = besideWeights(dir, cfg)
  const model = new QwenVL(cfg)
  fillModel(model, folder, options, (name) => cfg.llm.tie_word_embeddings && name === headName)
  return { ...others, model }
}

/** What a folder has besides its weights. */
export function besideWeights(dir: string, cfg: QwenVLConfig): Omit<LoadedQwenVL, 'model'> {
  const [processor, system] = [readProcessor(dir, cfg), systemTurn(dir, cfg.base)]
  return { dir, cfg, processor, tokenizer: loadTokenizer(dir), system }
}

const [headName, embeddingName] = ['lm_head.weight', 'model.embed_tokens.weight']

/**
 * Versions of transformers read different flags, and disagree on a stored head of a tied model: what they would not agree on is
 * refused.
 */
function settleHead({ llm }: QwenVLConfig, folder: WeightFolder): void {
  const field = 'tie_word_embeddings'
  const stored = folder.has(headName)
  if (stored !== llm.tie_word_embeddings) return
  if (!stored) throw new Mismatch({ where: folder.path, field, expected: `true without ${headName}`, got: false })
  const reader = new TensorReader(folder)
  try {
    const same = tidy(() => reader.read(headName).equal(reader.read(embeddingName)))
    if (same) return
  } finally {
    reader.close()
  }
  const got = 'one that differs from the embedding'
  throw new Mismatch({ where: folder.path, field: headName, expected: `none, since ${field} is true`, got })
}

/** preprocessor_config.json, checked against vision_config. `usual`: the values it leaves out. */
export function readProcessor(
  dir: string,
  { base, vision }: QwenParts,
  usual: ProcessorConfig = generations[base].processor,
): ProcessorConfig {
  const { patch_size: patch, spatial_merge_size: merge, temporal_patch_size: frames } = vision
  const read = readProcessorConfig(dir, { ...usual, patch, merge, frames })
  for (const [field, got, expected] of [
    ['patch_size', read.patch, patch],
    ['merge_size', read.merge, merge],
    ['temporal_patch_size', read.frames, frames],
  ] as const) {
    if (got !== expected) throw new Mismatch({ where: dir, field, expected: `${expected} as in vision_config`, got })
  }
  return { ...read, fast: read.fast || generations[base].processor.fast }
}

export function questionPrompt(loaded: LoadedQwenVL, question: string, images: readonly QwenFeatures[]): QwenPrompt {
  const { tokenizer, cfg, system } = loaded
  const tokens = images.map((f) => f.tokens.size(0))
  const ids = tokenizer.encode(chatText(question, tokens, system), { addSpecial: false })
  const asked = tokens.reduce((n, each) => n + each, 0)
  const found = ids.filter((id) => id === cfg.image_token_id).length
  if (found === asked) return { ids, images }
  const expected = `${asked} tokens <|image_pad|> in the prompt`
  const hint = 'a question must not contain the token, and tokenizer and config.json must agree on its id'
  throw new Mismatch({ where: loaded.dir, field: 'image_token_id', expected, got: found, hint })
}
