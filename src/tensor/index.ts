// Tensors of libtorch: methods named after ATen, scopes, gradients, generators, devices.
// May import engine, core.
// Start reading at tensor.ts and scope.ts; ops.gen.ts is generated from ops.list.
export { aten } from './aten.ts'
export {
  type BackwardOptions,
  backward,
  checkpoint,
  clearTape,
  customFunction,
  enableGrad,
  gradEnabled,
  gradOf,
  noGrad,
  savingFunction,
  tapeLength,
  tidyNoGrad,
  untracked,
} from './autograd.ts'
export {
  attention,
  hasFusedAdamW,
  rmsNorm,
  rmsNormBackward,
  siluBackwardInto,
} from './compat.ts'
export { CudaGraph, cuda, deviceIndex } from './device.ts'
export {
  type DType,
  dtypeByCode,
  isFloating,
  itemBytes,
  type MemoryFormat,
  type Scalar,
  type TypedArray,
  typedArray,
} from './dtype.ts'
export { MappedFile } from './files.ts'
export {
  type Attended,
  type AttentionGrads,
  flashAttention,
  flashAttentionBackward,
  hasFlashAttention,
  type Sequences,
} from './flash.ts'
export { Generator, manualSeed } from './generator.ts'
export * from './ops.gen.ts'
export {
  type AdamWNumbers,
  adamwPath,
  adamwUpdate,
  emaUpdate,
  normsOf,
  scaleAll,
} from './optim.ts'
export { copyAll, type Factor, type Product, products, windowOf } from './products.ts'
export {
  emptyCache,
  expectNoLeak,
  keep,
  liveTensors,
  type Memory,
  memory,
  resetPeak,
  tensorsIn,
  tidy,
} from './scope.ts'
export { int64Tensor, Tensor, type TensorOptions, tensor } from './tensor.ts'
export { setThreads, threads } from './threads.ts'
export { uniformTensor } from './uniform.ts'
