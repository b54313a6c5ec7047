// `npm run faults [-- --only NAME] [--json] [--page]`: every fault of the table on a toy model; see docs/reliability.md.
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { useOwnCache } from '../bin/own-cache.mjs'
import { root } from './lib/record.mjs'

useOwnCache()
const main = join(root, 'scripts', 'faults', 'main.ts')
const child = spawn(process.execPath, ['--import', 'tsx', main, ...process.argv.slice(2)], {
  cwd: root,
  stdio: 'inherit',
})
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
child.on('close', (code) => process.exit(code ?? 1))
