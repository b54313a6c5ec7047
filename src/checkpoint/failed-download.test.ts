import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { lstatSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { atomicWrite, hashFile, lackOfRoom, Mismatch } from '../core/index.ts'
import { readRange, withFile } from './file-ranges.ts'
import { openWeights } from './weights.ts'

const root = mkdtempSync(join(tmpdir(), 'roundtrip-failed-download-'))
after(() => rmSync(root, { recursive: true, force: true }))

const failedDownloads: [string, string, RegExp][] = [
  [
    'a Git LFS pointer',
    'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n',
    /got a Git LFS pointer file\. run `git lfs pull`/,
  ],
  ['a page of a web server', '<!DOCTYPE html>\n<html><head><title>Sign in</title>', /got a web page \(HTML\)/],
  ['a page of a web server', '\n  <html lang="en">', /got a web page \(HTML\)/],
  ['nothing', '', /got a file of 0 bytes/],
]

for (const name of [
  'model.safetensors',
  'pytorch_model.bin',
  'weights.pt',
  'weights.pth',
  'model.safetensors.index.json',
]) {
  test(`${name}: what a download leaves in its place is named for what it is`, () => {
    for (const [what, text, message] of failedDownloads) {
      const path = join(root, name)
      writeFileSync(path, text)
      assert.throws(
        () => openWeights(path),
        (error) => error instanceof Mismatch && error.message.startsWith(path) && message.test(error.message),
        what,
      )
    }
  })
}

test('a read that the system refuses names the file and the offset', { skip: process.platform !== 'linux' }, () => {
  // the memory of a process is a file whose first pages cannot be read
  const where = '/proc/self/mem'
  assert.throws(
    () => withFile(where, (fd) => readRange(fd, where, 4096, 64)),
    (error) =>
      error instanceof Mismatch &&
      /\/proc\/self\/mem: bytes at 4096: expected 64 readable bytes, got EIO/.test(error.message),
  )
  assert.throws(() => hashFile(where), /\/proc\/self\/mem: bytes at 0: .*EIO/)
})

test('a pipe is refused instead of waited for', { timeout: 300_000 }, () => {
  const path = join(root, 'pipe.safetensors')
  execFileSync('mkfifo', [path])
  assert.throws(() => openWeights(path), /expected a regular file, got a pipe/)
})

test('a device is not replaced by a page that is written under its name', () => {
  const path = join(root, 'device')
  symlinkSync('/dev/null', path)
  assert.throws(() => atomicWrite(path, 'a page'), /device: expected a regular file, got a device/)
  assert.ok(lstatSync(path).isSymbolicLink(), 'the link is as it was')
})

test('a full disk, a used-up quota and a file size limit are told apart; Node knows the quota by number only', () => {
  const error = (code: string, errno: number) => Object.assign(new Error(code), { code, errno })
  assert.equal(lackOfRoom(error('ENOSPC', -28)), 'the disk is full (ENOSPC)')
  assert.equal(lackOfRoom(error('Unknown system error -122', -122)), 'the disk quota is used up (EDQUOT)')
  assert.equal(lackOfRoom(error('EFBIG', -27)), 'the file size limit is reached (EFBIG)')
  assert.equal(lackOfRoom(error('EACCES', -13)), null)
  assert.equal(lackOfRoom('ENOSPC'), null)
})
