// Custom kernels as text (*.cu), compiled for the current GPU (target.ts), and how they are launched. Tests compare each with ATen's ops.
// May import tensor, engine, core.
// Start reading at decode.ts; rows.cu is the simplest source. training.ts: what learning needs.
export * from './decode.ts'
export * from './module.ts'
export * from './quantized.ts'
export { kernelsOff, noKernels, useKernels } from './support.ts'
export { kernelTarget } from './target.ts'
export * from './tiles.ts'
export * from './training.ts'
export * from './vision.ts'
