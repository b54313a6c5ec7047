// Layers and what models are built from: Module (field name = checkpoint name), LoRA, rotary embedding, KV cache.
// May import tensor, core.
// Start reading at module.ts.

export * from './init.ts'
export * from './kv-cache.ts'
export * from './layers.ts'
export * from './lora.ts'
export * from './lora-targets.ts'
export * from './module.ts'
export { isPacked, type Pack, type Packing, packedWeight, packInPlace } from './packs.ts'
export {
  bitsOf,
  dequantize,
  type FrozenForm,
  frozenForms,
  isQuantized,
  type QuantizedForm,
  requireExact,
  storeQuantized,
  widenWith,
  withProduct,
} from './quantized.ts'
export * from './rope.ts'
export * from './sampling.ts'
