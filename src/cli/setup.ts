import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { Command } from 'commander'
import { packageRoot } from '../core/index.ts'

/** `roundtrip setup`: finds or installs a libtorch and a compiler and builds the addon, in a clone and in an installed package. */
export function command(): Command {
  return new Command('setup')
    .description('find or install libtorch and a C++ compiler, and build the addon; what is there already is kept')
    .option('--quiet', 'say nothing unless it fails')
    .option('--no-install', 'never call npm or apt')
    .option('--json', 'print the build record')
    .action((options: { quiet?: boolean; install: boolean; json?: boolean }) => {
      const flags = [
        ...(options.quiet ? ['--quiet'] : []),
        ...(options.install ? [] : ['--no-install']),
        ...(options.json ? ['--json'] : []),
      ]
      return runScript(join(packageRoot(), 'scripts', 'setup.mjs'), flags)
    })
}

/** The script ends with its own messages; only its exit status is passed on. */
async function runScript(path: string, flags: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [path, ...flags], { stdio: 'inherit' })
  process.exitCode = await new Promise<number>((done, fail) => {
    child.on('error', fail)
    child.on('close', (code) => done(code ?? 1))
  })
}
