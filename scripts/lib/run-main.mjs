import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { useOwnCache } from '../../bin/own-cache.mjs'
import { compiled, ending, loader } from './compiled.mjs'
import { root } from './record.mjs'

/** Runs scripts/NAME/PART.ts with the words of the command line; in an offline bundle it is compiled. */
export function runMain(name, part = 'main') {
  if (!compiled) useOwnCache()
  const words = [...loader, join(root, 'scripts', name, `${part}${ending}`), ...process.argv.slice(2)]
  const child = spawn(process.execPath, words, { cwd: root, stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
  child.on('close', (code) => process.exit(code ?? 1))
}
