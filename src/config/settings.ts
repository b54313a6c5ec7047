import { z } from 'zod'
import { assert, Mismatch } from '../core/index.ts'
import { nearest } from './nearest.ts'
import { describeType, type ValueSchema } from './values.ts'

/** One leaf of a schema: its key path is its flag. */
export interface Setting {
  path: string
  type: string
  default: unknown
  doc: string
  schema: ValueSchema
}

/** Another name of a setting. */
export interface Alias {
  name: string
  path: string
  /** Where the name counts in another way: its value, as text, in the setting's own words. */
  read?: (text: string) => string
  /** The value counts for each process; the setting counts over all of them. */
  perProcess?: boolean
  /** Gives way to other names of the setting, in whatever order they are written. */
  weak?: boolean
}

/** A value under the name that the user wrote. */
export interface Written {
  name: string
  path: string
  value: unknown
}

function* leaves(schema: ValueSchema, prefix: string): Generator<Setting> {
  for (const [key, value] of Object.entries(schema.properties ?? {})) {
    const path = prefix === '' ? key : `${prefix}.${key}`
    if (value.type === 'object' && value.properties) yield* leaves(value, path)
    else {
      const doc = value.description ?? ''
      yield { path, type: describeType(value), default: value.default, doc, schema: value }
    }
  }
}

/** Every setting of a schema under its key path, and under the other names it goes by. */
export class SettingTable {
  readonly settings: readonly Setting[]
  readonly aliases: readonly Alias[]
  readonly groups: ReadonlyMap<string, string>
  /** Names that are accepted and are not settings; the caller decides what they do. */
  readonly foreign: ReadonlySet<string>
  readonly #byName = new Map<string, Setting>()

  constructor(schema: z.ZodType, aliases: readonly Alias[] = [], foreign: readonly string[] = []) {
    this.foreign = new Set(foreign)
    const json = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as ValueSchema
    this.settings = [...leaves(json, '')]
    const others = aliases.filter(({ name }) => name.includes('.')).map(({ name }) => name.slice(0, name.indexOf('.')))
    this.groups = new Map([...others.map((name) => [name, ''] as const), ...groupsOf(json, '')])
    this.aliases = aliases
    for (const setting of this.settings) this.#byName.set(setting.path, setting)
    for (const { name, path } of aliases) {
      const setting = this.#byName.get(path)
      assert(setting, `alias ${name} names a setting: ${path}`)
      if (!this.#byName.has(name)) this.#byName.set(name, setting)
    }
  }

  get names(): string[] {
    return [...this.#byName.keys(), ...this.foreign]
  }

  find(name: string): Setting | undefined {
    return this.#byName.get(name)
  }

  /** A value under a name that counts in another way, as the setting means it. */
  translate(name: string, text: string): string | null {
    return this.#alias(name)?.read?.(text) ?? null
  }

  isPerProcess(name: string): boolean {
    return this.#alias(name)?.perProcess ?? false
  }

  #alias(name: string): Alias | undefined {
    return this.settings.some((s) => s.path === name) ? undefined : this.aliases.find((a) => a.name === name)
  }

  /** In the order in which they are applied: weak names first. */
  inOrder(values: readonly Written[]): Written[] {
    const weak = values.filter(({ name }) => this.#alias(name)?.weak)
    return [...weak, ...values.filter((value) => !weak.includes(value))]
  }

  /** The setting of a name; an unknown one is an error that names the nearest. */
  require(name: string, where: string, show: (name: string) => string, more: readonly string[] = []): Setting {
    const found = this.#byName.get(name)
    if (found) return found
    const close = nearest(name, [...this.names, ...more])
    const hint = close === undefined ? undefined : `did you mean ${show(close)}?`
    throw new Mismatch({ where, field: show(name), expected: 'a known setting', got: 'an unknown one', hint })
  }
}

function* groupsOf(schema: ValueSchema, prefix: string): Generator<[string, string]> {
  for (const [key, value] of Object.entries(schema.properties ?? {})) {
    if (value.type !== 'object' || !value.properties) continue
    const path = prefix === '' ? key : `${prefix}.${key}`
    yield [path, value.description ?? '']
    yield* groupsOf(value, path)
  }
}

/** Puts a value at a key path, making the objects on the way. */
export function setAt(target: Record<string, unknown>, path: string, value: unknown): void {
  const keys = path.split('.')
  let at = target
  for (const key of keys.slice(0, -1)) {
    const next = at[key]
    if (typeof next !== 'object' || next === null) at[key] = {}
    at = at[key] as Record<string, unknown>
  }
  at[keys.at(-1)!] = value
}
