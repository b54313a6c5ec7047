import { type Family, openFamily } from '../models/index.ts'
import { cuda, setThreads } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'

/** The device and dtype that `auto` means here. */
export function deviceOf(config: Pick<RunConfig, 'device' | 'dtype'>): {
  device: string
  dtype: 'float32' | 'bfloat16'
} {
  const found = config.device === 'auto' ? (cuda.count() > 0 ? 'cuda' : 'cpu') : config.device
  const dtype = config.dtype === 'auto' ? (found.startsWith('cuda') ? 'bfloat16' : 'float32') : config.dtype
  return { device: found, dtype }
}

export function openModel(config: RunConfig): Family {
  if (config.threads > 0) setThreads(config.threads)
  const { device, dtype } = deviceOf(config)
  return openFamily(config.model, { device, dtype })
}

export function disposeModel(family: Family): void {
  for (const t of family.module.parameters().values()) t.dispose()
}
