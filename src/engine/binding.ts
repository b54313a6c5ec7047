import type { NativeCollectives } from './collectives.ts'

/** One argument of an op as its schema has it. Kinds: see native/boxed.cc. */
export interface ArgPlan {
  name: string
  kind: string
  fixed: number
  hasDefault: boolean
  kwargOnly: boolean
  /** Given by position although this schema has a default: an older one has none, and callers must not see the difference. */
  positional?: boolean
}

export interface OpPlan {
  id: number
  name: string
  schema: string
  args: ArgPlan[]
  returns: { kind: string; name: string }[]
}

export interface NativeInfo {
  version: string
  config: string
  parallel: string
  blas: string
  blasCore: string
  compiler: string
  cuda: string
}

/** The addon's functions. Numbers not named here travel in the shared buffer; native/*-calls.cc say where. */
export interface Native extends NativeCollectives {
  init(buffer: Float64Array): void
  exec(): void
  resolve(name: string, overload: string): OpPlan | null
  schemas(): string[]
  intern(text: string): number
  meta(): void
  fromTyped(data: ArrayBufferView): void
  toTyped(data: ArrayBufferView): void
  item(): void
  dispose(): void
  keep(): void
  scopeBegin(): void
  scopeEnd(): void
  alias(): void
  alive(): void
  stats(): void
  liveHandles(): number[]
  resetPeak(): void
  emptyCache(): void
  gradMode(): void
  requiresGrad(): void
  grad(): void
  setGrad(): void
  backward(): void
  gradOf(): void
  reaches(): void
  shareGraph(): void
  useCount(): void
  refuse(why: string): void
  generatorNew(device: number): number
  generatorFree(id: number): void
  generatorSeed(id: number, seed: number): void
  generatorState(id: number): void
  generatorRestore(id: number): void
  mapOpen(path: string): number
  mapSize(map: number): number
  mapTensor(): void
  mapClose(map: number): void
  adamw(): void
  ema(): void
  uniformFill(): void
  threads(n?: number): number
  info(): NativeInfo
  cudaCount(): number
  cudaName(device: number): string
  cudaUse(device: number): void
  cudaFixedOrder(on: boolean): void
  cudaCurrent(): number
  cudaSynchronize(device: number): void
  cudaSideStream(on: boolean, device: number): void
  cudaFork(device: number): void
  cudaBeside(on: boolean, device: number): void
  cudaMemory(device: number): void
  cudaResetPeak(device: number): void
  cudaEvent(device: number): number
  cudaEventFree(event: number): void
  cudaElapsed(from: number, to: number): number
  graphBegin(device: number): number
  graphEnd(graph: number, device: number): void
  graphReplay(graph: number): void
  graphFree(graph: number): void
  cudaFacts(device: number): void
  nvrtcVersion(library: string): string
  nvrtcCompile(library: string, source: string, options: string): Uint8Array
  kernelModule(image: Uint8Array): number
  kernelFunction(module: number, name: string, shared: number): number
  kernelLaunch(): void
  products(): void
  untracked(): void
}
