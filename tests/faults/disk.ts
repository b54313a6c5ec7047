// Disks that are full, read-only, failing or gone.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs, { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { newestValid, openWeights } from '../../src/checkpoint/index.ts'
import { ownProgram } from '../support/own-program.ts'
import { hostOf, runBytes } from '../support/runs.ts'
import { type Bench, refusal } from './bench.ts'
import { NotHere, quick, type Row, row } from './row.ts'

const work = ownProgram('../e2e/resume-work.ts', import.meta.url)

function limited(bench: Bench, output: string, blocks: string, steps: string) {
  const script = `ulimit -f ${blocks}; exec "$0" "$@"`
  const args = ['-c', script, process.execPath, ...work, bench.toy, output, '1', steps]
  return spawnSync('sh', args, { encoding: 'utf8', env: { ...process.env, OMP_NUM_THREADS: '1' } })
}

async function full(bench: Bench): Promise<string> {
  const output = bench.at('full')
  assert.equal(limited(bench, output, 'unlimited', '1').status, 0)
  const size = statSync(join(output, 'checkpoint_step_1', 'optimizer.safetensors')).size
  const failed = limited(bench, output, String(Math.floor(size / 512) - 1), '3')
  assert.match(failed.stderr, /checkpoint of step 2: expected room on the disk.*earlier checkpoints are intact/)
  assert.equal(newestValid(output).checkpoint?.step, 1)
  assert.deepEqual(
    readdirSync(output).filter((name) => name.startsWith('.tmp-')),
    [],
  )
  assert.equal(limited(bench, output, 'unlimited', '3').status, 0)
  return 'reported with step and size, the earlier checkpoint whole, no leftovers; with free space it resumes'
}

/** A file system of two megabytes in memory; only root may make one. */
async function fullTmpfs(bench: Bench): Promise<string> {
  const mount = bench.at('tmpfs')
  mkdirSync(mount)
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1500k', 'tmpfs', mount]).status !== 0)
    throw new NotHere('mounting a tmpfs needs root')
  try {
    const words = await refusal(() => bench.train('tmpfs/run', { saveTimeout: 0 }), /disk is full \(ENOSPC\)/)
    const { checkpoint, invalid } = newestValid(join(mount, 'run'))
    assert.deepEqual(invalid, [])
    return `${words.slice(0, 120)}; newest whole checkpoint of step ${checkpoint?.step ?? 'none'}`
  } finally {
    spawnSync('umount', [mount])
  }
}

/** Checkpoints and lines of the log fail from step 2 on until the run says so. */
async function shortTrouble(bench: Bench): Promise<string> {
  const seen: string[] = []
  for (const code of ['ENOSPC', 'EIO']) {
    let fails = false
    const fail = () => {
      if (fails) throw Object.assign(new Error(`${code}: the disk says no`), { code })
    }
    const restore = withFailing(fail)
    const warnings: string[] = []
    const host = hostOf(undefined, {
      progress: ({ kind, step, text }) => {
        if (kind === 'step' && step === 2) fails = true
        if (kind !== 'warning' || !text!.includes('checkpoint of step 2')) return
        warnings.push(text!)
        fails = false
      },
    })
    try {
      await bench.train(`short-${code}`, {}, host)
    } finally {
      restore()
    }
    assert.equal(warnings.length, 1, `${code}: ${warnings.join('; ')}`)
    const { checkpoint, invalid } = newestValid(bench.at(`short-${code}`))
    assert.deepEqual([checkpoint?.step, invalid], [4, []])
    const [own, calm] = [bench.at(`short-${code}`), await bench.calm()].map(tensorsOf)
    assert.deepEqual(own, calm, `${code}: the weights of an undisturbed run`)
    const steps = bench.events(`short-${code}`).filter((e) => e.t === 'step')
    assert.deepEqual(
      steps.map((e) => e.step),
      [1, 2, 3, 4],
    )
    seen.push(/\(E\w+\)/.exec(warnings[0]!)![0])
  }
  return `${seen.join(' and ')} until the disk works: one warning each, all checkpoints and lines there, the weights of an undisturbed run`
}

/** New folders and writes to logs do as `fail` says; gives what takes it back. */
function withFailing(fail: () => void): () => void {
  const [mkdir, write] = [fs.mkdirSync, fs.writeSync]
  fs.mkdirSync = ((path: string, ...rest: unknown[]) => {
    if (path.includes('.tmp-checkpoint')) fail()
    return (mkdir as (...all: unknown[]) => unknown)(path, ...rest)
  }) as typeof fs.mkdirSync
  fs.writeSync = ((fd: number, ...rest: unknown[]) => {
    if (logNumbers().has(fd)) fail()
    return (write as (...all: unknown[]) => number)(fd, ...rest)
  }) as typeof fs.writeSync
  syncBuiltinESMExports()
  return () => {
    Object.assign(fs, { mkdirSync: mkdir, writeSync: write })
    syncBuiltinESMExports()
  }
}

/** Warnings are in the log, and the position in it is in the state; weights and moments are as without them. */
const tensorsOf = (run: string) => [...runBytes(run)].filter(([name]) => name.endsWith('.safetensors'))

