// Engine: the addon that drives libtorch: finding and loading it, calling ops by name through the shared buffer.
// May import core. Only the tensor room should need it.
// Start reading at dispatch.ts; the C++ side is native/*-calls.cc.
export type { ArgPlan, Native, NativeInfo, OpPlan } from './binding.ts'
export type { NativeCollectives } from './collectives.ts'
export {
  camel,
  type DType,
  deviceCode,
  dtypeCodes,
  type GeneratorHandle,
  Handle,
  hasOp,
  isPositional,
  type OpFunction,
  op,
  overloadsOf,
  planOf,
  wrapWith,
} from './dispatch.ts'
export { defaultThreads, prepareEnvironment } from './environment.ts'
export { buffer, native } from './load.ts'
export { type BuildRecord, buildRecord } from './locate.ts'
export { type EnginePort, type EngineThreadOptions, runInEngineThread } from './worker.ts'
