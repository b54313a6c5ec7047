// The settings of a run as flags: canonical names, the names the Python prototype had, recipes. And `roundtrip settings`.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import {
  type Alias,
  type CommandFlag,
  type Given,
  readFlags,
  type Setting,
  SettingTable,
  setAt,
  valueAt,
} from '../config/index.ts'
import { log, modelFolder, packageRoot } from '../core/index.ts'
import type { ScoredSettings } from '../host/index.ts'
import { OptimConfig } from '../optim/index.ts'
import { RunConfig, type RunInput, resolveRun, resumedSettings } from '../run/index.ts'
import { taskKinds } from '../tasks/index.ts'
import { basicSettings, firstSettings } from './basic-settings.ts'
import { type Mode, readsSetting } from './command-settings.ts'
import { processCount } from './launch.ts'
import { perProcessFlags, prototypeFlags, prototypeValues, taskFlags, weakFlags } from './prototype-flags.ts'
import { foreignNames, takeForeignNames } from './prototype-names.ts'

/** Short names, and the optimizer's settings under `rl.` where that group has none of the name. */
function aliases(task: string): Alias[] {
  const optimizer = Object.keys(OptimConfig.shape).map((key) => ({ name: `rl.${key}`, path: `optim.${key}` }))
  const prototype = Object.entries({ ...prototypeFlags, ...taskFlags[task] }).map(([name, path]) => {
    const [perProcess, weak] = [perProcessFlags.has(name), weakFlags.has(name)]
    return { name, path, read: prototypeValues[name], perProcess, weak }
  })
  return [...prototype, { name: 'data', path: 'dataPath' }, ...optimizer]
}

const tables = new Map<string, SettingTable>()

/** The settings of a run; some names of the prototypes depend on its task. */
export function runTable(task = ''): SettingTable {
  const key = Object.hasOwn(taskFlags, task) ? task : ''
  const table = tables.get(key) ?? new SettingTable(RunConfig, aliases(key), foreignNames)
  tables.set(key, table)
  return table
}

/** A file, or the name of a recipe that comes with the package. */
export function findRecipe(name: string): string {
  if (existsSync(name)) return name
  const shipped = join(packageRoot(), 'recipes', `${name}.yaml`)
  return existsSync(shipped) ? shipped : name
}

export const rewardFlag: CommandFlag = {
  name: 'reward',
  value: 'FILE',
  many: true,
  doc: 'module with a custom reward, added to both loops',
}

export type RunSettings = Given & ScoredSettings

type Settings = Readonly<Record<string, unknown>>

/** Defaults < the command's own < those of a run folder < recipes < flags, checked. */
export function readRunSettings(
  argv: readonly string[],
  own: readonly CommandFlag[],
  commandDefaults: Settings = {},
  ofRun: (given: Given) => Settings = () => ({}),
): RunSettings {
  const first = readFlags(argv, runTable(), own, findRecipe)
  const ofFolder = ofRun(first)
  const task = String(settingAt(first.settings, 'task') ?? ofFolder['task'] ?? '')
  const given = readFlags(argv, runTable(task), own, findRecipe)
  takeForeignNames(given, task)
  const input: Record<string, unknown> = {}
  for (const [path, value] of Object.entries(commandDefaults)) setAt(input, path, value)
  const stored = takeStored(ofFolder, given, input)
  for (const path of given.paths) setAt(input, path, settingAt(given.settings, path))
  for (const path of given.perProcess) {
    const value = settingAt(given.settings, path) // what is not a count is rejected by the setting itself
    setAt(input, path, Number.isInteger(value) ? (value as number) * processCount(given.flags) : value)
  }
  if (typeof input['model'] === 'string') input['model'] = modelFolder(input['model'])
  if (isOtherData(given)) setAt(input, 'evalPath', null)
  const modules = given.flags.get(rewardFlag.name) ?? []
  if (modules.length > 0) {
    const before = (settingAt(given.settings, 'rewards.modules') as unknown[] | undefined) ?? []
    setAt(input, 'rewards.modules', [...before, ...modules.map((path) => ({ path }))])
  }
  const config = resolveRun(input as RunInput, given.paths)
  for (const path of stored) given.paths.add(path) // written in a file, as a recipe's are, and not typed
  const fromFiles = new Set([...given.paths].filter((path) => !given.typed.has(path)))
  return { ...given, config, fromFiles }
}

/** The held-out records of a recipe belong to its own data. */
function isOtherData({ typed, ofRecipes }: Given): boolean {
  const both = ofRecipes.has('dataPath') && ofRecipes.has('evalPath')
  return both && typed.has('dataPath') && !typed.has('evalPath')
}

