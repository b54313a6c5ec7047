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
  const isPossible = shared === undefined && built.includes('nccl')
  if (wanted === 'gloo' || (wanted === 'auto' && !isPossible)) return 'gloo'
  if (isPossible) return 'nccl'
  const expected = `auto or gloo: ${shared === undefined ? 'this build has no NCCL' : `several processes use ${shared}`}`
  const hint = 'gloo sends CUDA tensors through host memory, in any build and also if processes share a GPU'
  throw new Mismatch({ where: 'settings', field: 'distributed.backend', expected, got: wanted, hint })
}
