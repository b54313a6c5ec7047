// `npm run fuzz -- FORMAT... [--n N] [--seed S] [--keep FOLDER] [--json]`: damaged files against the readers; see docs/fuzzing.md.
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { useOwnCache } from '../bin/own-cache.mjs'
import { root } from './lib/record.mjs'

useOwnCache()
const main = join(root, 'scripts', 'fuzz', 'main.ts')
const child = spawn(process.execPath, ['--import', 'tsx', main, ...process.argv.slice(2)], {
  cwd: root,
  stdio: 'inherit',
})
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
child.on('close', (code) => process.exit(code ?? 1))
