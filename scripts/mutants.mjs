// `npm run mutants [-- --jobs N] [--tests-pass] [WORD...]`: plants one fault after the other in a copy of the sources, runs the test that should notice,
// and says killed or survived. With words: only faults whose area, description or file has one of them. Jobs work in a copy each.
// Before the first fault all tests are run without any, unless --tests-pass says that they were.
import { spawn, spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { transform } from 'esbuild'
import { mutants } from './lib/mutants.mjs'
import { main, SetupError } from './lib/progress.mjs'
import { root } from './lib/record.mjs'
import { setup } from './setup.mjs'

const limit = 60_000 * Number(process.env.ROUNDTRIP_SLOWER ?? 1) // ms; a test that is still running is not quick enough
const copied = [
  'src',
  'tests',
  'scripts',
  'native',
  'assets',
  'recipes',
  'bin',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
]
const tsconfigRaw = { compilerOptions: { verbatimModuleSyntax: true } }
const unreadable = /SyntaxError|Transform failed|does not provide an export/ // the fault made a file nobody can load

/** `from`: a copy that is compiled already. */
async function makeCopy(from) {
  const copy = mkdtempSync(join(tmpdir(), 'roundtrip-mutants-'))
  for (const name of copied) cpSync(join(from ?? root, name), join(copy, name), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  const ready = spawnSync(process.execPath, ['scripts/setup.mjs', '--quiet'], { cwd: copy, stdio: 'inherit' })
  if (ready.status !== 0) throw new SetupError('the copy could not be set up')
  if (!from) await Promise.all(['src', 'tests', 'scripts'].flatMap((folder) => compileAll(join(copy, folder))))
  return copy
}

function compileAll(folder) {
  const paths = readdirSync(folder, { recursive: true }).filter((path) => /(?<!\.d)\.ts$/.test(path))
  return paths.map((path) => compile(join(folder, path)))
}

/** The source as JavaScript beside it: a test then starts in a fraction of the time that a loader needs. */
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
  const startedAt = performance.now()
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
      const seconds = (performance.now() - startedAt) / 1000
      done({ status, output, passed: count('pass'), failed: count('fail'), seconds })
    })
  })
}

function outcomeOf({ status, output, passed, failed }) {
  if (status === null) return 'TOO SLOW'
  if (unreadable.test(output)) return 'NO FAULT'
  if (status === 0) return passed > 0 ? 'SURVIVED' : 'NO TEST'
  return failed > 0 ? 'killed' : 'NO TEST'
}

/** Killed, survived, or what is wrong with the entry itself. */
async function tryMutant(copy, [, , file, text, replacement, test, names]) {
  const path = join(copy, file)
  const source = readFileSync(path, 'utf8')
  if (!source.includes(text)) return { outcome: 'NOT FOUND', seconds: 0 }
  await compile(
    path,
    source.replace(text, () => replacement),
  )
  try {
    const ran = await runTest(copy, test, names, limit)
    return { outcome: outcomeOf(ran), seconds: ran.seconds }
  } finally {
    await compile(path, source)
  }
}

/** Every item goes to the next copy that is free. */
async function share(copies, items, work) {
  const queue = [...items]
  await Promise.all(
    copies.map(async (copy) => {
      for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(copy, item)
    }),
  )
}

/** Before any fault: every test that should notice one passes; one run per file. */
async function checkClean(copies, chosen) {
  const files = new Set(chosen.map((m) => m[5]))
  await share(copies, files, async (copy, test) => {
    const patterns = chosen.filter((m) => m[5] === test).map((m) => m[6])
    const all = patterns.includes(undefined) ? undefined : [...new Set(patterns)].join('|')
    const { status, passed, output } = await runTest(copy, test, all)
    if (status !== 0 || passed === 0)
      throw new SetupError(`without a fault ${test} ${all ?? ''} does not pass:\n${output.slice(-2000)}`)
  })
}

function readArguments() {
  const options = { jobs: { type: 'string' }, 'tests-pass': { type: 'boolean' } }
  const { values, positionals } = parseArgs({ allowPositionals: true, options })
  const jobs = Number(values.jobs ?? 1)
  if (!Number.isInteger(jobs) || jobs < 1) throw new SetupError(`--jobs: expected a whole number, got ${values.jobs}`)
  const has = (m, word) => m.slice(0, 3).join(' ').includes(word)
  const chosen = mutants.filter((m) => positionals.length === 0 || positionals.some((word) => has(m, word)))
  if (chosen.length === 0) throw new SetupError(`no fault has a word of: ${positionals.join(', ')}`)
  return { chosen, jobs: Math.min(jobs, chosen.length), testsPass: values['tests-pass'] ?? false }
}

main(async () => {
  const { chosen, jobs, testsPass } = readArguments()
  await setup({ quiet: true })
  const copies = []
  let killed = 0
  try {
    for (let job = 0; job < jobs; job++) copies.push(await makeCopy(copies[0]))
    if (!testsPass) await checkClean(copies, chosen)
    await share(copies, chosen, async (copy, mutant) => {
      const { outcome, seconds } = await tryMutant(copy, mutant)
      if (outcome === 'killed') killed++
      console.log(`${outcome.padEnd(9)} ${seconds.toFixed(1).padStart(5)} s  ${mutant[0].padEnd(10)}  ${mutant[1]}`)
    })
  } finally {
    for (const copy of copies) rmSync(copy, { recursive: true, force: true })
  }
  console.log(`${killed} of ${chosen.length} faults killed`)
  return killed === chosen.length ? 0 : 1
})
