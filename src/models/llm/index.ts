export { attend, type LlmContext, splitHeads } from './attention.ts'
export { cacheSpare } from './cache-memory.ts'
export { Trunk } from './causal-lm.ts'
export { type LlmConfig, readLlmConfig } from './config.ts'
export { DecodePool, decodePool } from './decode-pool.ts'
export { type DecoderOpenOptions, int8Slots, layerMatrices } from './frozen.ts'
export { notCovered, otherLayers } from './fused-weights.ts'
export { type Generated, type GenerateOptions, generate } from './generate.ts'
export { loadLanguageModel } from './load.ts'
export { buildLanguageModule, Decoder, type LanguageModule, loraTargets, type Pass, type Placement } from './model.ts'
export { knownPrefixes } from './prefixes.ts'
export {
  commonIds,
  type PromptedModel,
  type PromptIds,
  type PromptInputs,
  type PromptPositions,
} from './prompted-model.ts'
export { GatedMlp, Qwen2ForCausalLM, qwenParts } from './qwen2.ts'
export {
  headLogProbs,
  type TeacherOptions,
  TeacherPass,
  teacherForce,
  teacherForceGroups,
  teacherForceRows,
} from './teacher.ts'
export { TrainingLayers } from './training/layers.ts'
