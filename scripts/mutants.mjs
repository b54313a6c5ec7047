// `npm run mutants [-- WORD...]`: plants one fault after the other in a copy of the sources, runs the test that should notice, and says
// killed or survived. With words: only faults whose area, description or file has one of them.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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

function copySources() {
  const copy = mkdtempSync(join(tmpdir(), 'roundtrip-mutants-'))
  for (const name of copied) cpSync(join(root, name), join(copy, name), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  return copy
}

function runTest(copy, file, names) {
  const pattern = names ? ['--test-name-pattern', names] : []
  const messages = join(copy, 'scripts/lib/assert-messages.mjs')
  const args = ['--import', messages, '--import', 'tsx', '--test', '--test-reporter=tap', ...pattern, file]
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  const startedAt = performance.now()
  const { status, stdout } = spawnSync(process.execPath, args, { cwd: copy, env, encoding: 'utf8', timeout: limit })
  const passed = Number(/^# pass (\d+)/m.exec(stdout)?.[1] ?? 0)
  const failed = Number(/^# fail (\d+)/m.exec(stdout)?.[1] ?? 0)
  return { status, passed, failed, seconds: (performance.now() - startedAt) / 1000 }
}

/** Killed, survived, or what is wrong with the entry itself. */
function tryMutant(copy, [, , file, text, replacement, test, names]) {
  const path = join(copy, file)
  const source = readFileSync(path, 'utf8')
  if (!source.includes(text)) return { outcome: 'NOT FOUND', seconds: 0 }
  writeFileSync(
    path,
    source.replace(text, () => replacement),
  )
  try {
    const { status, passed, failed, seconds } = runTest(copy, test, names)
    if (status === null) return { outcome: 'TOO SLOW', seconds }
    if (status === 0) return { outcome: passed > 0 ? 'SURVIVED' : 'NO TEST', seconds }
    return { outcome: failed > 0 ? 'killed' : 'NO TEST', seconds }
  } finally {
    writeFileSync(path, source)
  }
}

/** Before any fault: every test that should notice one passes. */
function checkClean(copy, chosen) {
  const runs = new Map(chosen.map(([, , , , , test, names]) => [`${test} ${names ?? ''}`, [test, names]]))
  for (const [test, names] of runs.values()) {
    const { status, passed } = runTest(copy, test, names)
    if (status !== 0 || passed === 0) throw new SetupError(`without a fault ${test} ${names ?? ''} does not pass`)
  }
}

main(async () => {
  await setup({ quiet: true })
  const words = process.argv.slice(2)
  const chosen = mutants.filter((m) => words.length === 0 || words.some((w) => m.slice(0, 3).join(' ').includes(w)))
  if (chosen.length === 0) throw new SetupError(`no fault has a word of: ${words.join(', ')}`)
  const copy = copySources()
  let killed = 0
  try {
    const ready = spawnSync(process.execPath, ['scripts/setup.mjs', '--quiet'], { cwd: copy, stdio: 'inherit' })
    if (ready.status !== 0) throw new SetupError('the copy could not be set up')
    checkClean(copy, chosen)
    for (const mutant of chosen) {
      const { outcome, seconds } = tryMutant(copy, mutant)
      if (outcome === 'killed') killed++
      console.log(`${outcome.padEnd(9)} ${seconds.toFixed(1).padStart(5)} s  ${mutant[0].padEnd(10)}  ${mutant[1]}`)
    }
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
  console.log(`${killed} of ${chosen.length} faults killed`)
  return killed === chosen.length ? 0 : 1
})
