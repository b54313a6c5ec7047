import { loadWeights, openWeights } from '../checkpoint/index.ts'
import { readJsonObject } from '../core/index.ts'
import { Module } from '../nn/index.ts'
import type { DType } from '../tensor/index.ts'
import { readLlmConfig } from './config.ts'
import { buildLanguageModule, Decoder, type LanguageModule } from './model.ts'

/** A language model under the name it has inside Sa2VA. */
class Wrapped extends Module {
  readonly language_model: LanguageModule

  constructor(module: LanguageModule) {
    super()
    this.language_model = module
  }
}

/** A language model alone: a config.json in the layout of `llm_config` and its weights, with or without `language_model.` before the names. */
export function loadLanguageModel(
  config: string,
  weights: string,
  { dtype = 'float32', device }: { dtype?: DType; device?: string } = {},
): Decoder {
  const cfg = readLlmConfig(readJsonObject(config), config)
  const folder = openWeights(weights)
  const module = buildLanguageModule(cfg)
  const unused = cfg.tie_word_embeddings ? [/(^|\.)(lm_head|output)\.weight$/] : []
  const isWrapped = folder.names.every((name) => name.startsWith('language_model.'))
  loadWeights(isWrapped ? new Wrapped(module) : module, folder, { dtype, device, unused })
  return new Decoder(cfg, module)
}
