import { Mismatch } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import type { Tensor } from '../tensor/index.ts'
import { findCompiler, machineCode, sourceOf } from './compile.ts'
import { kernelTarget } from './target.ts'

/** A number is an int of 32 bits; null a null pointer. */
export type KernelArgument = Tensor | number | { float: number } | null

export const f32 = (float: number): { float: number } => ({ float })

export interface Launch {
  grid: readonly [number, number?]
  block: number
  /** Bytes of dynamic shared memory; the same in all launches of a kernel. */
  shared?: number
  /** Blocks along x that read each other's shared memory. */
  cluster?: number
}

const loaded = new Map<string, KernelModule>()

/** Sources compiled together with their sizes, loaded on the current device. Launches go to the current stream and can be recorded. */
export class KernelModule {
  readonly #module: number
  readonly #overlaps: boolean
  readonly #functions = new Map<string, number>()

  /** Loaded once for each device; `defines` are the sizes the sources ask for. */
  static of(sources: readonly string[], defines: Readonly<Record<string, number>>): KernelModule {
    const key = JSON.stringify([native().cudaCurrent(), sources, defines])
    const known = loaded.get(key) ?? new KernelModule(sources, defines)
    loaded.set(key, known)
    return known
  }

  private constructor(sources: readonly string[], defines: Readonly<Record<string, number>>) {
    const compiler = findCompiler()
    if (typeof compiler === 'string') throw new Mismatch({ where: 'kernels', expected: 'libnvrtc', got: compiler })
    const sizes = Object.entries(defines).map(([name, value]) => `-D${name}=${value}`)
    const { architecture, clusters } = kernelTarget()
    const options = [`--gpu-architecture=${architecture}`, '--std=c++17', ...sizes]
    this.#overlaps = clusters
    this.#module = native().kernelModule(machineCode(compiler, sourceOf(['prelude', ...sources]), options))
  }

  launch(name: string, { grid, block, shared = 0, cluster = 1 }: Launch, args: readonly KernelArgument[]): void {
    buffer[0] = this.#function(name, shared)
    buffer[1] = grid[0]
    buffer[2] = grid[1] ?? 1
    buffer[3] = 1
    buffer[4] = block
    buffer[5] = shared
    buffer[6] = cluster
    buffer[7] = this.#overlaps ? 1 : 0
    buffer[8] = args.length
    for (let i = 0; i < args.length; i++) writeArgument(args[i] as KernelArgument, 9 + 2 * i)
    native().kernelLaunch()
  }

  #function(name: string, shared: number): number {
    let id = this.#functions.get(name)
    if (id === undefined) {
      id = native().kernelFunction(this.#module, name, shared)
      this.#functions.set(name, id)
    }
    return id
  }
}

function writeArgument(arg: KernelArgument, at: number): void {
  buffer[at] = arg === null ? 3 : typeof arg === 'number' ? 1 : 'float' in arg ? 2 : 0
  buffer[at + 1] = arg === null ? 0 : typeof arg === 'number' ? arg : 'float' in arg ? arg.float : arg.handle
}
