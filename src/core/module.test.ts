import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

test("a user's .ts module loads in a folder with no package.json, and in one as `npm init` writes it", (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'user é module-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const text = "export const reward = { name: 'one', range: [0, 1], doc: 'one', score: (): number => 1 }\n"
  mkdirSync(join(folder, 'below'))
  for (const file of ['mine.ts', 'below/mine.ts']) writeFileSync(join(folder, file), text)
  writeFileSync(join(folder, 'below/package.json'), '{ "name": "mine", "version": "1.0.0", "type": "commonjs" }')
  const root = join(import.meta.dirname, '../..')
  for (const cwd of [folder, join(folder, 'below')]) {
    const given = ['--model', join(root, 'assets/miniature'), '--data', 'scenes:8', '--rl.maxCompletionLength', '4']
    const words = ['bin/roundtrip.mjs', 'train', '--reward', './mine.ts', '--dry-run', '--rl.numGenerations', '2']
    const done = spawnSync(process.execPath, [join(root, words[0]!), ...words.slice(1), ...given], {
      cwd,
      encoding: 'utf8',
      env: { ...process.env, NODE_OPTIONS: '' }, // as a user starts it: no hooks of the test run
    })
    assert.equal(done.status, 0, done.stderr)
    assert.match(done.stdout, /^verdict: /m)
  }
})
