// The location of this checkout's addon: cache folder, build record, and hashes that detect changes. dev/engine.md describes it.
import { createHash } from 'node:crypto'
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { SetupError } from './progress.mjs'

export const root = realpathSync(join(dirname(fileURLToPath(import.meta.url)), '..', '..'))

export const sha256 = (text) => createHash('sha256').update(text).digest('hex')

export function cacheFolder(env = process.env) {
  if (env.ROUNDTRIP_CACHE) return resolve(env.ROUNDTRIP_CACHE)
  return join(env.XDG_CACHE_HOME || join(home(), '.cache'), 'roundtrip')
}

const chooseAnother = 'Set ROUNDTRIP_CACHE to a folder that you can write to'

function home() {
  try {
    return homedir()
  } catch {
    throw new SetupError(`this user has no home folder. ${chooseAnother}`)
  }
}

const notWritable = (folder, error) =>
  new SetupError(`cannot write to the cache folder ${folder}: ${error.message}. ${chooseAnother}`)

// one folder at a time: Node's recursive mkdir never ends if an existing parent answers ENOENT, as an automounted /home does
function makeFolder(path) {
  if (existsSync(path)) return
  makeFolder(dirname(path))
  mkdirSync(path)
}

/** Checks that the cache folder can be written to, before anything is downloaded or compiled. */
export function prepareCache() {
  const folder = join(cacheFolder(), 'native')
  try {
    makeFolder(folder)
    accessSync(folder, constants.W_OK | constants.X_OK)
  } catch (error) {
    throw notWritable(folder, error)
  }
}

/** A failure on a file of the cache folder as one message; any other error as it is. */
export function explainCache(error) {
  const folder = cacheFolder()
  return error.syscall && error.path?.startsWith(folder) ? notWritable(folder, error) : error
}

export const chosenTorch = (env = process.env) => (env.ROUNDTRIP_TORCH ? resolve(env.ROUNDTRIP_TORCH) : '')

export function recordPath(folder = root, env = process.env) {
  const selector = sha256(`${folder}\n${chosenTorch(env)}`).slice(0, 16)
  return join(cacheFolder(env), 'native', `current-${selector}.json`)
}

/** Relative paths of all files below native/, sorted. */
export function nativeFiles(folder = root) {
  return readdirSync(join(folder, 'native'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(join(folder, 'native').length + 1))
    .sort()
}

export function hashFiles(base, paths) {
  const hash = createHash('sha256')
  for (const path of paths) {
    hash.update(`${path}\0`)
    hash.update(readFileSync(join(base, path)))
    hash.update('\0')
  }
  return hash.digest('hex')
}

export const sourcesHash = (folder = root) => hashFiles(join(folder, 'native'), nativeFiles(folder))

export function fingerprint(path) {
  const { size, mtimeMs } = statSync(path)
  return { path, size, mtimeMs }
}

/** mtime of a path, or null if it does not exist: a later package installation changes its folder's mtime. */
export function mtimeOf(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? null
}

export function readRecord(folder = root, env = process.env) {
  try {
    const record = JSON.parse(readFileSync(recordPath(folder, env), 'utf8'))
    return record.format === 1 ? record : null
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(error.code) || error instanceof SyntaxError) return null
    throw error
  }
}

export function writeRecord(record, folder = root, env = process.env) {
  const path = recordPath(folder, env)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(`${path}.${process.pid}`, `${JSON.stringify(record, null, 2)}\n`)
  renameSync(`${path}.${process.pid}`, path)
}

const sameFile = (print) => mtimeOf(print.path) === print.mtimeMs && statSync(print.path).size === print.size

/** The record, if its addon exists and neither the sources nor the torch library changed since; else null. */
export function findBuild(folder = root, env = process.env) {
  const record = readRecord(folder, env)
  if (!record || mtimeOf(record.addon) === null || !sameFile(record.library)) return null
  return record.sources === sourcesHash(folder) ? record : null
}
