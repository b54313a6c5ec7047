import { Mismatch } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import type { Tensor } from '../tensor/index.ts'
import { findCompiler, machineCode, sourceOf } from './compile.ts'
import { kernelTarget } from './target.ts'

/** Tiles of so many rows and 64 columns of a matrix in bfloat16, which the kernel copies by the tensor copy engine. */
export interface Tiles {
  of: Tensor
  rows: number
}

/** A number is an int of 32 bits; null a null pointer. */
export type KernelArgument = Tensor | Tiles | number | { float: number } | null

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

  /** Loaded once for each device; `defines` are the sizes the sources ask for, `text` is compiled before them. */
  static of(sources: readonly string[], defines: Readonly<Record<string, number>>, text = ''): KernelModule {
    const key = JSON.stringify([native().cudaCurrent(), sources, defines, text])
    const known = loaded.get(key) ?? new KernelModule(sources, defines, text)
    loaded.set(key, known)
    return known
  }

  private constructor(sources: readonly string[], defines: Readonly<Record<string, number>>, text: string) {
    const compiler = findCompiler()
    if (typeof compiler === 'string') throw new Mismatch({ where: 'kernels', expected: 'libnvrtc', got: compiler })
    const sizes = Object.entries(defines).map(([name, value]) => `-D${name}=${value}`)
    const { architecture, clusters } = kernelTarget()
    const options = [`--gpu-architecture=${architecture}`, '--std=c++17', ...sizes]
    this.#overlaps = clusters
    const source = [sourceOf(['prelude']), text, sourceOf(sources)].join('\n')
    this.#module = native().kernelModule(machineCode(compiler, source, options))
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
    for (let i = 0; i < args.length; i++) [buffer[9 + 2 * i], buffer[10 + 2 * i]] = encoded(args[i] as KernelArgument)
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

/** Its kind and value, as kernelLaunch reads them. */
function encoded(arg: KernelArgument): readonly [number, number] {
  if (arg === null) return [3, 0]
  if (typeof arg === 'number') return [1, arg]
  if ('float' in arg) return [2, arg.float]
  if ('rows' in arg) return [16 + arg.rows, arg.of.handle]
  return [0, arg.handle]
}
