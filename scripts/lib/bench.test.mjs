import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { ending, loader } from './compiled.mjs'
import { root } from './record.mjs'

const bench = (...words) => {
  const args = [...loader, 'scripts/lib/run-bench.mjs', ...words]
  return spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' }).stderr
}

test('a bench takes --device if it measures on several, and rejects other words', () => {
  assert.match(bench('data', 'false', 'cuda'), /Error: bench data takes no --device/)
  assert.match(bench('peers', 'false', 'tpu'), /Error: --device: expected cpu or cuda, got tpu/)
  assert.match(bench('bench', 'false'), new RegExp(`exports no run|bench\\.bench\\${ending}`))
})
