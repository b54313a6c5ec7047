import { loadWeights } from '../../checkpoint/index.ts'
import { Mismatch } from '../../core/index.ts'
import { cuda } from '../../tensor/index.ts'
import { loadTokenizer } from '../../text/index.ts'
import { int8Slots } from '../llm/index.ts'
import type { ProcessorConfig } from '../qwen2_5_vl/index.ts'
import { isVideoOnly, openModelWeights, type Sa2VAOpenOptions, withRounding } from '../sa2va/index.ts'
import { readSa2VAQwenConfig, type Sa2VAQwenConfig, systemTurn } from './config.ts'
import { QwenPrompter, type RegionPrompt, readProcessor } from './inputs.ts'
import { Sa2VAQwen } from './model.ts'

export interface LoadedSa2VAQwen {
  dir: string
  cfg: Sa2VAQwenConfig
  processor: ProcessorConfig
  model: Sa2VAQwen
  prompter: QwenPrompter
}

export interface QwenOpenOptions extends Sa2VAOpenOptions {
  region?: RegionPrompt
  /** Text of the system turn; default: what the folder's chat template says. */
  system?: string
}

/** Only used with point, box or mask prompts; a checkpoint may lack them. */
const promptOnly = [/\.sam_prompt_encoder\.(point_embeddings|mask_downscaling)\./]

/** A Sa2VA folder on Qwen2.5-VL or Qwen3-VL, as the hub has it: config.json, weights, tokenizer, preprocessor_config.json. */
export function openSa2VAQwen(dir: string, options: QwenOpenOptions = {}): LoadedSa2VAQwen {
  const { region, system, rounding, frozenWeights, ...load } = options
  if (options.device?.startsWith('cuda')) cuda.use(options.device)
  const cfg = readSa2VAQwenConfig(dir)
  cfg.sam = withRounding(cfg.sam, rounding, options.dtype)
  const folder = openModelWeights(dir)
  const tokenizer = loadTokenizer(dir)
  if (tokenizer.vocabSize > cfg.llm.vocab_size) {
    const expected = `at most vocab_size ${cfg.llm.vocab_size} tokens`
    throw new Mismatch({ where: dir, field: 'tokenizer', expected, got: tokenizer.vocabSize })
  }
  const processor = readProcessor(dir, cfg)
  const prompter = new QwenPrompter(cfg, processor, tokenizer, { system: system ?? systemTurn(dir, cfg.base), region })
  const model = new Sa2VAQwen(cfg)
  const isSpare = (name: string) =>
    (cfg.llm.tie_word_embeddings && name === 'model.lm_head.weight') || /\.rotary_emb\.inv_freq$/.test(name)
  const unused = { test: (name: string) => isVideoOnly(name) || isSpare(name) } as RegExp
  try {
    const int8 = int8Slots(model.decoder, frozenWeights)
    loadWeights(model, folder, { ...load, int8, unused: [unused], optional: promptOnly })
  } catch (error) {
    for (const t of model.parameters().values()) t.dispose()
    throw error
  }
  model.decoder.computeIn(options.dtype ?? model.placement.dtype)
  return { dir, cfg, processor, model, prompter }
}
