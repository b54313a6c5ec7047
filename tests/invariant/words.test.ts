// The pages use plain words: the check names a word in the wrong sense, and passes a use that is right.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const program = join(root, 'scripts/check-words.mjs')

/** Exit code and output of the check for a tree of one page. */
function check(path: string, text: string): { code: number | null; out: string } {
  const tree = mkdtempSync(join(tmpdir(), 'words-'))
  try {
    mkdirSync(dirname(join(tree, path)), { recursive: true })
    writeFileSync(join(tree, path), text)
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, tree], { encoding: 'utf8' })
    return { code: status, out: stdout + stderr }
  } finally {
    rmSync(tree, { recursive: true })
  }
}

const passes = { code: 0, out: 'words: plain\n' }
const fails = (out: string) => ({ code: 1, out })

test('a word in the wrong sense fails with its line and the plain word', () => {
  const page = '# Data\n\nThe next run goes on from there.\n'
  assert.deepEqual(check('docs/data.md', page), fails('docs/data.md:3: "goes on": write continues, resumes\n'))
})

test('two words are found across a line break, and every word of a line is reported', () => {
  const page = 'A bad record is refused in\nwords, and the figures are told.\n'
  const lines = [
    'README.md:1: "in words": write with a clear message',
    'README.md:2: "told": write reported, logged, shown, printed',
    'README.md:2: "figures": write metrics',
  ]
  assert.deepEqual(check('README.md', page), fails(`${lines.join('\n')}\n`))
})

test('quoted output, code and generated pages pass', () => {
  assert.deepEqual(check('docs/data.md', '```text\nrank 1 is gone\n```\nSee `figures` and [a](figures.md).\n'), passes)
  assert.deepEqual(check('docs/reference.md', 'The run goes on.\n'), passes)
})

test('in code, comments, sentences and identifiers are checked, and nothing else', () => {
  const path = 'src/core/x.ts'
  const comment = '/** The run goes on. */\nexport const x = 1\n'
  assert.deepEqual(check(path, comment), fails(`${path}:1: "goes on": write continues, resumes\n`))
  const message = "throw new Error('the judge is told')\n"
  assert.deepEqual(check(path, message), fails(`${path}:1: "told": write reported, logged, shown, printed\n`))
  assert.deepEqual(check(path, 'const mostRows = 3\n'), fails(`${path}:1: "mostRows": write max...\n`))
  assert.deepEqual(check(path, "const key = 'told'\n// see `goes on`\nconst behind = key\n"), passes)
})

test('a line of the list of right uses passes in its own file alone', () => {
  const line = '| speaks of a door? | not mentioned | 1 |\n'
  assert.deepEqual(check('docs/rewards.md', line), passes)
  assert.deepEqual(check('docs/data.md', line), fails('docs/data.md:1: "door": write entry point, folder\n'))
})

test('the pages of the repository pass, and every line of the list of right uses is in its file', async () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [program], { encoding: 'utf8' })
  assert.deepEqual({ code: status, out: stdout + stderr }, passes)
  const list = new URL('../../scripts/lib/allowed-words.mjs', import.meta.url).href
  const { allowed } = (await import(list)) as { allowed: { file: string; text: string; reason: string }[] }
  assert.ok(allowed.length < 60)
  for (const { file, text } of allowed)
    assert.ok(readFileSync(join(root, file), 'utf8').includes(text), `${file}: ${text}`)
})
