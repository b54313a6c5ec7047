// `npm test`: everything from a bare clone. Packages, addon, lint, types, rooms, words, then all tests but the long ones, which
// `npm run test:nightly` runs. `npm test -- PATTERN...` runs the files that match; `--list` prints the files of a part and runs none.
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { run as runTests } from 'node:test'
import { pathToFileURL } from 'node:url'
import { useOwnCache } from '../bin/own-cache.mjs'
import { compileAll } from '../tests/support/loader.mjs'
import { compiled, ending } from './lib/compiled.mjs'
import { capture, main, SetupError, seconds } from './lib/progress.mjs'
import { root } from './lib/record.mjs'
import reporter from './lib/test-reporter.mjs'
import { setup } from './setup.mjs'

const minute = 60_000
const parallel = availableParallelism() + 1 // some tests wait for others

// `timeout` is for a whole file and ends one that hangs: a machine ten times slower than ours stays below it
const groups = [
  { name: 'unit', folders: ['src', 'scripts', 'tools', 'tests/fuzz', 'tests/mutants', 'tests/soak'] },
  { name: 'whole', folders: ['tests/invariant', 'tests/parity', 'tests/e2e', 'tests/faults'] },
  { name: 'gpu', folders: ['tests/gpu'], concurrency: 1 },
]
const needSources = [
  ...['tests/e2e/', 'tests/faults/'],
  ...['notice', 'pages', 'rooms', 'words'].map((name) => `tests/invariant/${name}.test`),
]
const timeout = 30 * minute
/** These take minutes of processor time: `npm test` leaves them out, CI runs both parts. */
const nightly = [
  ...['e2e/pages', 'e2e/readme', 'e2e/package', 'e2e/resume', 'fuzz/fuzz'],
  ...['invariant/two-hosts', 'e2e/points', 'cli/adapt', 'e2e/behaviour', 'browser/watch'],
]
/** These take longest and start first, so that no core is idle at the end. */
const longest = [
  ...nightly,
  'invariant/settings-used',
  'invariant/distributed-training',
  'e2e/early-checks',
  'e2e/demo',
]
const placeIn = (list, path) => list.findIndex((part) => path.includes(`/${part}.test.`)) >>> 0
const rank = (path) => placeIn(longest, path)