/** Every line for the log fails for two steps as on a full disk. */
async function fullLogs(bench: Bench): Promise<string> {
  const real = fs.writeSync
  let failing = false
  let refused = 0
  fs.writeSync = ((fd: number, ...rest: unknown[]) => {
    if (failing && logNumbers().has(fd)) {
      refused++
      throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', errno: -28 })
    }
    return (real as (...all: unknown[]) => number)(fd, ...rest)
  }) as typeof fs.writeSync
  syncBuiltinESMExports()
  try {
    const host = hostOf(undefined, {
      progress: (e) => {
        if (e.kind === 'step') failing = e.step === 1 || e.step === 2
      },
    })
    assert.equal((await bench.train('logs', { saveSteps: 0 }, host)).step, 4)
  } finally {
    fs.writeSync = real
    syncBuiltinESMExports()
  }
  assert.ok(refused > 0, 'no write was refused')
  const steps = bench
    .events('logs')
    .filter((e) => e.t === 'step')
    .map((e) => e.step)
  assert.deepEqual(steps, [1, 2, 3, 4])
  const late = bench.events('logs').filter((e) => e.t === 'warning' && e['kind'] === 'log-late').length
  return `${refused} writes refused; the run continued, all 4 steps are in the log, ${late} warnings`
}

/** Descriptors of this process that are logs of a run. */
function logNumbers(): Set<number> {
  const found = new Set<number>()
  for (const name of readdirSync('/proc/self/fd')) {
    try {
      if (/\.jsonl$/.test(fs.readlinkSync(`/proc/self/fd/${name}`))) found.add(Number(name))
    } catch {
      // closed meanwhile
    }
  }
  return found
}

async function readOnly(bench: Bench): Promise<string> {
  writeFileSync(bench.at('a-file'), '')
  await refusal(() => bench.train('a-file/run', {}, hostOf(), '/nowhere'), /output: expected a folder to write to/)
  const closed = bench.at('closed')
  mkdirSync(closed, { mode: 0o555 })
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'ro', 'tmpfs', closed]).status === 0 // root may write anywhere else
  try {
    return await refusal(
      () => bench.train('closed/run', {}, hostOf(), '/nowhere'),
      /output: expected a folder to write to/,
    )
  } finally {
    if (mounted) spawnSync('umount', [closed])
  }
}

/** Output folders that are a model's, the records', or hold a device under the name of a log. */
async function notItsOwn(bench: Bench): Promise<string> {
  const [model, records, odd] = ['own-model', 'own-records', 'own-odd'].map((name) => bench.at(name))
  cpSync(bench.toy, model!, { recursive: true })
  const before = readFileSync(join(model!, 'config.json'), 'utf8')
  const first = await refusal(() => bench.train('own-model'), /own-model: output: expected a folder for the run alone/)
  assert.equal(readFileSync(join(model!, 'config.json'), 'utf8'), before, 'config.json of the model')
  mkdirSync(records!)
  await refusal(() => bench.train('own-records', { dataPath: records! }), /got the folder of the records/)
  mkdirSync(odd!)
  symlinkSync('/dev/full', join(odd!, 'events.jsonl'))
  const last = await refusal(() => bench.train('own-odd'), /events\.jsonl: expected a regular file, got a device/)
  return [first, last].map((text) => text.replaceAll(bench.folder, '...')).join('; ')
}

async function failingReads(bench: Bench): Promise<string> {
  const path = join(bench.toy, 'model.safetensors')
  const real = fs.readSync
  let reads = 0
  fs.readSync = ((...args: unknown[]) => {
    if (++reads > 2) throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' })
    return (real as (...all: unknown[]) => number)(...args)
  }) as typeof fs.readSync
  syncBuiltinESMExports()
  try {
    return await refusal(() => {
      const weights = openWeights(path)
      for (const name of weights.names) weights.read(name)
    }, /model\.safetensors: bytes at \d+: expected \d+ readable bytes, got EIO/)
  } finally {
    fs.readSync = real
    syncBuiltinESMExports()
  }
}

async function deleted(bench: Bench): Promise<string> {
  const host = hostOf(undefined, {
    progress: (e) => {
      if (e.kind === 'step' && e.step === 2) rmSync(bench.at('deleted'), { recursive: true, force: true })
    },
  })
  await bench.train('deleted', {}, host)
  const kept = runBytes(bench.at('deleted'))
  assert.ok(kept.has('events.jsonl') && newestValid(bench.at('deleted')).checkpoint?.step === 4, 'log and checkpoint')
  const steps = bench.events('deleted').filter((e) => e.t === 'step').length
  return `put back at the next checkpoint, with its log of ${steps} steps`
}

export const disk: readonly Row[] = [
  row(36, 'disk-full', 'no room for a file of a checkpoint (ulimit -f)', 'safe', full),
  quick(36, 'tmpfs-full', 'no room for a checkpoint (a full tmpfs)', 'safe', fullTmpfs),
  quick(37, 'logs-full', 'no room for lines of the log', 'counted', fullLogs),
  quick(37, 'disk-short', 'the disk is full, or fails, until the run says so', 'counted', shortTrouble),
  quick(38, 'read-only', 'an output folder that cannot be created or written', 'words', readOnly),
  quick(38, 'not-its-own', 'an output folder that is a model’s or the records’', 'words', notItsOwn),
  quick(39, 'eio', 'the disk fails while weights are read', 'words', failingReads),
  quick(40, 'deleted', 'the output folder is deleted during the run', 'safe', deleted),
]
