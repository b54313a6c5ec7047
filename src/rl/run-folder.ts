// A run folder opened for a new run, or to go on behind its newest valid checkpoint.
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { newestValid, sweep } from '../checkpoint/index.ts'
import { atomicWriteJson, log, Mismatch } from '../core/index.ts'
import { cuda } from '../tensor/index.ts'
import { describeEnvironment, RunWriter, runFiles } from '../tracking/index.ts'
import type { RunConfig } from './run-config.ts'
import { type RunState, readState } from './run-state.ts'

export function deviceOf(config: RunConfig): { device: string; dtype: 'float32' | 'bfloat16' } {
  const found = config.device === 'auto' ? (cuda.count() > 0 ? 'cuda' : 'cpu') : config.device
  const dtype = config.dtype === 'auto' ? (found.startsWith('cuda') ? 'bfloat16' : 'float32') : config.dtype
  return { device: found, dtype }
}

export interface RunFolder {
  writer: RunWriter
  /** The checkpoint to go on from; null: the run begins. */
  resumed: { path: string; state: RunState } | null
}

/** `fingerprint`: of every setting that decides the numbers; a run is not resumed under others. */
export function openRunFolder(config: RunConfig, fingerprint: string): RunFolder {
  const { output, tensorboard } = config
  mkdirSync(output, { recursive: true })
  const started = existsSync(join(output, runFiles.events))
  const found = started ? newestValid(output) : null
  for (const bad of found?.invalid ?? []) log.warn(`${bad.path}: not used: ${bad.reason}`)
  if (found && !found.checkpoint && found.invalid.length > 0) {
    throw new Mismatch({
      where: output,
      field: 'checkpoints',
      expected: 'a whole one to go on from',
      got: `${found.invalid.length}, all damaged: ${found.invalid[0]!.reason}`,
      hint: 'nothing was changed; put a whole checkpoint back, or choose another output folder',
    })
  }
  const resumed = found?.checkpoint ? { path: found.checkpoint.path, state: readState(found.checkpoint.path) } : null
  if (resumed && resumed.state.fingerprint !== fingerprint) {
    throw new Mismatch({
      where: output,
      field: 'settings',
      expected: 'the settings the run was started with',
      got: 'others',
      hint: 'choose another output folder, or the same settings',
    })
  }
  const { device, dtype } = deviceOf(config)
  const environment = describeEnvironment({ device, dtype, deterministic: device === 'cpu' })
  // a run that ended before its first checkpoint begins anew, perhaps with other settings
  if (started && !resumed) atomicWriteJson(join(output, runFiles.config), config)
  const writer = started
    ? RunWriter.resume(output, resumed?.state.step ?? -1, resumed?.state.position, { tensorboard })
    : RunWriter.create(output, { config, environment, tensorboard })
  sweep(output) // the folder is ours now; a run that has ended writes no checkpoint that would do it
  return { writer, resumed }
}
