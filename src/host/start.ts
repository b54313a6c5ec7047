// Runs started from TypeScript: plain settings in, the result out. The engine runs in a separate thread, as for the commands.
import { Mismatch, modelFolder } from '../core/index.ts'
import {
  chosenByFile,
  type EvaluateModelOptions,
  type ModelEvaluation,
  overStored,
  type Progress,
  type RunConfig,
  type RunInput,
  type RunResult,
  resolveRun,
  resumedSettings,
  type SftResult,
  type SftSettings,
  sftDefaults,
} from '../run/index.ts'
import { type HostedRun, runHosted } from './hosted.ts'
import * as works from './work.ts'

type Works = Omit<typeof works, 'module'>

/** Runs a function of work.ts in the engine thread. */
export async function runWork<N extends keyof Works>(
  work: N,
  input: Parameters<Works[N]>[0],
  options: Omit<HostedRun, 'module' | 'work' | 'input'>,
): Promise<Awaited<ReturnType<Works[N]>>> {
  const { module } = works
  return (await runHosted({ module, work, input, ...options })) as Awaited<ReturnType<Works[N]>>
}

/** How to follow and how to stop a run. */
export interface StartOptions {
  /** Gets what the status line would show; without it the status line is on standard error. */
  onProgress?: (event: Progress) => void
  /** An abort finishes the step, saves and ends; without it Ctrl-C and SIGTERM do. */
  signal?: AbortSignal
}

/**
 * Trains by reinforcement learning and returns the held-out metrics before and after. Settings are those of docs/reference.md; `model` and
 * `dataPath` are needed. A run folder (`output`) that holds a run is resumed.
 */
export async function train(settings: RunInput, options: StartOptions = {}): Promise<RunResult> {
  const config = resumedConfig(settings)
  const fromFiles = chosenByFile(resumedSettings(config.output), settings)
  return runWork('train', config, { label: 'train', scores: { config, fromFiles }, ...options })
}

/** Options of `sft`. */
export type SupervisedOptions = StartOptions & Partial<SftSettings>

/** Supervised fine-tuning on the captions and masks of the records. */
export async function sft(settings: RunInput, options: SupervisedOptions = {}): Promise<SftResult> {
  const { onProgress, signal, ...more } = options
  const config = resumedConfig({ output: 'runs/sft', ...settings }, sftDefaults)
  const input = { config, settings: { everything: false, maskWeight: 1, exportTo: null, ...more } }
  return runWork('sft', input, { label: 'sft', onProgress, signal })
}

/** Held-out metrics of a model; `adapter` names a trained adapter or checkpoint to load on top. */
export async function evaluate(
  settings: RunInput,
  options: StartOptions & Partial<EvaluateModelOptions> = {},
): Promise<ModelEvaluation> {
  const { onProgress, signal, ...more } = options
  const input = { config: readSettings(settings), options: { adapter: null, ema: false, records: null, ...more } }
  return runWork('evaluate', input, { label: 'evaluation', onProgress, signal })
}

/** A run needs a model and records; there is no default for either. */
export function requirePaths(config: RunConfig): void {
  const missing = (field: string, hint: string): never => {
    throw new Mismatch({ where: 'settings', field, expected: 'a path', got: 'nothing', hint })
  }
  if (config.model === '') missing('model', 'give --model DIR')
  if (config.dataPath === '') missing('dataPath', 'give --dataPath PATH, or scenes:200 for generated records')
}

/** A resumed run keeps its settings unless others are given. */
function resumedConfig(settings: RunInput, defaults: Readonly<Record<string, unknown>> = {}): RunConfig {
  const stored = resumedSettings(settings.output ?? 'runs/train')
  return readSettings(overStored({ ...defaults, ...stored }, settings))
}

function readSettings(settings: RunInput): RunConfig {
  const config = resolveRun(settings)
  requirePaths(config)
  return { ...config, model: modelFolder(config.model) }
}
