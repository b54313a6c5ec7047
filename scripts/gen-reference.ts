// Writes docs/reference.md from the schemas; a test fails while the committed page is another.
import { writeFileSync } from 'node:fs'
import { referencePage } from '../src/cli/settings.ts'

writeFileSync(new URL('../docs/reference.md', import.meta.url), referencePage())
