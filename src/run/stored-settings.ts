// Settings that a run folder remembers. A resumed run and an evaluation of its weights take them for whatever is not given.
import { existsSync } from 'node:fs'
import { isAbsolute, join, resolve } from 'node:path'
import { listCheckpoints } from '../checkpoint/index.ts'
import { SettingTable, setAt } from '../config/index.ts'
import { isObject, type JsonObject, readJsonObject, readText, tryJsonObject } from '../core/index.ts'
import { runFiles } from '../tracking/index.ts'
import { RunConfig, type RunInput } from './config.ts'
import { flattened, type Settings } from './flat-settings.ts'

let table: SettingTable | undefined

const settingTable = () => (table ??= new SettingTable(RunConfig))

/**
 * By path, from config.json; empty if there is none that can be read. Settings that this version does not have are left out, and
 * relative paths are found again from another working folder.
 */
export function storedSettings(run: string): Settings {
  const known = new Set(settingTable().settings.map(({ path }) => path))
  const stored = Object.entries(flattened(described(run, runFiles.config)))
  const kept = stored.filter(([name]) => known.has(name) && name !== 'output')
  return withPaths(Object.fromEntries(kept), startFolders(run))
}

/** Empty if it cannot be read: a resumed run compares its settings with those of its checkpoint. */
function described(run: string, file: string): JsonObject {
  const path = join(run, file)
  return (existsSync(path) && tryJsonObject(readText(path))) || {}
}

const pathSetting =
  /^(model|dataPath|evalPath|featureCache|points\.sam)$|\.(difficultyFile|imageRoot|maskDir|cacheDir|path)$/

/** Relative paths of a run belong to the folder that contains its `output`, wherever that is now, or to the one it was started in. */
export function startFolders(run: string): string[] {
  const { output } = described(run, runFiles.config)
  const { workingFolder } = described(run, runFiles.environment)
  const [place, ending] = [resolve(run), join('/', String(output), '.')]
  const isBelow = typeof output === 'string' && !/^\/|\.\./.test(output) && place.endsWith(ending)
  const above = isBelow ? [place.slice(0, -ending.length) || '/'] : []
  return typeof workingFolder === 'string' ? [...above, workingFolder] : above
}

/** Relative paths of files in one of the folders, spelled so that they are found from here. */
export function withPaths(settings: Settings, folders: readonly string[], spell = (path: string) => path): Settings {
  const placed = (path: string, name: string): string => {
    const isPath = name === 'task' ? /[./]/.test(path) : path !== '' && pathSetting.test(name)
    const folder = folders.find((at) => isPath && existsSync(resolve(at, path)))
    if (folder === undefined) return path
    return spell(isAbsolute(path) || folder === process.cwd() ? path : resolve(folder, path))
  }
  const within = (value: unknown, name: string): unknown => {
    if (typeof value === 'string') return placed(value, name)
    if (Array.isArray(value)) return value.map((one) => within(one, name))
    if (!isObject(value)) return value
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, within(inner, `${name}.${key}`)]))
  }
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, within(value, name)]))
}

/** Settings of the run that `output` holds, if it has a checkpoint to resume from. */
export function resumedSettings(output: string): Settings {
  const newest = existsSync(join(output, runFiles.events)) ? listCheckpoints(output)[0] : undefined
  if (!newest) return {}
  const { 'data.seed': seed, ...rest } = { ...beforeSetting, ...storedSettings(output) }
  return isVersion1(newest.path) ? rest : { ...rest, ...(seed === undefined ? {} : { 'data.seed': seed }) }
}

/** What runs did before there was a setting for it. */
export const beforeSetting: Settings = { 'data.splitBy': 'place' }

/** In 0.1.0 data.seed had no effect. */
function isVersion1(checkpoint: string): boolean {
  try {
    return readJsonObject(join(checkpoint, 'state.json')).version === 1
  } catch {
    return false // damaged: another checkpoint, or the refusal, comes later
  }
}

/** Paths of stored settings that are in effect and not the defaults: a file chose them, not the caller. */
export function chosenByFile(stored: Settings, given: RunInput): Set<string> {
  const own = flattened(given)
  const text = (value: unknown) => JSON.stringify(value) ?? 'none'
  const isDefault = ([path, value]: [string, unknown]) => text(value) === text(settingTable().find(path)?.default)
  const chosen = Object.entries(stored).filter((entry) => own[entry[0]] === undefined && !isDefault(entry))
  return new Set(chosen.map(([path]) => path))
}

/** What was given over the stored settings. */
export function overStored(stored: Settings, given: RunInput): RunInput {
  const input: Record<string, unknown> = {}
  for (const [path, value] of Object.entries(stored)) setAt(input, path, value)
  for (const [path, value] of Object.entries(flattened(given))) if (value !== undefined) setAt(input, path, value)
  return input as RunInput
}
