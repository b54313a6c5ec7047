import { buffer, native } from '../engine/index.ts'
import { findCompiler } from './compile.ts'

interface KernelTarget {
  /** As NVRTC names it. */
  architecture: string
  /** Blocks that read each other's shared memory, and launches that overlap: from 9.0 on. */
  clusters: boolean
  /** Tiles that TMA copies and wgmma multiplies: 9.0 alone, from CUDA 12 on. */
  tiles: boolean
  /** Bytes of shared memory that a block can have. */
  shared: number
}

function compilerFrom(major: number): boolean {
  const compiler = findCompiler()
  return typeof compiler !== 'string' && Number.parseInt(compiler.version, 10) >= major
}

/** Kibibytes of shared memory a block, by compute capability. */
const known: Readonly<Record<number, number>> = { 80: 163, 86: 99, 87: 163, 89: 99, 90: 227 }

/** ROUNDTRIP_KERNELS=compute_80: the code of an A100, which newer GPUs translate. */
const isPortable = (): boolean => process.env.ROUNDTRIP_KERNELS === 'compute_80'

/** Of the current device, or of another one; null if kernels are not written for it. */
export function targetOf(device: number): KernelTarget | null {
  native().cudaFacts(device)
  const capability = isPortable() && buffer[0]! > 80 ? 80 : buffer[0]!
  const shared = known[capability]
  if (!shared) return null
  const architecture = isPortable() ? 'compute_80' : capability === 90 ? 'sm_90a' : `sm_${capability}`
  return {
    architecture,
    clusters: capability >= 90,
    tiles: capability === 90 && compilerFrom(12),
    shared: shared * 1024,
  }
}

export const kernelTarget = (): KernelTarget => targetOf(native().cudaCurrent())!
