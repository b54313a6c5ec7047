import { randomBytes } from 'node:crypto'
import { existsSync, lstatSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { z } from 'zod'
import { parseWith } from '../config/index.ts'
import { hashFile, Mismatch, messageOf, readJsonObject, syncPath } from '../core/index.ts'

// Checkpoints of a run: RUN/checkpoint_step_N/ with manifest.json naming every file, its size and SHA-256. A folder gets
// its final name by one rename after everything in it is on the disk, so what has the name is whole or damaged later.

/** Bytes or text to write, or a function that writes the file at the path it is given. */
type CheckpointFile = Uint8Array | string | ((path: string) => void)

const count = z.int().nonnegative()
const Manifest = z.object({
  format: z.literal(1),
  step: count,
  files: z.record(z.string(), z.object({ size: count, sha256: z.string() })),
})
type Manifest = z.infer<typeof Manifest>

const manifestName = 'manifest.json'
const temporaryPrefix = '.tmp-checkpoint_step_'
/** `.old` is a checkpoint of the same step on its way out; it counts where the plain name is missing or damaged. */
const finalName = /^checkpoint_step_(\d{1,15})(\.old)?$/

export function checkpointName(step: number): string {
  return `checkpoint_step_${step}`
}

/** Writes one checkpoint; names may have folders ('ema/model.safetensors'). Returns its path. */
export function writeCheckpoint(dir: string, step: number, files: Readonly<Record<string, CheckpointFile>>): string {
  mkdirSync(dir, { recursive: true })
  sweep(dir)
  const temporary = temporaryPath(dir, step)
  try {
    mkdirSync(temporary)
    fill(temporary, step, files)
    return publish(dir, temporary, step)
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true })
    throw error
  }
}

/** Removes leftovers of a killed writer. One process of a run writes checkpoints, so none of these is in use. */
export function sweep(dir: string): void {
  for (const name of readdirSync(dir)) {
    if (name.startsWith(temporaryPrefix)) rmSync(join(dir, name), { recursive: true, force: true })
  }
}

function fill(folder: string, step: number, files: Readonly<Record<string, CheckpointFile>>): void {
  const manifest: Manifest = { format: 1, step, files: {} }
  const folders = new Set([folder])
  for (const [name, content] of Object.entries(files)) {
    checkFileName(folder, name)
    const path = join(folder, name)
    mkdirSync(dirname(path), { recursive: true })
    for (let up = dirname(path); up !== folder; up = dirname(up)) folders.add(up)
    if (typeof content === 'function') content(path)
    else writeFileSync(path, content)
    syncPath(path)
    manifest.files[name] = { size: lstatSync(path).size, sha256: hashFile(path) }
  }
  writeFileSync(join(folder, manifestName), `${JSON.stringify(manifest, null, 2)}\n`)
  syncPath(join(folder, manifestName))
  for (const path of folders) syncPath(path)
}

function checkFileName(where: string, name: string): void {
  const parts = name.split('/')
  const plain = parts.every((part) => /^[^\\\u0000-\u001f]+$/.test(part) && part !== '.' && part !== '..')
  if (plain && name !== manifestName) return
  const expected = `a file name inside the checkpoint, not ${manifestName}`
  throw new Mismatch({ where, field: name, expected, got: name })
}

/** A folder cannot be renamed over a non-empty one, so the old one is first renamed to `.old`, which readers also accept. At every
 * moment a complete checkpoint of this step, if there was one, has a name that readers find. */
function publish(dir: string, temporary: string, step: number): string {
  const path = join(dir, checkpointName(step))
  const aside = `${path}.old`
  if (existsSync(path) && existsSync(aside)) {
    discard(dir, whyInvalid({ step, path }, { hashes: false }) === null ? aside : path, step)
  }
  if (existsSync(path)) renameSync(path, aside)
  renameSync(temporary, path)
  syncPath(dir)
  if (existsSync(aside)) discard(dir, aside, step)
  return path
}

