// Layers and what models are built from: Module (field name = checkpoint name), LoRA, rotary embedding, KV cache.
// May import tensor, core.
// Start reading at module.ts.

export { initRandom } from './init.ts'
export { type FrozenForm, frozenForms, isInt8, requireExact, storeInt8, withProduct8 } from './int8.ts'
export { KVCache } from './kv-cache.ts'
export {
  type AdapterState,
  Conv2d,
  ConvTranspose2d,
  cast,
  Embedding,
  LayerNorm,
  LayerNorm2d,
  Linear,
  RMSNorm,
  WeightOnly,
} from './layers.ts'
export {
  Adapter,
  addLora,
  linears,
  MergedWeights,
  mergedWeight,
  withMergedLora,
} from './lora.ts'
export { targetRule } from './lora-targets.ts'
export {
  count,
  Module,
  replaceTensor,
  type Slot,
  selectSlots,
  tensorAt,
  trainOnly,
  weight,
  withWeights,
} from './module.ts'
export { isPacked, type Pack, type Packing, packedWeight, packInPlace, packsOf } from './packs.ts'
export { Rope, type RopeTable, rotate, tableOf } from './rope.ts'
export {
  drawTokens,
  greedyTokens,
  plainSampling,
  type SamplingSettings,
  sampleTokens,
  seenTokens,
  suppress,
  tokenEntropies,
  tokenLogps,
  truncates,
  warpScores,
  wide,
} from './sampling.ts'
