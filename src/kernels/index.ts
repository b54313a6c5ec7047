// Custom kernels as text (*.cu), compiled for the current GPU (target.ts), and how they are launched. Tests compare each with ATen's ops.
// May import tensor, engine, core.
// Start reading at decode.ts; rows.cu is the simplest source. training.ts: what learning needs.
export {
  canShare,
  DecodeKernels,
  type DecodeShape,
  type KernelRows,
  ownProducts,
  shareOf,
  unsupportedShape,
} from './decode.ts'
export { coversColumns8, type LowRank, type Matrix8, product8, product8On } from './int8.ts'
export { f32, type KernelArgument, KernelModule, type Launch } from './module.ts'
export { kernelsOff, noKernels, useKernels } from './support.ts'
export { kernelTarget } from './target.ts'
export { type HeadGrads, TrainingKernels } from './training.ts'
export { patchRotator } from './vision.ts'
