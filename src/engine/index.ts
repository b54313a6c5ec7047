// Engine: the addon that drives libtorch: finding and loading it, calling ops by name through the shared buffer.
// May import core. Only the tensor room should need it.
// Start reading at dispatch.ts; the C++ side is native/*-calls.cc.
export type * from './binding.ts'
export type * from './collectives.ts'
export * from './dispatch.ts'
export * from './environment.ts'
export * from './load.ts'
export { type BuildRecord, buildRecord } from './locate.ts'
export { type EnginePort, type EngineThreadOptions, runInEngineThread } from './worker.ts'
