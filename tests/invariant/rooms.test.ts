// The rules of the house: each of them refuses the change that breaks it.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('../../scripts/check-rooms.mjs', import.meta.url))

/** What the check says about a house of one file. */
function said(path: string, text: string): string {
  const house = mkdtempSync(join(tmpdir(), 'rooms-'))
  try {
    mkdirSync(join(house, 'src'))
    mkdirSync(dirname(join(house, path)), { recursive: true })
    writeFileSync(join(house, path), text)
    const { stdout, stderr } = spawnSync(process.execPath, [program, house], { encoding: 'utf8' })
    return stdout + stderr
  } finally {
    rmSync(house, { recursive: true })
  }
}

test('a house that keeps the rules passes', () => {
  assert.equal(said('src/rl/step.ts', "import { stack } from '../tensor/index.ts'\n"), 'rooms: imports point down\n')
})

for (const room of ['models', 'data', 'checkpoint', 'tracking'])
  test(`rl may not import ${room}`, () => {
    const problem = said('src/rl/step.ts', `import { x } from '../${room}/index.ts'\n`)
    assert.equal(problem, `src/rl/step.ts imports ../${room}/index.ts: rl may not use ${room}\n`)
  })

test('imports point down and go through the door of a room', () => {
  assert.match(said('src/tensor/ops.ts', "import { x } from '../run/index.ts'\n"), /tensor may not use run/)
  assert.match(said('src/run/train.ts', "import { x } from '../rl/step.ts'\n"), /use the room's door, index\.ts/)
})

test('no room above the models names a family in code; words for people may', () => {
  assert.match(said('src/run/train.ts', 'new Sa2VAModel()\n'), /src\/run\/train\.ts names Sa2VAModel/)
  assert.match(said('src/cli/eval.ts', 'openQwenVL(dir)\n'), /src\/cli\/eval\.ts names openQwenVL/)
  assert.match(said('src/run/train.ts', "say('Sa2VA') // as Sa2VA\n"), /^rooms: imports point down/)
})

test('the two loops are named by their task alone', () => {
  assert.match(said('src/run/train.ts', 'config.loop1.weight\n'), /src\/run\/train\.ts names loop1/)
  assert.match(said('src/dashboard/page/app.tsx', "const first = 'loop2'\n"), /app\.tsx names loop2/)
  assert.match(said('src/tasks/cycle/config.ts', 'config.loop1.weight\n'), /^rooms: imports point down/)
})

test('a file longer than 350 lines is refused, in C++ too', () => {
  assert.match(said('src/run/train.ts', '\n'.repeat(351)), /src\/run\/train\.ts: 351 lines, at most 350/)
  assert.match(said('native/addon.cc', '\n'.repeat(351)), /native\/addon\.cc: 351 lines, at most 350/)
  assert.match(said('src/run/train.ts', '\n'.repeat(350)), /^rooms: imports point down/)
})
