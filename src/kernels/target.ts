import { buffer, native } from '../engine/index.ts'

interface KernelTarget {
  /** As NVRTC names it. */
  architecture: string
  /** Blocks that read each other's shared memory, and launches that overlap: from 9.0 on. */
  clusters: boolean
  /** Bytes of shared memory that a block can have. */
  shared: number
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
  return { architecture, clusters: capability >= 90, shared: shared * 1024 }
}

export const kernelTarget = (): KernelTarget => targetOf(native().cudaCurrent())!
