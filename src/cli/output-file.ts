import { existsSync, realpathSync } from 'node:fs'
import { dirname } from 'node:path'
import { isFolder, Mismatch } from '../core/index.ts'

/** Checks, before any work, a file that a command will write: its ending, its folder, and that it replaces no input. */
export function requireOutput(path: string, ending: '.html' | '.png' | '', ...inputs: string[]): void {
  const fail = (expected: string, got: string, hint?: string) => {
    throw new Mismatch({ where: 'flags', field: '--out', expected, got, hint })
  }
  if (!path.toLowerCase().endsWith(ending)) fail(`a file name that ends in ${ending}`, path)
  if (!isFolder(dirname(path))) fail('a file in a folder that exists', path, `mkdir -p ${dirname(path)}`)
  if (existsSync(path) && inputs.some((input) => existsSync(input) && realpathSync(input) === realpathSync(path)))
    fail('another file than the input', path)
}
