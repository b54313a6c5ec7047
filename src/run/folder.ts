// A run folder opened for a new run, or to resume from its newest valid checkpoint.
import { existsSync, readFileSync, realpathSync, rmdirSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { listCheckpoints, newestValid, sweep } from '../checkpoint/index.ts'
import {
  addFolder,
  atomicWriteJson,
  log,
  Mismatch,
  messageOf,
  regularFile,
  tryJsonObject,
  Unavailable,
} from '../core/index.ts'
import type { World } from '../distributed/index.ts'
import { usedSettings } from '../tasks/index.ts'
import { type Interval, RunWriter, type RunWriterOptions, readRun, runFiles, startFacts } from '../tracking/index.ts'
import type { RunConfig } from './config.ts'
import type { Settings } from './flat-settings.ts'
import { differences, knowsModelFiles, writtenSettings } from './identity.ts'
import { lockFile, lockRun, type RunLock } from './lock.ts'
import { environmentOf } from './start-up.ts'
import { type RunState, readState } from './state.ts'
import { beforeSetting, startFolders, storedSettings, withPaths } from './stored-settings.ts'

/** What a run writes to its folder. */
export type RunLog = Pick<
  RunWriter,
  | 'start'
  | 'step'
  | 'eval'
  | 'warning'
  | 'checkpoint'
  | 'samples'
  | 'sampleBytes'
  | 'hasImage'
  | 'image'
  | 'stop'
  | 'position'
  | 'trackerAway'
  | 'close'
>

export interface RunFolder {
  /** Kept until the run closes. */
  lock: RunLock
  writer: RunLog
  /** The checkpoint to resume from; null: the run begins. */
  resumed: ResumedRun | null
}

export interface ResumedRun {
  path: string
  state: RunState
  /** Facts of the run's start, as the log has them. */
  facts: Readonly<Record<string, unknown>>
  /** The evaluation before the first step. */
  before: Record<string, Interval> | null
}

const silent: RunLog = {
  start() {},
  step() {},
  eval() {},
  warning() {},
  checkpoint() {},
  samples() {},
  sampleBytes: 0,
  hasImage: () => false,
  image() {},
  stop() {},
  position: () => ({ events: 0, samples: 0 }),
  trackerAway: null,
  close: async () => {},
}

/** Rank 0 writes the folder and finds where the run resumes; the others write nothing. */
export async function openSharedFolder(config: RunConfig, settings: Settings, world: World): Promise<RunFolder> {
  const guest: RunFolder = { lock: { touch() {}, release() {} }, writer: silent, resumed: null }
  const folder = world.rank === 0 ? openRunFolder(config, settings) : guest
  const [resumed] = await world.gather(folder.resumed)
  return { ...folder, resumed: resumed ?? null }
}

/** `settings`: all that decides the numbers; a run is not resumed under others. */
export function openRunFolder(config: RunConfig, settings: Settings): RunFolder {
  const lock = reserveFolder(config)
  try {
    return { lock, ...openLocked(config, settings) }
  } catch (error) {
    lock.release()
    throw error
  }
}

/** Before the model is loaded: can the run write here, and may it resume what is here? A new folder is left for later. */
export function checkFolder(config: RunConfig): void {
  const missing = firstMissing(resolve(config.output))
  try {
    reserveFolder(config).release()
    if (!missing) checkResume(config)
  } finally {
    if (missing) removeEmpty(resolve(config.output), missing)
  }
}

/** The topmost folder that would be created, or null. */
function firstMissing(path: string): string | null {
  if (existsSync(path)) return null
  return firstMissing(dirname(path)) ?? path
}

/** Removes the folders from `path` up to `top` that are empty. */
function removeEmpty(path: string, top: string): void {
  try {
    if (existsSync(path)) rmdirSync(path)
  } catch {
    return // something is in it
  }
  if (path !== top) removeEmpty(dirname(path), top)
}

/** Settings as they are written: weights and schedule are compared once they are known. */
function checkResume(config: RunConfig): void {
  const { checkpoint } = newestValid(config.output, { hashes: false })
  if (!checkpoint || !existsSync(join(config.output, runFiles.events))) return
  requireSame(config, readState(checkpoint.path, config), writtenSettings(config))
}

/** Before any work: the folder can be created and written, holds nothing else, and nobody else writes to it. */
export function reserveFolder(config: Pick<RunConfig, 'output' | 'dataPath' | 'evalPath'>): RunLock {
  const { output } = config
  try {
    addFolder(output)
    requireOwnFolder(config)
    return lockRun(output)
  } catch (error) {
    if (error instanceof Mismatch) throw error
    const [expected, hint] = ['a folder to write to', 'choose another output folder, or make this one writable']
    throw new Mismatch({ where: output, field: 'output', expected, got: messageOf(error), hint })
  }
}

/** A run in the folder of a model would write over its config.json, and one among the records would add to them. */
function requireOwnFolder({ output, dataPath, evalPath }: Pick<RunConfig, 'output' | 'dataPath' | 'evalPath'>): void {
  const { config, environment, events, samples, timing } = runFiles
  for (const name of [config, environment, events, samples, timing, lockFile]) {
    if (existsSync(join(output, name))) regularFile(join(output, name))
  }
  const refuse = (got: string): never => {
    const hint = 'choose another output folder'
    throw new Mismatch({ where: output, field: 'output', expected: 'a folder for the run alone', got, hint })
  }
  for (const path of [dataPath, evalPath ?? ''])
    if (existsSync(path) && realpathSync(path) === realpathSync(output)) refuse('the folder of the records')
  if (!existsSync(join(output, config)) || existsSync(join(output, events))) return
  const written = tryJsonObject(readFileSync(join(output, config), 'utf8')) // ours are written whole
  if (typeof written?.['output'] !== 'string') refuse(`one with the ${config} of something else`)
}

function openLocked(config: RunConfig, settings: Settings): Omit<RunFolder, 'lock'> {
  const { output } = config
  const trackers = trackersOf(config)
  requireLog(output)
  const started = existsSync(join(output, runFiles.events))
  const resumed = started ? newestState(config) : null
  if (resumed) requireSame(config, resumed.state, settings)
  // A resumed run may have other steps or paths; one that ended before its first checkpoint starts again with any settings.
  if (started) atomicWriteJson(join(output, runFiles.config), usedSettings(config))
  const writer = started
    ? RunWriter.resume(output, resumed?.state.step ?? -1, resumed?.state.position, trackers)
    : RunWriter.create(output, { config: usedSettings(config), environment: environmentOf(config), ...trackers })
  sweep(output) // the folder is ours now; a run that has ended writes no checkpoint that would do it
  return { writer, resumed: resumed && { ...resumed, ...logged(output) } }
}

/** What a resumed run reports together with its later steps. */
function logged(output: string): Pick<ResumedRun, 'facts' | 'before'> {
  const { events } = readRun(output)
  const before = events.find((event) => event.t === 'eval' && event.name === 'before')
  return { facts: startFacts(events), before: before?.t === 'eval' ? { ...before.metrics } : null }
}

/** Checkpoints without the log they belong to: another run's, or one whose log was lost. Starting afresh would mix the two. */
function requireLog(output: string): void {
  const [first] = listCheckpoints(output)
  if (!first || existsSync(join(output, runFiles.events))) return
  const [expected, got] = ['the log of the run whose checkpoints are here', `none, beside ${basename(first.path)}`]
  const hint = 'nothing was changed; put the log back, or choose another output folder'
  throw new Mismatch({ where: output, field: runFiles.events, expected, got, hint })
}

function trackersOf({ tensorboard, reportTo, reportTimeout }: RunConfig): RunWriterOptions {
  if (reportTo.includes('none')) return {}
  return { tensorboard, reportTo: reportTo.filter((name) => name !== 'none'), reportTimeout }
}

function newestState(config: RunConfig): Pick<ResumedRun, 'path' | 'state'> | null {
  const { output } = config
  const { checkpoint, invalid } = newestValid(output)
  for (const bad of invalid) log.warn(`${bad.path}: not used: ${bad.reason}`)
  if (checkpoint) return { path: checkpoint.path, state: readState(checkpoint.path, config) }
  if (invalid.length === 0) return null
  throw new Mismatch({
    where: output,
    field: 'checkpoints',
    expected: 'a complete one to resume from',
    got: `${invalid.length}, all damaged: ${invalid[0]!.reason}`,
    hint: 'nothing was changed; put a whole checkpoint back, or choose another output folder',
  })
}

function requireSame(config: RunConfig, state: RunState, settings: Settings): void {
  const now = state.settings ? settings : { ...settings, model: config.model }
  const before = state.settings ?? startedWith(config.output)
  if (knowsModelFiles(now) && !knowsModelFiles(before))
    log.warn(
      `${config.output}: the run has no hashes of config.json, tokenizer and preprocessor: they are not compared`,
    )
  requireSteps(config, state)
  const [then, here] = [[...startFolders(config.output), process.cwd()], [process.cwd()]]
  const started = withPaths({ ...beforeSetting, ...before }, then, realpathSync)
  const different = differences(started, withPaths(now, here, realpathSync))
  if (different.length === 0) return
  throw new Mismatch({
    where: config.output,
    field: 'settings',
    expected: 'the settings the run was started with',
    got: different.join('; '),
    hint: 'choose another output folder, or leave these settings out: a resumed run keeps its own',
  })
}

/** Fewer steps than are done would rewrite what the run says about itself. */
function requireSteps({ output, maxSteps }: RunConfig, { step }: RunState): void {
  if (maxSteps < 0 || maxSteps >= step) return
  const hint = 'steps that are done stay: leave the flag out, give more, or choose another output folder'
  throw new Mismatch({ where: output, field: 'maxSteps', expected: `at least ${step}, as many as are done`, got: maxSteps, hint }) // biome-ignore format: one line
}

/** What a run of 0.1.0 was started with. */
function startedWith(output: string): Settings {
  const { 'data.seed': _, ...rest } = storedSettings(output)
  return rest // data.seed had no effect then
}

/** Ends a run that a tracker stopped, with a clear message. Only rank 0 has trackers; every process ends with it. */
export async function requireTrackers(
  { config, world, writer }: { config: RunConfig; world: World; writer: RunLog },
  step: number,
): Promise<void> {
  const [away] = await world.gather(writer.trackerAway)
  if (!away) return
  throw new Unavailable({
    where: away.name,
    field: 'reportTimeout',
    expected: `an answer within ${config.reportTimeout} s`,
    got: `failures for ${away.seconds} s, the last: ${away.reason}`,
    hint: `step ${step} is saved; the same command resumes from it and sends what waits, --reportTimeout 0 continues without`,
  })
}
