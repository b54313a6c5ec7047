// Config: settings of any schema as flags, recipe files and a reference page. A setting is written once, in its schema.
// May import core.
// Start reading at settings.ts, then flags.ts.
export { type CommandFlag, type Given, readFlags } from './flags.ts'
export { distance, nearest } from './nearest.ts'
export { readRecipe } from './recipe.ts'
export { settingSections } from './reference.ts'
export { expectedOf, mayHoldKey, refusalOf } from './refusal.ts'
export { type Alias, type Setting, SettingTable, setAt } from './settings.ts'
