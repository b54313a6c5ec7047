// Writes the pages of settings in docs/ from the schemas; a test fails if a committed page differs.
import { writeFileSync } from 'node:fs'
import { settingPages } from '../src/cli/reference-pages.ts'

for (const [name, page] of Object.entries(settingPages))
  writeFileSync(new URL(`../docs/${name}`, import.meta.url), page())
