import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './record.mjs'

/** An offline bundle holds the same tree compiled: .js where a clone has .ts, and no tools. */
export const compiled = !existsSync(join(root, 'src/core/index.ts'))

/** How files of TypeScript end here, and what Node needs to run them. */
export const ending = compiled ? '.js' : '.ts'
export const loader = compiled ? [] : ['--import', 'tsx']
