import { constants } from 'node:buffer'
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { expecting, Mismatch, refuseFailedDownload, regularFile, unreadable } from '../core/index.ts'

/** readSync takes at most 2^31 - 1 bytes a call. */
const piece = 1 << 30

/** Opens a regular file for reading, calls `use` with its descriptor and size, closes it. */
export function withFile<T>(path: string, use: (fd: number, size: number) => T): T {
  const fd = openFile(path)
  try {
    const stat = fstatSync(fd)
    if (!stat.isFile()) throw new Mismatch({ where: path, expected: 'a regular file', got: 'something else' })
    return use(fd, stat.size)
  } finally {
    closeSync(fd)
  }
}

function openFile(path: string): number {
  regularFile(path) // opening a pipe would wait for a writer
  return expecting({ where: path, expected: 'a readable file' }, () => openSync(path, 'r'))
}

/** The bytes [offset, offset + length) of an open file. */
export function readRange(fd: number, where: string, offset: number, length: number): Uint8Array {
  if (length > constants.MAX_LENGTH) {
    const expected = `at most ${constants.MAX_LENGTH} bytes in one read`
    throw new Mismatch({ where, expected, got: length, hint: 'map the file instead of reading it' })
  }
  const out = Buffer.allocUnsafeSlow(length)
  for (let at = 0; at < length; ) {
    const n = readSome(fd, where, out, at, offset)
    const expected = `${length} bytes at ${offset}`
    if (n === 0) throw new Mismatch({ where, expected, got: `${at} bytes`, hint: 'the file is cut' })
    at += n
  }
  return new Uint8Array(out.buffer, out.byteOffset, length)
}

function readSome(fd: number, where: string, out: Buffer, at: number, offset: number): number {
  try {
    return readSync(fd, out, at, Math.min(piece, out.length - at), offset + at)
  } catch (error) {
    throw unreadable(where, offset + at, out.length - at, error)
  }
}

/** The same of a file that is opened for it. */
export function readFileRange(path: string, offset: number, length: number): Uint8Array {
  return withFile(path, (fd) => readRange(fd, path, offset, length))
}

/** Refuses what a download leaves in place of a file, by its first bytes. */
export function refuseFailedDownloadAt(fd: number, where: string, size: number, expected: string): void {
  refuseFailedDownload(readRange(fd, where, 0, Math.min(512, size)), where, expected)
}
