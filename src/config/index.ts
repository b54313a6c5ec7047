// Config: settings of any schema as flags, recipe files and a reference page. A setting is written once, in its schema.
// May import core.
// Start reading at settings.ts, then flags.ts.
export * from './flags.ts'
export * from './nearest.ts'
export * from './recipe.ts'
export { settingSections } from './reference.ts'
export * from './refusal.ts'
export * from './setting.ts'
export { type Alias, type Setting, SettingTable, setAt } from './settings.ts'
