// The rules of the rooms: each of them refuses the change that breaks it.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('../../scripts/check-rooms.mjs', import.meta.url))

/** The output of the check for a tree of one file. */
const said = (path: string, text: string): string => saidOf({ [path]: text })

/** The output of the check for a tree of these files. */
function saidOf(files: Readonly<Record<string, string>>): string {
  const house = mkdtempSync(join(tmpdir(), 'rooms-'))
  try {
    mkdirSync(join(house, 'src'))
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(house, path)), { recursive: true })
      writeFileSync(join(house, path), text)
    }
    const { stdout, stderr } = spawnSync(process.execPath, [program, house], { encoding: 'utf8' })
    return stdout + stderr
  } finally {
    rmSync(house, { recursive: true })
  }
}

test('a tree that keeps the rules passes', () => {
  assert.equal(said('src/rl/step.ts', "import { stack } from '../tensor/index.ts'\n"), 'rooms: imports point down\n')
})

for (const room of ['models', 'data', 'checkpoint', 'tracking'])
  test(`rl may not import ${room}`, () => {
    const problem = said('src/rl/step.ts', `import { x } from '../${room}/index.ts'\n`)
    assert.equal(problem, `src/rl/step.ts imports ../${room}/index.ts: rl may not use ${room}\n`)
  })

test('imports point down and go through the index.ts of a room', () => {
  assert.match(said('src/tensor/ops.ts', "import { x } from '../run/index.ts'\n"), /tensor may not use run/)
  assert.match(said('src/run/train.ts', "import { x } from '../rl/step.ts'\n"), /import the room's index\.ts/)
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

test('files that import each other are refused, also through a third file and by a re-export', () => {
  const cycle = saidOf({
    'src/rl/a.ts': "import { b } from './deep/b.ts'\n",
    'src/rl/deep/b.ts': "export { c } from '../c.ts'\n",
    'src/rl/c.ts': "import {\n  a,\n} from './a.ts'\n",
  })
  assert.equal(cycle, 'import cycle: src/rl/a.ts -> src/rl/deep/b.ts -> src/rl/c.ts -> src/rl/a.ts\n')
})

test('a cycle of types is allowed inside one folder only; a lazy import is not part of a cycle', () => {
  const back = (line: string) => ({ 'src/rl/a.ts': "import { b } from './b.ts'\n", 'src/rl/b.ts': line })
  assert.match(saidOf(back("import type { A } from './a.ts'\n")), /^rooms: imports point down/)
  assert.match(saidOf(back("const late = () => import('./a.ts')\n")), /^rooms: imports point down/)
  assert.match(saidOf(back("import { type A, a } from './a.ts'\n")), /^import cycle: src\/rl\/a\.ts/)
  const folders = {
    'src/rl/a.ts': "import { b } from './in/b.ts'\n",
    'src/rl/in/b.ts': "import type { A } from '../a.ts'\n",
  }
  assert.match(saidOf(folders), /^import cycle: src\/rl\/a\.ts -> src\/rl\/in\/b\.ts/)
})

test('a room of more than 7,000 lines without tests is refused, models above 5,600', () => {
  const room = (name: string, lines: number, kind = '') =>
    Object.fromEntries(
      Array.from({ length: Math.ceil(lines / 350) }, (_, i) => [
        `src/${name}/f${i}${kind}.ts`,
        '\n'.repeat(Math.min(350, lines - i * 350)),
      ]),
    )
  assert.equal(saidOf(room('run', 7001)), 'src/run: 7001 lines without tests, at most 7000\n')
  assert.match(saidOf({ ...room('run', 7000), ...room('run', 2000, '.test') }), /^rooms: imports point down/)
  assert.equal(saidOf(room('models', 5601)), 'src/models: 5601 lines without tests, at most 5600\n')
})

test('the tree of the architecture page lists exactly the rooms with their rows', () => {
  const page = readFileSync(new URL('../../docs/architecture.md', import.meta.url), 'utf8')
  const rooms = [...page.matchAll(/(?:^| {2})([a-z]+)\/ +\d+ {2}/gm)].map(([, room]) => [`src/${room}/index.ts`, ''])
  const house = (text: string) => saidOf({ ...Object.fromEntries(rooms), 'docs/architecture.md': text })
  assert.match(house(page), /^rooms: imports point down/)
  assert.match(house(page.replace(/ {2}llm\/ .*\n/, '')), /architecture\.md: expected llm\/ with row 5, got nothing/)
  assert.match(house(page.replace(/mask\/ 3/, 'mask/ 4')), /architecture\.md: expected mask\/ with row 3, got 4/)
  assert.match(house(page.replace(/( {2}llm\/ .*\n)/, '$1  attic/  5  old\n')), /lists attic\/, which is not a room/)
})
