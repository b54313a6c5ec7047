import { existsSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { isFolder, namesFile, refuseAt, shellWord } from '../core/index.ts'

/** Checks, before any work, that files can be written to a folder, or to the one that it would be created in. */
export function requireWritable(folder: string): void {
  let place = resolve(folder)
  while (!existsSync(place)) place = dirname(place)
  const probe = join(place, `.roundtrip-${process.pid}`)
  try {
    writeFileSync(probe, '')
    rmSync(probe)
  } catch (error) {
    throw namesFile(place, error, 'folder')
  }
}

/** Checks, before any work, a file that a command will write: its ending, its folder, and that it replaces no input. */
export function requireOutput(path: string, ending: '.html' | '.png' | '', ...inputs: string[]): void {
  const fail = (expected: string, got: string, hint?: string) => refuseAt('flags')('--out', expected, got, hint)
  if (!path.toLowerCase().endsWith(ending)) fail(`a file name that ends in ${ending}`, path)
  if (!isFolder(dirname(path))) fail('a file in a folder that exists', path, `mkdir -p ${shellWord(dirname(path))}`)
  if (existsSync(path) && inputs.some((input) => existsSync(input) && realpathSync(input) === realpathSync(path)))
    fail('another file than the input', path)
  requireWritable(dirname(path))
}