const threads = { OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1', MKL_NUM_THREADS: '1' }

function testFiles(folder) {
  const base = join(root, folder)
  if (!existsSync(base)) return []
  const runsHere = (path) => !compiled || !needSources.some((part) => relative(root, path).startsWith(part))
  return readdirSync(base, { recursive: true })
    .filter((path) => path.endsWith(`.test${ending}`) || (!compiled && path.endsWith('.test.mjs')))
    .map((path) => join(base, path))
    .filter(runsHere)
    .sort()
}

const run = (program, args, env = process.env) =>
  new Promise((done, fail) => {
    const child = spawn(program, args, { cwd: root, env, stdio: ['ignore', 'inherit', 'inherit'] })
    child.on('error', fail)
    child.on('close', (status) => done(status === 0))
  })

const tool = (name) => join(root, 'node_modules', '.bin', name)

async function phase(name, body) {
  const start = performance.now()
  console.log(`== ${name}`)
  const ok = await body()
  console.log(`== ${name}: ${ok ? 'done' : 'FAILED'}, ${seconds(start)}`)
  return ok
}

async function staticPhases() {
  const phases = [
    ['lint', () => run(tool('biome'), ['check'])],
    ['types', () => run(tool('tsc'), ['--noEmit'])],
    ['types of the page', () => run(tool('tsc'), ['--noEmit', '-p', 'src/dashboard/page'])],
    ['rooms', () => run(process.execPath, ['scripts/check-rooms.mjs'])],
    ['words', () => run(process.execPath, ['scripts/check-words.mjs'])],
    ['pages of the public API', () => run(process.execPath, ['scripts/gen-api.mjs', '--check'])],
  ]
  const passed = await Promise.all(phases.map(([name, body]) => phase(name, body))) // none needs another's result
  return passed.every(Boolean)
}

function readCounts(path, files) {
  if (!existsSync(path)) return { passed: 0, failed: 1, skipped: 0 } // the runner itself broke
  const { files: seen, ...counts } = JSON.parse(readFileSync(path, 'utf8'))
  for (const file of files.filter((name) => !seen.includes(name))) {
    console.log(`  FAIL ${relative(root, file)}  has no tests`)
    counts.failed++
  }
  return counts
}

/** Every process of a test gets the assertions' messages and, from sources, the compiled files. */
async function prepareTests() {
  const preloads = ['scripts/lib/assert-messages.mjs']
  if (!compiled) {
    await compileAll(['src', 'tests', 'scripts', 'tools', 'bench', 'recipes', 'examples'])
    preloads.push('tests/support/preload.mjs')
  }
  const words = preloads.map((path) => `--import=${pathToFileURL(join(root, path))}`)
  Object.assign(process.env, threads, { NODE_OPTIONS: [process.env.NODE_OPTIONS ?? '', ...words].join(' ').trim() })
  return true
}

/** What a test file may have that leaves its process changed, or that others of the process could disturb. */
const changesProcess =
  /support\/data|runFormat|process\.|beforeEach|afterEach|mock|global|spawn|Worker|setTimeout|memory\(|resetPeak|tapeLength/

/** Unit tests that leave their process as it was share a few: most take less time than a start. The others run alone. */
function shareProcesses(files, folder) {
  const alone = files.filter((path) => changesProcess.test(readFileSync(path, 'utf8')))
  const rest = files.filter((path) => !alone.includes(path))
  const shared = Array.from({ length: Math.min(rest.length, 4 * parallel) }, (_, i) => join(folder, `shared-${i}.mjs`))
  for (const [i, path] of shared.entries()) {
    const own = rest.filter((_, k) => k % shared.length === i)
    writeFileSync(path, own.map((file) => `import ${JSON.stringify(pathToFileURL(file).href)}\n`).join(''))
  }
  return [...shared, ...alone].sort((a, b) => rank(a) - rank(b))
}

async function runGroup({ name, files, concurrency = parallel, shared }) {
  const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-test-'))
  process.env.ROUNDTRIP_TEST_COUNTS = join(scratch, 'counts.json')
  let counts
  await phase(`${name} tests, ${files.length} files`, async () => {
    const programs = shared ? shareProcesses(files, scratch) : files
    for await (const text of reporter(runTests({ files: programs, concurrency, timeout }))) process.stdout.write(text)
    counts = readCounts(process.env.ROUNDTRIP_TEST_COUNTS, files)
    return counts.failed === 0
  })
  rmSync(scratch, { recursive: true, force: true })
  return counts
}

/** null where CUDA tests can run, else why not. */
function whyNoCuda(record) {
  if (!existsSync(join(record.torchLib, 'libtorch_cuda.so')))
    return `torch ${record.torchVersion} at ${record.torchPath} is a CPU build`
  const script = `process.stdout.write(String(require(${JSON.stringify(record.addon)}).cudaCount()))`
  const { ok, stdout, stderr } = capture(process.execPath, ['-e', script], { timeout: 2 * minute })
  if (!ok) return `asking the addon for devices failed: ${stderr.trim().split('\n').at(-1)}`
  return Number(stdout) > 0 ? null : 'the engine reports no CUDA device'
}

/** The groups with the files that match a pattern, or else with those of the part. */
function selectFiles({ patterns, long }) {
  const isNightly = (path) => placeIn(nightly, path) < nightly.length
  const matches = (path) => patterns.some((part) => relative(root, path).includes(part))
  return groups.flatMap((group) => {
    const all = group.folders.flatMap(testFiles).sort((a, b) => rank(a) - rank(b))
    const files = all.filter((path) => (patterns.length > 0 ? matches(path) : isNightly(path) === long))
    const shared = group.name === 'unit' && patterns.length === 0 && !long
    return files.length > 0 ? [{ ...group, files, shared }] : []
  })
}

function canRun({ name, files }, record) {
  const why = name === 'gpu' ? whyNoCuda(record) : null
  if (why) console.log(`== ${name} tests: ${files.length} files skipped: ${why}`)
  return !why
}

async function testAll(words) {
  const asked = { patterns: words.filter((word) => !word.startsWith('--')), long: words.includes('--nightly') }
  const selected = selectFiles(asked)
  if (words.includes('--list')) return list(selected)
  const start = performance.now()
  let record
  await phase('set-up', async () => {
    record = await setup()
    return true
  })
  const isPlain = asked.patterns.length === 0 && !asked.long
  if (isPlain && !compiled && !(await staticPhases())) return 1
  const chosen = selected.filter((group) => canRun(group, record))
  if (chosen.length === 0)
    throw new SetupError(`no test file was found whose path contains ${asked.patterns.join(' or ')}`)
  await phase('compile', prepareTests)
  const total = { passed: 0, failed: 0, skipped: 0 }
  for (const group of chosen) {
    const counts = await runGroup(group)
    for (const name of Object.keys(total)) total[name] += counts[name]
  }
  if (isPlain) console.log(`left out: ${nightly.join(', ')}; npm run test:nightly runs them`)
  console.log(`total ${seconds(start)}`)
  console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`)
  return total.failed > 0 ? 1 : 0
}

function list(selected) {
  for (const path of selected.flatMap(({ files }) => files)) console.log(relative(root, path))
  return 0
}

useOwnCache()
main(() => testAll(process.argv.slice(2)))
