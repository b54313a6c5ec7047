// `npm run soak -- --steps 10000 [--kills 100]`: long runs of a toy model with kills at random; see docs/reliability.md.
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { useOwnCache } from '../bin/own-cache.mjs'
import { root } from './lib/record.mjs'

useOwnCache()
const main = join(root, 'scripts', 'soak', 'main.ts')
const child = spawn(process.execPath, ['--import', 'tsx', main, ...process.argv.slice(2)], {
  cwd: root,
  stdio: 'inherit',
})
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
child.on('close', (code) => process.exit(code ?? 1))
