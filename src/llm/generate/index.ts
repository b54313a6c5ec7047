// Prompts in, tokens out. `generate` (generate.ts) reads the prompts (prefill) and decodes along one of these paths:
//
// | path                | used when                                                                     | files |
// |---------------------|-------------------------------------------------------------------------------|-------|
// | plain prefill       | always, unless packed prefill applies                                         | plain/prefill.ts |
// | packed prefill      | CUDA, flash attention, our kernels cover the decoder, no q/k norms            | fused/packed-prefill.ts, packed-cache.ts, prefixes.ts |
// | plain decoding      | the device does not capture CUDA graphs (CPU)                                 | plain/step.ts |
// | recorded, by token  | CUDA, and top-k, top-p, min-p or a repetition penalty needs the host          | recorded/state.ts, pool.ts |
// | recorded, ahead     | CUDA, the device draws, our kernels do not cover the decoder or its weights   | recorded/state.ts, draws.ts, pool.ts |
// | fused, ahead        | CUDA, the device draws, our kernels cover the decoder (bfloat16, merged LoRA) | fused/state.ts, weights.ts, caches.ts, cache-memory.ts, padded-rows.ts, quantized-product.ts |
//
// open.ts chooses the decoder, decoding.ts has the types they share. Start reading at generate.ts.
export { cacheSpare } from './fused/cache-memory.ts'
export { knownPrefixes } from './fused/prefixes.ts'
export { notCovered, otherLayers, shapeOf } from './fused/weights.ts'
export * from './generate.ts'
export * from './recorded/pool.ts'
export { slowPathLog } from './slow-path.ts'
