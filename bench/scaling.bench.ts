// The demo's step by 1, 2 and 4 processes with one thread each, as ratios to one process of the same work in the same minutes. With
// fewer cores than processes the larger rows say what sharing costs.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BenchRow, median, row } from './bench.ts'

const program = fileURLToPath(new URL('../bin/roundtrip.mjs', import.meta.url))
const steps = 8

interface Timing {
  step_time: number
  tokens_per_second: number
  'seconds/sample': number
  'seconds/reduce'?: number
  bytes_sent?: number
}

interface Figures {
  seconds: number
  rolloutTokens: number
  reduce: number
  bytes: number
}

/** The first two steps warm up. */
function trained(processes: number): Figures {
  const output = mkdtempSync(join(tmpdir(), 'roundtrip-scaling-'))
  const flags = ['--recipe', 'demo', '--maxSteps', String(steps), '--evalRecords', '0', '--output', output]
  const many = processes > 1 ? ['--nproc', String(processes)] : []
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  try {
    const done = spawnSync(process.execPath, [program, 'train', ...flags, ...many], { env, encoding: 'utf8' })
    if (done.status !== 0)
      throw new Error(`train with ${processes} processes ended with ${done.status}: ${done.stderr}`)
    return figures(readTimings(output).slice(2))
  } finally {
    rmSync(output, { recursive: true, force: true })
  }
}

function readTimings(output: string): Timing[] {
  const lines = readFileSync(join(output, 'timing.jsonl'), 'utf8').trim().split('\n')
  const events = lines.map((line) => JSON.parse(line) as { metrics?: Timing } & Timing)
  return events.map((event) => event.metrics ?? event).filter((event) => event.step_time !== undefined)
}

function figures(timings: readonly Timing[]): Figures {
  const of = (value: (t: Timing) => number) => median(timings.map(value))
  return {
    seconds: of((t) => t.step_time),
    rolloutTokens: of((t) => (t.tokens_per_second * t.step_time) / t['seconds/sample']),
    reduce: of((t) => t['seconds/reduce'] ?? 0),
    bytes: of((t) => t.bytes_sent ?? 0),
  }
}

export async function run(): Promise<BenchRow[]> {
  const one = trained(1)
  return [2, 4].flatMap((processes) => {
    const many = trained(processes)
    return [
      row(`${processes} processes: rollout`, many.rolloutTokens, one.rolloutTokens, 'tokens/s'),
      row(`${processes} processes: step`, many.seconds, one.seconds, 's'),
      row(`${processes} processes: waiting for gradients`, many.reduce, null, 's a step'),
      row(`${processes} processes: sent by a process`, many.bytes / 1e6, null, 'MB a step'),
    ]
  })
}
