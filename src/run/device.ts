import { alone, deviceIndex, type Environment, podWarning, readRank, type World } from '../distributed/index.ts'
import { useKernels } from '../kernels/index.ts'
import { decodePool, TrainingLayers } from '../llm/index.ts'
import { type Family, isLanguage, openFamily } from '../models/index.ts'
import { cuda, setThreads } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'
import type { Notice } from './notices.ts'

/** The device and dtype that `auto` means here. */
export function deviceOf(config: Pick<RunConfig, 'device' | 'dtype'>): {
  device: string
  dtype: 'float32' | 'bfloat16'
} {
  const found = config.device === 'auto' ? (cuda.count() > 0 ? 'cuda' : 'cpu') : config.device
  const dtype = config.dtype === 'auto' ? (found.startsWith('cuda') ? 'bfloat16' : 'float32') : config.dtype
  return { device: found, dtype }
}

/** Of several processes on a host each takes its own GPU, unless the settings name one. */
export function openModel(config: RunConfig, world: World = alone): Family {
  if (config.threads > 0) setThreads(config.threads)
  useKernels(config.kernels)
  const { device: found, dtype } = deviceOf(config)
  const device =
    found === 'cuda' && world.size > 1
      ? `cuda:${deviceIndex(readRank(), cuda.count(), config.distributed.backend !== 'nccl')}`
      : found
  const { region, rounding, frozenWeights } = config
  return openFamily(config.model, { device, dtype, frozenWeights, region: region ?? undefined, rounding })
}

/** What a user should know of the place where the run was started. */
export function placeNotices(env: Environment = process.env, gpus: number = cuda.count()): Notice[] {
  const text = podWarning(env, gpus)
  return text === null ? [] : [{ kind: 'settings', text }]
}

export function disposeModel(family: Family): void {
  if (isLanguage(family)) {
    const { model } = family
    TrainingLayers.release(model.decoder)
    decodePool.clear(model.decoder)
    model.forgetRecordings?.()
  }
  for (const t of family.module.parameters().values()) t.dispose()
}
