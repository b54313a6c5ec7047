import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { findCompiler, plan, unitsOf } from './build.mjs'
import { findCuda, findTorch } from './find-torch.mjs'
import { nativeFiles } from './record.mjs'

const sources = (...sizes) => [
  ...sizes.map((size, i) => ({ name: `${'abcdefgh'[i]}.cc`, size })),
  { name: 'kernels.cc', size: 900 },
]
const namesOf = (units) => units.map(({ names }) => names)

test('sources are spread over as many units as cores, four at most, each source in one', () => {
  const eight = sources(10, 20, 30, 40, 50, 60, 70, 80)
  for (const [cores, expected] of [
    [1, 1],
    [2, 2],
    [3, 3],
    [64, 4],
  ]) {
    const units = unitsOf(eight, cores)
    assert.equal(units.length, expected + 1, `${cores} cores`)
    assert.deepEqual(namesOf(units).flat().sort(), eight.map(({ name }) => name).sort())
  }
})

test('units are of nearly equal size, and the same whatever order the sources come in', () => {
  const some = sources(100, 90, 50, 40, 30, 30)
  const [first, second] = unitsOf(some, 2)
  const size = ({ names }) => some.filter(({ name }) => names.includes(name)).reduce((sum, one) => sum + one.size, 0)
  assert.deepEqual([size(first), size(second)].sort(), [170, 170])
  assert.deepEqual(unitsOf([...some].reverse(), 2), unitsOf(some, 2))
})

test('the loops over floats are compiled alone, with their own flags', () => {
  const units = unitsOf(sources(10, 20), 2)
  assert.deepEqual(units.at(-1), { names: ['kernels.cc'], flags: ['-O3', '-fno-math-errno', '-fno-trapping-math'] })
  assert.deepEqual(
    units.slice(0, -1).map(({ flags }) => flags),
    [[], []],
  )
  assert.deepEqual(namesOf(unitsOf(sources(), 2)), [['kernels.cc']])
})

// what compiles with every source in one unit compiles in any other division, as long as each source names what it includes
test('no two sources use one name for two things: all of them compile as one unit', (t) => {
  const torch = findTorch().candidates.find((candidate) => !candidate.missing)
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-units-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const all = nativeFiles().filter((path) => path.endsWith('.cc') && !path.includes('/'))
  writeFileSync(join(folder, 'all.cc'), all.map((name) => `#include "${name}"\n`).join(''))
  const build = plan(torch, findCuda(torch), findCompiler())
  const [program, ...words] = build.compiler.words
  const args = [...words, ...build.flags, ...build.include, '-fsyntax-only', join(folder, 'all.cc')]
  const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' })
  assert.equal(
    status,
    0,
    stderr
      .split('\n')
      .filter((line) => line.includes('error'))
      .join('\n'),
  )
})
