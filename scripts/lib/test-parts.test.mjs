// `npm test` and `npm run test:nightly` together run every test file once.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

/** Test files that a script of package.json would run. */
function listed(name) {
  const { status, stdout, stderr } = spawnSync('bash', ['-c', `${scripts[name]} --list`], { cwd: root })
  assert.equal(status, 0, String(stderr))
  return String(stdout).trim().split('\n')
}

const notOurs = /^(node_modules|dist|runs|\..*)$/

function allTests(folder = '') {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return notOurs.test(entry.name) ? [] : allTests(path)
    return /\.test\.(ts|mjs)$/.test(path) ? [path] : []
  })
}

test('every test file is in exactly one of the two parts', () => {
  const both = [...listed('test'), ...listed('test:nightly')]
  assert.deepEqual(both.sort(), allTests().sort())
})

test('CI runs both parts', () => {
  const commands = readFileSync(join(root, '.ci/run'), 'utf8').split('\n')
  const [quick, nightly] = ['npm test', 'npm run test:nightly'].map((command) => commands.indexOf(command))
  assert.ok(quick >= 0 && nightly > quick)
})
