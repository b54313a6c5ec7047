// Language models: Qwen2, Qwen3, Llama, Phi-3 and InternLM2 decoders, generation (generate/) and scoring with gradient (score/).
// May import nn, kernels, text, checkpoint and below.
// Start reading at model.ts, then generate/index.ts and score/index.ts.
export * from './attention.ts'
export { Trunk } from './causal-lm.ts'
export * from './config.ts'
export { oneOf, positiveNumber, switchAt } from './config-values.ts'
export * from './generate/index.ts'
export * from './load.ts'
export { buildLanguageModule, Decoder, type LanguageModule, loraTargets, type Pass, type Placement } from './model.ts'
export * from './prompted-model.ts'
export * from './quantized.ts'
export { GatedMlp, Qwen2ForCausalLM, qwenParts } from './qwen2.ts'
export * from './score/index.ts'
