// Checks the installed npm packages against package-lock.json, and installs them.
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { runAsync, SetupError, seconds } from './progress.mjs'
import { root } from './record.mjs'

const packagesOf = (path) => JSON.parse(readFileSync(path, 'utf8')).packages

/** True if a package of the lock file is missing or has another version. Dates are not compared, because a checkout changes them. */
export function packagesStale(folder = root) {
  const lock = join(folder, 'package-lock.json')
  const installed = join(folder, 'node_modules', '.package-lock.json')
  if (!existsSync(lock)) return false // this is an installed package: npm has installed its dependencies
  if (!existsSync(installed)) return true
  const have = packagesOf(installed)
  return Object.entries(packagesOf(lock)).some(
    ([name, want]) => name !== '' && !want.optional && have[name]?.version !== want.version,
  )
}

function npmCommand() {
  const beside = join(dirname(process.execPath), 'npm')
  if (process.env.npm_execpath?.endsWith('.js')) return [process.execPath, process.env.npm_execpath]
  return existsSync(beside) ? [beside] : ['npm']
}

const npm = (words) => {
  const [program, ...args] = [...npmCommand(), ...words, '--no-audit', '--no-fund', '--loglevel=error']
  return runAsync(program, args, { cwd: root }).catch((error) => ({ ok: false, output: error.message }))
}

export async function installPackages({ say }) {
  const start = performance.now()
  say('npm ci')
  let done = await npm(['ci', '--ignore-scripts'])
  // `npm ci` refuses a lock file without the optional packages of other platforms; `npm install` accepts it and keeps its versions
  if (!done.ok && /EUSAGE/.test(done.output) && /Missing: .* from lock file/.test(done.output)) {
    say('npm ci refuses the lock file (optional packages missing in it); npm install --no-save')
    done = await npm(['install', '--ignore-scripts', '--no-save'])
  }
  if (!done.ok) throw new SetupError(`npm ci failed:\n${done.output.trim().split('\n').slice(0, 12).join('\n')}`)
  say(`npm packages installed, ${seconds(start)}`)
}

/** Folder of node_api.h. */
export function nodeApiHeaders() {
  try {
    const entry = createRequire(join(root, 'package.json')).resolve('node-api-headers/package.json')
    return join(dirname(entry), 'include')
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error
    throw new SetupError('node-api-headers is not installed: run `npm ci` in the package folder')
  }
}
