import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { describeEnvironment, gitCommit } from './environment.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

test('the environment names command, product, torch and device, without keys', () => {
  const command = [
    'train',
    '--judge.url',
    'https://user:hu@sh:hush@host/v1?api_key=hush&x=1',
    '--token=hush',
    '--seed',
    '3',
  ]
  const found = describeEnvironment({ command, torch: '2.11.0', device: 'cuda' })
  const expected = ['train', '--judge.url', 'https://***@host/v1?api_key=***&x=1', '--token=***', '--seed', '3']
  assert.deepEqual(found.command, expected)
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
  assert.deepEqual([found.product, found.torch, found.device, found.node], [version, '2.11.0', 'cuda', process.version])
})

test('the commit is the one git names, in a checkout, a worktree, with packed refs and detached', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'commit-'))
  const git = (where: string, ...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', '-C', where, ...args], {
      encoding: 'utf8',
    }).trim()
  try {
    git(dir, 'init', '-q')
  } catch {
    return t.skip('no git here')
  }
  assert.equal(gitCommit(dir), undefined)
  git(dir, 'commit', '-q', '--allow-empty', '-m', 'one')
  const first = git(dir, 'rev-parse', 'HEAD')
  assert.equal(gitCommit(dir), first)
  git(dir, 'pack-refs', '--all')
  assert.equal(gitCommit(dir), first)
  git(dir, 'worktree', 'add', '-q', join(dir, 'other'), '-b', 'branch')
  git(join(dir, 'other'), 'commit', '-q', '--allow-empty', '-m', 'two')
  assert.equal(gitCommit(join(dir, 'other')), git(join(dir, 'other'), 'rev-parse', 'HEAD'))
  git(dir, 'checkout', '-q', '--detach', 'branch')
  assert.equal(gitCommit(dir), git(dir, 'rev-parse', 'HEAD'))
  writeFileSync(join(dir, '.git', 'HEAD'), 'nonsense')
  assert.equal(gitCommit(dir), undefined)
})
