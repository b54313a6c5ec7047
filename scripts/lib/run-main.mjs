import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { useOwnCache } from '../../bin/own-cache.mjs'
import { root } from './record.mjs'

/** Runs scripts/NAME/PART.ts with the words of the command line; in an offline bundle it is compiled. */
export function runMain(name, part = 'main') {
  const source = join(root, 'scripts', name, `${part}.ts`)
  const fromSources = existsSync(source)
  if (fromSources) useOwnCache()
  const words = fromSources ? ['--import', 'tsx', source] : [source.replace(/\.ts$/, '.js')]
  const child = spawn(process.execPath, [...words, ...process.argv.slice(2)], { cwd: root, stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
  child.on('close', (code) => process.exit(code ?? 1))
}
