import { createHash, randomBytes } from 'node:crypto'
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expecting } from './errors.ts'
import { isFolder } from './paths.ts'
import { regularFile, unreadable } from './regular-file.ts'

export function sha256(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex')
}

/** What `use` makes of a file that is open for reading; it is closed afterwards. */
export function withOpen<T>(path: string, use: (fd: number) => T): T {
  const fd = openSync(path, 'r')
  try {
    return use(fd)
  } finally {
    closeSync(fd)
  }
}

/** SHA-256 of a file, read in pieces. */
export function hashFile(path: string): string {
  const hash = createHash('sha256')
  const piece = Buffer.allocUnsafe(1 << 20)
  let at = 0
  try {
    withOpen(path, (fd) => {
      for (let n = readSync(fd, piece); n > 0; n = readSync(fd, piece)) {
        hash.update(piece.subarray(0, n))
        at += n
      }
    })
  } catch (error) {
    throw unreadable(path, at, piece.length, error)
  }
  return hash.digest('hex')
}

/** writeSync takes at most 2^31 - 1 bytes a call. */
const pieceBytes = 2 ** 30

/** Writes all bytes, at `position` or at the end. A full disk takes a part first, without an error; the rest then fails. */
export function writeAll(fd: number, data: string | Uint8Array, position: number | null = null): void {
  const bytes = typeof data === 'string' ? Buffer.from(data) : data
  for (let at = 0; at < bytes.length; ) {
    const length = Math.min(pieceBytes, bytes.length - at)
    at += writeSync(fd, bytes, at, length, position === null ? null : position + at)
  }
}

/**
 * Writes beside the target, syncs, renames: a reader sees the old file or the new one, never half of it. A device stays one.
 * Without `sync` a power failure may leave an empty file.
 */
export function replaceFile(path: string, write: (fd: number) => void, sync = true): void {
  if (existsSync(path)) regularFile(path)
  const temporary = `${path}.${randomBytes(4).toString('hex')}.tmp`
  try {
    const fd = openSync(temporary, 'wx')
    try {
      write(fd)
      if (sync) fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
    renameSync(temporary, path)
  } catch (error) {
    if (existsSync(temporary)) rmSync(temporary, { force: true })
    throw namesFile(path, error)
  }
  if (sync) syncPath(dirname(path))
}

const noEntry: Readonly<Record<string, string>> = {
  ENOENT: 'its folder does not exist',
  ENOTDIR: 'a part of its path is a file',
  EACCES: 'no right to write there',
  EPERM: 'no right to write there',
  EEXIST: 'a file has this name',
  EISDIR: 'a folder has this name',
}

/** The error of a write: of a full or failing disk, or of a folder. Gets the file and what to do; its code stays. */
export function namesFile(path: string, error: unknown, kind: 'file' | 'folder' = 'file'): unknown {
  if (!(error instanceof Error)) return error
  const [trouble, refusal, isFull] = [diskTrouble(error), inWordsOf(error, noEntry), lackOfRoom(error) !== null]
  if (trouble !== null)
    error.message = `${path}: expected a disk ${isFull ? 'with room' : 'that can be written'}, got ${trouble}. ${isFull ? 'make room' : 'repair it'}, then start the same command again`
  else if (refusal !== null) error.message = `${path}: expected a ${kind} that can be written, got ${refusal}`
  return error
}

/** The same for text or bytes in memory. */
export function atomicWrite(path: string, data: string | Uint8Array, sync = true): void {
  replaceFile(path, (fd) => writeAll(fd, data), sync)
}

export function atomicWriteJson(path: string, value: unknown): void {
  atomicWrite(path, `${JSON.stringify(value, null, 2)}\n`)
}

/** One folder at a time: Node's recursive mkdir never ends if an existing parent answers ENOENT, as an automounted /home does. */
export function addFolder(path: string): void {
  const parent = dirname(path)
  if (parent !== path && !existsSync(parent)) addFolder(parent)
  try {
    mkdirSync(path)
  } catch (error) {
    if (!isFolder(path)) throw error
  }
}

/** A folder to write to, with those above it. */
export function makeFolder(path: string): void {
  try {
    addFolder(path)
  } catch (error) {
    throw namesFile(path, error, 'folder')
  }
}

/** A new folder among the temporary files that nobody else can read; the caller removes it. */
export function temporaryFolder(name: string): string {
  const hint = 'make it writable, or set TMPDIR to another folder'
  const info = { where: tmpdir(), field: 'TMPDIR', expected: 'a folder to write temporary files to', hint }
  return expecting(info, () => mkdtempSync(join(tmpdir(), `roundtrip-${name}-`)))
}

/** Flushes a file or a folder to the disk. */
export function syncPath(path: string): void {
  withOpen(path, fsyncSync)
}

/** Linux's number of EDQUOT, which Node does not know by name. */
const quotaNumber = -122

const noRoom: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EFBIG: 'the file size limit is reached',
}

/** Others that may pass: a share that comes back, a disk that is mounted again. */
const failing: Readonly<Record<string, string>> = {
  EIO: 'the disk fails',
  EROFS: 'the disk can only be read now',
  ESTALE: 'the network share does not respond',
  ENODEV: 'the disk does not respond',
  ETIMEDOUT: 'the disk does not answer',
}

function inWordsOf(error: unknown, words: Readonly<Record<string, string>>): string | null {
  const { code, errno, cause } = (error ?? {}) as { code?: unknown; errno?: unknown; cause?: unknown }
  const name = errno === quotaNumber ? 'EDQUOT' : String(code)
  if (Object.hasOwn(words, name)) return `${words[name]} (${name})`
  return cause === undefined ? null : inWordsOf(cause, words)
}

/** A sentence with the error code if an error means that the disk is full; else null. */
export const lackOfRoom = (error: unknown): string | null => inWordsOf(error, noRoom)

/** The same, or that the disk itself misbehaves: what may be over in a minute. */
export const diskTrouble = (error: unknown): string | null => inWordsOf(error, { ...noRoom, ...failing })

/** `1 record`, `2 records`. */
export const counted = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`

/** As one word of a shell. */
export const shellWord = (text: string) => (/^[\w./:,=%-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`)

export function humanBytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let unit = 0
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024
    unit++
  }
  return `${unit === 0 ? n : n.toFixed(n < 10 ? 2 : 1)} ${units[unit]}`
}
