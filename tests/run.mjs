// `npm run faults|fuzz|soak [-- FLAGS]`: runs tests/NAME/main.ts (`soak long`: tests/soak/long.ts). An offline bundle has them compiled.
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { useOwnCache } from '../bin/own-cache.mjs'
import { compiled, ending, loader } from '../scripts/lib/compiled.mjs'

const [name, ...flags] = process.argv.slice(2)
const part = name === 'soak' && flags[0] === 'long' ? 'long' : 'main'
if (!compiled) useOwnCache()
const program = join(import.meta.dirname, name, `${part}${ending}`)
const child = spawn(process.execPath, [...loader, program, ...flags], {
  cwd: join(import.meta.dirname, '..'),
  stdio: 'inherit',
})
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
child.on('close', (code) => process.exit(code ?? 1))
