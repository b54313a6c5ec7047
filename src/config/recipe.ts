import { existsSync, statSync } from 'node:fs'
import { parse } from 'yaml'
import { expecting, isObject, Mismatch, readTextFile, refuseAt } from '../core/index.ts'
import type { SettingTable, Written } from './settings.ts'
import { parseValue } from './values.ts'

/** Settings of a YAML or JSON file by key path. Keys are nested or dotted, and may be any name a flag may have. */
export function readRecipe(path: string, table: SettingTable): Written[] {
  if (!existsSync(path) || !statSync(path).isFile())
    refuseAt(path)('recipe', 'a YAML or JSON file', existsSync(path) ? 'a folder' : 'nothing there')
  const info = { where: path, field: 'recipe', expected: 'YAML or JSON' }
  const value: unknown = expecting(info, () => parse(readTextFile(path, 1 << 17))) // each key is compared with all others
  if (value === null) return []
  if (!isObject(value)) throw new Mismatch({ where: path, field: 'recipe', expected: 'settings by name', got: value })
  return table.inOrder([...flat(value, '', path, table)])
}

function* flat(value: Record<string, unknown>, prefix: string, where: string, table: SettingTable): Generator<Written> {
  for (const [key, inner] of Object.entries(value)) {
    const name = prefix === '' ? key : `${prefix}.${key}`
    if (table.foreign.has(name)) yield { name, path: name, value: inner }
    else if (table.groups.has(name) && (inner === null || isObject(inner))) {
      yield* flat(inner ?? {}, name, where, table)
    } else {
      const setting = table.require(name, where, (n) => n)
      const meant = table.translate(name, String(inner))
      const value = meant === null ? inner : parseValue(meant, setting.schema, name)
      yield { name, path: setting.path, value }
    }
  }
}
