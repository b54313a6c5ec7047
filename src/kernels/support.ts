import { buffer, native } from '../engine/index.ts'
import { cuda, deviceIndex } from '../tensor/index.ts'
import { findCompiler } from './compile.ts'
import { targetOf } from './target.ts'

let mode: 'auto' | 'off' = 'auto'

/** The setting `kernels`. */
export function useKernels(chosen: 'auto' | 'off'): void {
  mode = chosen
}

export const kernelsOff = (): string | null => (mode === 'off' ? 'the setting kernels is off' : null)

/** Why kernels cannot run on a device; null if they can. */
export function noKernels(device: string): string | null {
  if (!device.startsWith('cuda')) return `${device} is not a CUDA device`
  const index = deviceIndex(device)
  if (!targetOf(index))
    return `${cuda.name(index)} has compute capability ${buffer[0]! / 10}, they are written for 8.0, 8.6, 8.7, 8.9 and 9.0`
  if (native().cudaCurrent() !== index) return `${device} is not the current device`
  const compiler = findCompiler()
  return typeof compiler === 'string' ? compiler : null
}

/** Multiprocessors of a device. */
export function multiprocessors(device: string): number {
  native().cudaFacts(deviceIndex(device))
  return buffer[1]!
}
