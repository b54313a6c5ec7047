export { attend, type LlmContext, splitHeads } from './attention.ts'
export { type LlmConfig, readLlmConfig } from './config.ts'
export { loadLanguageModel } from './load.ts'
export { buildLanguageModule, Decoder, type LanguageModule, loraTargets, type Pass } from './model.ts'
