import { Mismatch } from '../core/index.ts'
import { readRecipe } from './recipe.ts'
import { type SettingTable, setAt, type Written } from './settings.ts'
import { parseValue } from './values.ts'

/** A flag of a command that is not a setting. */
export interface CommandFlag {
  name: string
  /** How the value is called in the help; absent or empty: a switch. */
  value?: string
  /** May be given more than once. */
  many?: boolean
  doc: string
}

/** Flags by name and value, such as `'out DIR': 'folder of the page'`; a name alone is a switch. */
export function flagsOf(docs: Readonly<Record<string, string>>): CommandFlag[] {
  return Object.entries(docs).map(([spelling, doc]) => {
    const [name, ...value] = spelling.split(' ')
    return { name: name!, value: value.join(' '), doc }
  })
}

export interface Given {
  /** Settings as the user wrote them, recipes first, flags over them; no defaults. */
  settings: Record<string, unknown>
  /** Key paths that recipes or flags set. */
  paths: Set<string>
  /** Those of the command line. */
  typed: Set<string>
  /** Those of recipes. */
  ofRecipes: Set<string>
  /** Those whose value counts for each process. */
  perProcess: Set<string>
  /** Values of the command's own flags, in order; a switch has the value 'true'. */
  flags: Map<string, string[]>
  /** Every value under the name it was written with, in the order of application. */
  written: Written[]
}

const recipeFlag: CommandFlag = { name: 'recipe', value: 'FILE', many: true, doc: 'settings from a YAML or JSON file' }

/**
 * `--key value`, `--key=value`, and `--key` alone for true. Defaults < recipes in order < flags in order, wherever the recipe
 * is on the line. A value that begins with two dashes needs the form with `=`.
 */
export function readFlags(
  argv: readonly string[],
  table: SettingTable,
  own: readonly CommandFlag[] = [],
  findRecipe: (name: string) => string = (name) => name,
): Given {
  const commandFlags = new Map([recipeFlag, ...own].map((flag) => [flag.name, flag]))
  const given: Given = {
    settings: {},
    paths: new Set(),
    typed: new Set(),
    ofRecipes: new Set(),
    perProcess: new Set(),
    flags: new Map(),
    written: [],
  }
  const set: Written[] = []
  for (let i = 0; i < argv.length; ) {
    const { name, value } = nameAndValue(argv, i)
    const flag = commandFlags.get(name)
    if (flag) i += takeFlag(given, flag, value, argv[i + 1])
    else if (table.foreign.has(name)) {
      const text = value ?? settingText(argv[i + 1], false) ?? missing(name, 'a value')
      set.push({ name, path: name, value: text })
      i += value === undefined ? 2 : 1
    } else {
      const setting = table.require(name, 'flags', (n) => `--${n}`, [...commandFlags.keys()])
      const isSwitch = setting.schema.type === 'boolean'
      const text = value ?? settingText(argv[i + 1], isSwitch)
      if (text === undefined && !isSwitch) missing(name, setting.type)
      const meant = text === undefined ? undefined : (table.translate(name, text) ?? text)
      const parsed = meant === undefined ? true : parseValue(meant, setting.schema, `--${name}`)
      set.push({ name, path: setting.path, value: parsed })
      i += value !== undefined || text === undefined ? 1 : 2
    }
  }
  for (const recipe of given.flags.get('recipe') ?? []) apply(given, readRecipe(findRecipe(recipe), table), table)
  given.ofRecipes = new Set(given.paths)
  apply(given, table.inOrder(set), table)
  for (const { path } of set) given.typed.add(path)
  return given
}

function apply(given: Given, values: readonly Written[], table: SettingTable): void {
  given.written.push(...values)
  for (const { name, path, value } of values) {
    if (table.foreign.has(path)) continue
    setAt(given.settings, path, value)
    given.paths.add(path)
    if (table.isPerProcess(name)) given.perProcess.add(path)
    else given.perProcess.delete(path)
  }
}

function nameAndValue(argv: readonly string[], i: number): { name: string; value?: string } {
  const word = argv[i]!
  if (!word.startsWith('--') || word === '--')
    throw new Mismatch({ where: 'flags', field: word, expected: 'a flag such as --maxSteps 10', got: word })
  const equals = word.indexOf('=')
  if (equals < 0) return { name: word.slice(2) }
  return { name: word.slice(2, equals), value: word.slice(equals + 1) }
}

/** The next word, if it is a value: a switch takes only true or false. */
function settingText(next: string | undefined, isSwitch: boolean): string | undefined {
  if (next === undefined || next.startsWith('--')) return undefined
  if (isSwitch && !/^(true|false|yes|no|0|1)$/i.test(next)) return undefined
  return next
}

/** Words used. */
function takeFlag(given: Given, flag: CommandFlag, value: string | undefined, next: string | undefined): number {
  const before = given.flags.get(flag.name) ?? []
  if (!flag.value) {
    if (value !== undefined && value !== 'true')
      throw new Mismatch({ where: 'flags', field: `--${flag.name}`, expected: 'no value', got: value })
    given.flags.set(flag.name, ['true'])
    return 1
  }
  const text = value ?? settingText(next, false)
  if (text === undefined || text === '') return missing(flag.name, flag.value)
  given.flags.set(flag.name, flag.many ? [...before, text] : [text])
  return value === undefined ? 2 : 1
}

function missing(name: string, expected: string): never {
  throw new Mismatch({ where: 'flags', field: `--${name}`, expected, got: 'nothing' })
}