/** Renamed before it is removed, so that a kill in the middle leaves no half checkpoint under a known name. */
function discard(dir: string, path: string, step: number): void {
  const temporary = temporaryPath(dir, step)
  renameSync(path, temporary)
  rmSync(temporary, { recursive: true, force: true })
}

function temporaryPath(dir: string, step: number): string {
  return join(dir, `${temporaryPrefix}${step}-${randomBytes(4).toString('hex')}`)
}

interface FoundCheckpoint {
  step: number
  path: string
}

/** All checkpoints by name, newest first; nothing is checked. */
export function listCheckpoints(dir: string): FoundCheckpoint[] {
  if (!existsSync(dir)) return []
  const found = readdirSync(dir).flatMap((name) => {
    const match = finalName.exec(name)
    return match ? [{ step: Number(match[1]), path: join(dir, name) }] : []
  })
  return found.sort((a, b) => b.step - a.step || a.path.length - b.path.length)
}

interface CheckOptions {
  /** False compares sizes only. */
  hashes?: boolean
}

/** Null when the manifest is there and every file is as it says, else the first thing that is wrong. */
export function whyInvalid({ path, step }: FoundCheckpoint, options: CheckOptions = {}): string | null {
  try {
    const manifest = readManifest(path)
    if (manifest.step !== step) return `${manifestName} says step ${manifest.step}`
    for (const [name, file] of Object.entries(manifest.files)) {
      const size = sizeOf(path, name)
      if (size !== file.size) return `${name}: expected ${file.size} bytes, got ${size ?? 'no file'}`
    }
    if (options.hashes === false) return null
    const changed = Object.entries(manifest.files).find(([name, file]) => hashFile(join(path, name)) !== file.sha256)
    return changed ? `${changed[0]}: its SHA-256 is not the manifest's` : null
  } catch (error) {
    return messageOf(error)
  }
}

/** The same of a folder under any name; null also where it has no manifest: an adapter of somebody else. */
export function whyDamaged(path: string): string | null {
  if (!existsSync(join(path, manifestName))) return null
  try {
    return whyInvalid({ path, step: readManifest(path).step })
  } catch (error) {
    return messageOf(error)
  }
}

function readManifest(path: string): Manifest {
  const where = join(path, manifestName)
  const manifest = parseWith(Manifest, readJsonObject(where), where)
  for (const name of Object.keys(manifest.files)) checkFileName(where, name)
  return manifest
}

function sizeOf(folder: string, name: string): number | null {
  const stat = lstatSync(join(folder, name), { throwIfNoEntry: false })
  return stat?.isFile() ? stat.size : null
}

/** The newest checkpoint whose files are all as written, and every newer one that is not, with the reason. */
export function newestValid(
  dir: string,
  options: CheckOptions = {},
): { checkpoint: FoundCheckpoint | null; invalid: (FoundCheckpoint & { reason: string })[] } {
  const invalid: (FoundCheckpoint & { reason: string })[] = []
  for (const checkpoint of listCheckpoints(dir)) {
    const reason = whyInvalid(checkpoint, options)
    if (reason === null) return { checkpoint, invalid }
    invalid.push({ ...checkpoint, reason })
  }
  return { checkpoint: null, invalid }
}

/** Keeps the newest `keep` checkpoints that have all their bytes (sizes; no hashing) and removes what is older. Damaged
 * ones newer than those stay for inspection. Returns the removed paths. */
export function prune(dir: string, keep: number): string[] {
  if (!Number.isSafeInteger(keep) || keep < 1) {
    throw new Mismatch({ where: dir, field: 'keep', expected: 'a whole number of 1 or more', got: keep })
  }
  const removed: string[] = []
  let kept = 0
  for (const checkpoint of listCheckpoints(dir)) {
    if (kept < keep) {
      if (whyInvalid(checkpoint, { hashes: false }) === null) kept++
      continue
    }
    removed.push(checkpoint.path)
    discard(dir, checkpoint.path, checkpoint.step)
  }
  return removed
}
