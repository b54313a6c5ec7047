import { cuda } from '../../tensor/index.ts'
import { loadTokenizer } from '../../text/index.ts'
import { type ProcessorConfig, systemTurn } from '../qwen_vl/index.ts'
import { fillModel, openModelWeights, requireVocabulary, type Sa2VAOpenOptions, withRounding } from '../sa2va/index.ts'
import { readSa2VAQwenConfig, type Sa2VAQwenConfig } from './config.ts'
import { groundedProcessor, QwenPrompter, type RegionPrompt } from './inputs.ts'
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

/** A Sa2VA folder on Qwen2.5-VL or Qwen3-VL, as the hub has it: config.json, weights, tokenizer, preprocessor_config.json. */
export function openSa2VAQwen(dir: string, options: QwenOpenOptions = {}): LoadedSa2VAQwen {
  const { region, system, rounding, ...load } = options
  if (options.device?.startsWith('cuda')) cuda.use(options.device)
  const cfg = readSa2VAQwenConfig(dir)
  cfg.sam = withRounding(cfg.sam, rounding, options.dtype)
  const folder = openModelWeights(dir)
  const tokenizer = loadTokenizer(dir)
  requireVocabulary(dir, tokenizer, cfg.llm)
  const processor = groundedProcessor(dir, cfg)
  const prompter = new QwenPrompter(cfg, processor, tokenizer, { system: system ?? systemTurn(dir, cfg.base), region })
  const model = new Sa2VAQwen(cfg)
  const isSpare = (name: string) =>
    (cfg.llm.tie_word_embeddings && name === 'model.lm_head.weight') || /\.rotary_emb\.inv_freq$/.test(name)
  fillModel(model, folder, load, isSpare)
  return { dir, cfg, processor, model, prompter }
}
