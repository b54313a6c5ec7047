// A run folder opened for a new run, or to go on behind its newest valid checkpoint.
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { newestValid, sweep } from '../checkpoint/index.ts'
import { atomicWriteJson, log, Mismatch } from '../core/index.ts'
import { describeEnvironment, RunWriter, runFiles } from '../tracking/index.ts'
import type { RunConfig } from './config.ts'
import { deviceOf } from './device.ts'
import { differences, flattened, type Settings } from './identity.ts'
import { type RunState, readState } from './state.ts'

export interface RunFolder {
  writer: RunWriter
  /** The checkpoint to go on from; null: the run begins. */
  resumed: { path: string; state: RunState } | null
}

/** `settings`: all that decides the numbers; a run is not resumed under others. */
export function openRunFolder(config: RunConfig, settings: Settings): RunFolder {
  const { output, tensorboard } = config
  mkdirSync(output, { recursive: true })
  const started = existsSync(join(output, runFiles.events))
  const resumed = started ? newestState(config) : null
  if (resumed) requireSame(config, resumed.state, settings)
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

function newestState(config: RunConfig): RunFolder['resumed'] {
  const { output } = config
  const { checkpoint, invalid } = newestValid(output)
  for (const bad of invalid) log.warn(`${bad.path}: not used: ${bad.reason}`)
  if (checkpoint) return { path: checkpoint.path, state: readState(checkpoint.path, config) }
  if (invalid.length === 0) return null
  throw new Mismatch({
    where: output,
    field: 'checkpoints',
    expected: 'a whole one to go on from',
    got: `${invalid.length}, all damaged: ${invalid[0]!.reason}`,
    hint: 'nothing was changed; put a whole checkpoint back, or choose another output folder',
  })
}

function requireSame(config: RunConfig, state: RunState, settings: Settings): void {
  const now = state.settings ? settings : { ...settings, model: config.model }
  const different = differences(state.settings ?? storedSettings(config.output), now)
  if (different.length === 0) return
  throw new Mismatch({
    where: config.output,
    field: 'settings',
    expected: 'the settings the run was started with',
    got: different.join('; '),
    hint: 'choose another output folder, or the same settings',
  })
}

/** What a run of 0.1.0 was started with. */
function storedSettings(output: string): Settings {
  return flattened(JSON.parse(readFileSync(join(output, runFiles.config), 'utf8')))
}
