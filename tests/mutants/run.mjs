// `npm run mutants [-- --jobs N] [--tests-pass] [WORD...]`: injects one bug after the other into a copy of the sources and runs the test
// that should fail. With words: only mutants whose reason or file contains one of them. Each job works in its own copy.
// First all chosen tests run without a bug, unless --tests-pass says that they pass.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after, before, describe } from 'node:test'
import { parseArgs } from 'node:util'
import { transform } from 'esbuild'
import { root } from '../../scripts/lib/record.mjs'
import { setup } from '../../scripts/setup.mjs'
import { mutants } from './table.mjs'

const limit = 60_000 * Number(process.env.ROUNDTRIP_SLOWER ?? 1) // ms; a test that is still running is too slow
const code = ['src', 'tests', 'scripts', 'tools']
const copied = [...code, 'native', 'assets', 'recipes', 'bin', 'package.json', 'package-lock.json', 'tsconfig.json']
const tsconfigRaw = { compilerOptions: { verbatimModuleSyntax: true } }
const unreadable = /SyntaxError|Transform failed|does not provide an export/ // the mutant is a file that cannot be loaded

const { chosen, jobs, testsPass } = readArguments()
const copies = []

function readArguments() {
  const options = { jobs: { type: 'string', default: '1' }, 'tests-pass': { type: 'boolean', default: false } }
  const { values, positionals } = parseArgs({ allowPositionals: true, options })
  const jobs = Number(values.jobs)
  if (!Number.isInteger(jobs) || jobs < 1) fail(`--jobs: expected a whole number, got ${values.jobs}`)
  const has = ({ reason, file }, word) => `${reason} ${file}`.includes(word)
  const chosen = mutants.filter((m) => positionals.length === 0 || positionals.some((word) => has(m, word)))
  if (chosen.length === 0) fail(`no mutant has a word of: ${positionals.join(', ')}`)
  return { chosen, jobs: Math.min(jobs, chosen.length), testsPass: values['tests-pass'] }
}

function fail(message) {
  console.error(`error: ${message}`)
  process.exit(1)
}

/** `from`: a copy that is compiled already. */
async function makeCopy(from) {
  const copy = mkdtempSync(join(tmpdir(), 'roundtrip-mutants-'))
  copies.push(copy)
  for (const name of copied) cpSync(join(from ?? root, name), join(copy, name), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  const ready = spawnSync(process.execPath, ['scripts/setup.mjs', '--quiet'], { cwd: copy, stdio: 'inherit' })
  assert.equal(ready.status, 0, 'the copy could not be set up')
  if (!from) await Promise.all(code.flatMap((folder) => compileAll(join(copy, folder))))
}

function compileAll(folder) {
  const paths = readdirSync(folder, { recursive: true }).filter((path) => /(?<!\.d)\.ts$/.test(path))
  return paths.map((path) => compile(join(folder, path)))
}

/** The source as JavaScript next to it: a test then starts in a fraction of the time that a loader needs. */
async function compile(path, source = readFileSync(path, 'utf8')) {
  const { code } = await transform(source, { loader: 'ts', format: 'esm', target: 'node20', tsconfigRaw })
  writeFileSync(
    path.replace(/ts$/, 'js'),
    code.replace(/((?:from|import) ?\(?"\.{1,2}\/[^"]+)\.ts"/g, (_, start) => `${start}.js"`),
  )
}

function runTest(copy, file, names, timeout) {
  const messages = join(copy, 'scripts/lib/assert-messages.mjs')
  const pattern = names ? ['--test-name-pattern', names] : []
  const args = ['--import', messages, '--test-reporter=tap', ...pattern, file.replace(/ts$/, 'js')]
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, args, { cwd: copy, env, stdio: ['ignore', 'pipe', 'pipe'], timeout })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        output += text
      })
    child.on('error', fail)
    child.on('close', (status) => {
      const count = (what) => Number(new RegExp(`^# ${what} (\\d+)`, 'm').exec(output)?.[1] ?? 0)
      done({ status, output, passed: count('pass'), failed: count('fail') })
    })
  })
}

function outcomeOf({ status, output, passed, failed }) {
  if (status === null) return 'too slow'
  if (unreadable.test(output)) return 'no bug: the file cannot be loaded'
  if (status === 0) return passed > 0 ? 'SURVIVED' : 'no test'
  return failed > 0 ? 'killed' : 'no test'
}

/** Killed, survived, or what is wrong with the line itself. */
async function tryMutant(copy, { file, text, replacement, test, names }) {
  const path = join(copy, file)
  const source = readFileSync(path, 'utf8')
  if (!source.includes(text)) return 'text not found'
  await compile(
    path,
    source.replace(text, () => replacement),
  )
  try {
    return outcomeOf(await runTest(copy, test, names, limit))
  } finally {
    await compile(path, source)
  }
}

async function inFreeCopy(work) {
  const copy = copies.pop() // as many copies as tests run at a time
  try {
    return await work(copy)
  } finally {
    copies.push(copy)
  }
}

const testFiles = testsPass ? [] : [...new Set(chosen.map((m) => m.test))]

describe('mutants', () => {
  before(async () => {
    await setup({ quiet: true })
    for (let job = 0; job < jobs; job++) await makeCopy(copies[0])
  })
  after(() => {
    for (const copy of copies) rmSync(copy, { recursive: true, force: true })
  })
  describe('without a bug', { concurrency: jobs }, () => {
    for (const file of testFiles)
      test(file, async () => {
        const patterns = chosen.filter((m) => m.test === file).map((m) => m.names)
        const names = patterns.includes(undefined) ? undefined : [...new Set(patterns)].join('|')
        const { status, passed, output } = await inFreeCopy((copy) => runTest(copy, file, names))
        assert.ok(status === 0 && passed > 0, output.slice(-2000))
      })
  })
  describe('with a bug', { concurrency: jobs }, () => {
    for (const mutant of chosen)
      test(`${mutant.reason} (${mutant.file})`, async () => {
        assert.equal(await inFreeCopy((copy) => tryMutant(copy, mutant)), 'killed')
      })
  })
})
