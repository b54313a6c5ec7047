// Prompts and tokens in, log-probabilities with gradient out. teacher.ts uses libtorch's derivative; by-hand/ has layers with a
// hand-written derivative: on CUDA in bfloat16, frozen weights, LoRA of one rank on Qwen2 or Llama layers; layers.ts says on which.
// Start reading at teacher.ts.
export { startsOf } from './by-hand/attention-calls.ts'
export { numWholeLayers, TrainingLayers } from './by-hand/layers.ts'
export * from './teacher.ts'