/** Puts stored settings that were not given in place; returns and logs those that differ from the defaults. */
function takeStored(stored: Settings, given: Given, input: Record<string, unknown>): string[] {
  const taken = Object.entries(stored).filter(([path]) => !given.paths.has(path))
  const text = (value: unknown) => JSON.stringify(value) ?? 'none'
  const others = taken.filter(([path, value]) => {
    return text(value) !== text(settingAt(input, path) ?? runTable().find(path)?.default)
  })
  for (const [path, value] of taken) setAt(input, path, value)
  if (others.length > 0)
    log.info(`settings of the run: ${others.map(([path, value]) => `${path} ${text(value)}`).join(', ')}`)
  return others.map(([path]) => path)
}

/** `ofRun` of a command that resumes the run in its output folder. */
export const ofResumed =
  (output: string) =>
  (given: Given): Settings =>
    resumedSettings(String(settingAt(given.settings, 'output') ?? output))

const settingAt = (value: unknown, path: string) => valueAt(value, path.split('.'))

/** A command that takes run settings. */
export interface RunCommand {
  name: Mode
  about: string
  flags: readonly CommandFlag[]
  /** The words after the name in the example of `--help`. */
  example: string
}

/** What `--help` of a command with run settings prints: only settings that it reads. */
export function runHelp({ name, about, flags: own, example }: RunCommand): string {
  const flags = [...own, { name: 'recipe', value: 'FILE', doc: 'settings from a YAML or JSON file, or a shipped name' }]
  const isRead = (path: string) => readsSetting(name, 'cycle', path)
  const settings = firstSettings
    .filter(([path]) => isRead(path))
    .map(([path, when]) => [`--${path === 'dataPath' ? 'data' : path}`, when] as const)
  const kinds = Object.entries(taskKinds)
    .filter(([, kind]) => name !== 'sft' || kind.lessons)
    .map(([kind, { doc }]) => [`--task ${kind}`, doc] as const)
  const tasks = ['Tasks, or the path of a module that exports one:', ...rowsOf(kinds), '']
  return [
    `usage: npx roundtrip-rl ${name} [--setting value ...]`,
    '',
    about,
    '',
    ...rowsOf(flags.map((f) => [`--${f.name}${f.value ? ` ${f.value}` : ''}`, f.doc] as const)),
    '',
    'Common settings:',
    ...rowsOf(settings),
    '',
    ...(isRead('task') ? tasks : []),
    'Example:',
    `  npx roundtrip-rl ${name} ${example}`,
    '',
    'Every setting is a flag; `npx roundtrip-rl settings [WORD]` lists them.',
    '',
  ].join('\n')
}

function rowsOf(rows: readonly (readonly [flag: string, doc: string])[]): string[] {
  const width = Math.max(...rows.map(([flag]) => flag.length))
  return rows.map(([flag, doc]) => `  ${flag.padEnd(width)}  ${doc}`)
}

/** The words after the name of such a command are passed on as they are. */
export function runCommand(command: RunCommand, run: (argv: readonly string[]) => Promise<void>): Command {
  return new Command(command.name)
    .description(command.about)
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action(async (_options: unknown, { args }: Command) => {
      if (args.includes('--help') || args.includes('-h')) process.stdout.write(runHelp(command))
      else await run(args)
    })
}

export function showDefault({ default: value }: Setting): string {
  if (value === undefined) return 'none'
  return typeof value === 'string' ? value || "''" : JSON.stringify(value)
}

/** `roundtrip settings [WORD]`: the basic settings, all of them, or those whose name or meaning has the word. */
export function command(): Command {
  return new Command('settings')
    .description('list the settings of a run: name, default, meaning')
    .argument('[word]', 'only those whose name or meaning has it, advanced ones included')
    .option('--all', 'advanced settings too')
    .action((word: string | undefined, { all }: { all?: boolean }) => {
      const wanted = word?.toLowerCase()
      const { settings } = runTable()
      const found =
        wanted === undefined
          ? settings.filter((s) => all || basicSettings.has(s.path))
          : settings.filter((s) => `${s.path} ${s.doc}`.toLowerCase().includes(wanted))
      for (const s of found) process.stdout.write(`--${s.path}  [${showDefault(s)}]\n    ${s.doc} (${s.type})\n`)
      const rest = settings.length - found.length
      if (found.length === 0) process.stderr.write(`no setting has the word ${word}\n`)
      else if (wanted === undefined && rest > 0) process.stderr.write(`${rest} more with --all\n`)
    })
}
