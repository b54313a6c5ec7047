import type { Setting, SettingTable } from './settings.ts'

/** Settings by group, in the order of the schema; those without a group come first. */
export function settingSections(table: SettingTable): { group: string; doc: string; settings: readonly Setting[] }[] {
  const sections = new Map<string, Setting[]>([['', []]])
  for (const group of table.groups.keys()) sections.set(group, [])
  for (const setting of table.settings) {
    const group = setting.path.slice(0, Math.max(0, setting.path.lastIndexOf('.')))
    sections.get(group)!.push(setting)
  }
  return [...sections]
    .filter(([, settings]) => settings.length > 0)
    .map(([group, settings]) => ({ group, doc: table.groups.get(group) ?? '', settings }))
}
