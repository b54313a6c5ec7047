// Language models: Qwen2, Qwen3, Llama, Phi-3 and InternLM2 decoders, generation (generate/) and scoring with gradient (score/).
// May import nn, kernels, text, checkpoint and below.
// Start reading at model.ts, then generate/index.ts and score/index.ts.
export { attend, type LlmContext, splitHeads } from './attention.ts'
export { Trunk } from './causal-lm.ts'
export { type LlmConfig, readLlmConfig } from './config.ts'
export { oneOf, positiveNumber, switchAt } from './config-values.ts'
export {
  cacheSpare,
  DecodePool,
  decodePool,
  type Generated,
  type GenerateOptions,
  generate,
  knownPrefixes,
  notCovered,
  otherLayers,
  slowPathLog,
} from './generate/index.ts'
export { type DecoderOpenOptions, int8Slots, layerMatrices } from './int8.ts'
export { loadLanguageModel } from './load.ts'
export { buildLanguageModule, Decoder, type LanguageModule, loraTargets, type Pass, type Placement } from './model.ts'
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
  TrainingLayers,
  teacherForce,
  teacherForceGroups,
  teacherForceRows,
} from './score/index.ts'
