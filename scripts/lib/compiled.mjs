import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './record.mjs'

/** An offline bundle has the same tree compiled: .js instead of .ts. */
export const compiled = !existsSync(join(root, 'src/core/index.ts'))

/** File ending of TypeScript sources here, and the Node flags to run them. */
export const ending = compiled ? '.js' : '.ts'
export const loader = compiled ? [] : ['--import', 'tsx']
