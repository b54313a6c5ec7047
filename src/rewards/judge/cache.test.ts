import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { JudgeCache } from './cache.ts'

const root = mkdtempSync(join(tmpdir(), 'roundtrip-cache-'))
after(() => rmSync(root, { recursive: true, force: true }))
let n = 0
const folder = () => join(root, `${n++}`)

test('what was set is there after reopening, and the last value counts', () => {
  const dir = folder()
  const first = new JudgeCache(dir)
  first.set('a', { x: [1, null] }, 'm')
  first.set('b', 1, 'm')
  first.set('b', 2, 'm')
  first.close()
  const second = new JudgeCache(dir)
  assert.deepEqual(
    [second.get('a'), second.get('b'), second.get('c'), second.size],
    [{ x: [1, null] }, 2, undefined, 2],
  )
  second.close()
  assert.deepEqual(readdirSync(dir), ['judge-0.jsonl'])
})

test('a torn last line is cut off, a spoilt line in the middle is left out, the rest is kept', () => {
  const dir = folder()
  const first = new JudgeCache(dir)
  for (let i = 0; i < 100; i++) first.set(`k${i}`, i, 'm')
  first.close()
  const file = join(dir, 'judge-0.jsonl')
  const lines = readFileSync(file, 'utf8').split('\n')
  lines[50] = '{"k": "k50", "v"'
  writeFileSync(file, lines.join('\n'))
  appendFileSync(file, '{"k":"torn","v":{"cho')
  const second = new JudgeCache(dir)
  assert.deepEqual(
    [second.size, second.corrupt, second.get('torn'), second.get('k50'), second.get('k99')],
    [99, 1, undefined, undefined, 99],
  )
  second.set('next', 'whole', 'm')
  second.close()
  const third = new JudgeCache(dir)
  assert.equal(third.get('next'), 'whole')
  third.close()
})

test('two at once write two files, and a third sees both', () => {
  const dir = folder()
  const a = new JudgeCache(dir)
  const b = new JudgeCache(dir)
  a.set('a', 1, 'm')
  b.set('b', 2, 'm')
  const c = new JudgeCache(dir)
  assert.deepEqual([c.get('a'), c.get('b')], [1, 2])
  for (const cache of [a, b, c]) cache.close()
  assert.equal(readdirSync(dir).filter((f) => f.endsWith('.lock')).length, 0)
})

test('a killed process leaves its lines and its lock, and both are taken over', () => {
  const dir = folder()
  const script = `
    const { JudgeCache } = await import(${JSON.stringify(import.meta.url.replace('.test', ''))})
    const cache = new JudgeCache(${JSON.stringify(dir)})
    for (let i = 0; i < 1000; i++) cache.set('k' + i, i, 'm')
    process.kill(process.pid, 'SIGKILL')`
  const run = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script])
  assert.equal(run.signal, 'SIGKILL', String(run.stderr))
  assert.ok(existsSync(join(dir, 'judge-0.lock')))
  const cache = new JudgeCache(dir)
  assert.equal(cache.size, 1000)
  cache.set('more', 1, 'm')
  cache.close()
  assert.deepEqual(readdirSync(dir), ['judge-0.jsonl'])
})

test('a disk that is full costs what could not be written, and nothing else', () => {
  const dir = folder()
  const script = `
    const { JudgeCache } = await import(${JSON.stringify(import.meta.url.replace('.test', ''))})
    const cache = new JudgeCache(${JSON.stringify(dir)})
    for (let i = 0; i < 3000; i++) cache.set('k' + i, i, 'm'.repeat(100))
    process.stdout.write(JSON.stringify([cache.unwritten, cache.get('k2999')]))
    cache.close()`
  const run = spawnSync('sh', [
    '-c',
    'ulimit -f 256; exec "$0" --import tsx --input-type=module -e "$1"',
    process.execPath,
    script,
  ])
  const [unwritten, last] = JSON.parse(String(run.stdout)) as [number, number]
  assert.ok(unwritten > 0 && last === 2999, String(run.stderr))
  assert.equal(String(run.stderr).match(/kept in memory only/g)?.length, 1)
  const cache = new JudgeCache(dir)
  assert.equal(cache.size, 3000 - unwritten)
  cache.close()
})

test('an answer that is written after half a line is found again', () => {
  const dir = folder()
  const script = `
    const { readFileSync, truncateSync } = await import('node:fs')
    const { JudgeCache } = await import(${JSON.stringify(import.meta.url.replace('.test', ''))})
    const cache = new JudgeCache(${JSON.stringify(dir)})
    for (let i = 0; cache.unwritten === 0; i++) cache.set('k' + i, i, 'm'.repeat(100))
    const file = ${JSON.stringify(join(dir, 'judge-0.jsonl'))}
    truncateSync(file, readFileSync(file).lastIndexOf(10) - 80) // room again, after half a line
    cache.set('next', 'whole', 'm')
    process.stdout.write(JSON.stringify(cache.unwritten))
    cache.close()`
  const words = ['--import', 'tsx', '--input-type=module', '-e', script]
  const run = spawnSync('sh', ['-c', 'ulimit -f 64; exec "$0" "$@"', process.execPath, ...words])
  assert.equal(String(run.stdout), '1', String(run.stderr))
  const cache = new JudgeCache(dir)
  assert.deepEqual([cache.get('next'), cache.corrupt], ['whole', 1])
  cache.close()
})

test("another machine's lock is respected", () => {
  const dir = folder()
  new JudgeCache(dir).close()
  writeFileSync(join(dir, 'judge-0.lock'), `not-${hostname()} 1\n`)
  const cache = new JudgeCache(dir)
  cache.set('a', 1, 'm')
  cache.close()
  assert.ok(existsSync(join(dir, 'judge-1.jsonl')))
})

test('a folder that cannot be created is reported as such', () => {
  const file = join(root, 'file')
  writeFileSync(file, '')
  assert.throws(() => new JudgeCache(join(file, 'cache')), /judge.cacheDir: expected a folder that can be written/)
})
