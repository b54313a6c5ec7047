// What sends CUDA tensors between processes: NCCL from GPU to GPU, or Gloo through host memory. NCCL needs a GPU for each process.
import { hostname } from 'node:os'
import { Mismatch } from '../core/index.ts'
import { deviceIndex } from '../tensor/index.ts'
import { type Environment, visibleDevices } from './environment.ts'

export const backendNames = ['auto', 'gloo', 'nccl'] as const
export type BackendName = (typeof backendNames)[number]

/** The GPU of a process: the same text on two processes means the same GPU. */
export function gpuName(device: string, env: Environment = process.env, host = hostname()): string {
  const index = deviceIndex(device)
  return `GPU ${visibleDevices(env)?.[index] ?? index} of ${host}`
}

/** `gpus`: names by rank. The same list gives the same answer on every rank. */
export function chooseBackend(
  wanted: BackendName,
  gpus: readonly string[],
  built: readonly string[],
): Exclude<BackendName, 'auto'> {
  const shared = gpus.find((name, rank) => gpus.indexOf(name) !== rank)
  if (wanted === 'auto') return shared === undefined && built.includes('nccl') ? 'nccl' : 'gloo'
  if (wanted === 'gloo' || (shared === undefined && built.includes('nccl'))) return wanted
  const hint = 'gloo sends CUDA tensors through host memory, in any build and also if processes share a GPU'
  throw new Mismatch({
    where: 'settings',
    field: 'distributed.backend',
    expected: `auto or gloo${shared === undefined ? '' : `: several processes use ${shared}`}`,
    got: shared === undefined ? `nccl, and a build with ${built.join(' and ')}` : wanted,
    hint,
  })
}
