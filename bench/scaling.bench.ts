// The demo's step by 1, 2 and 4 processes with one thread each, as ratios to one process of the same work: runs take turns. Rows by
// the clock are what a user sees, and mean something only where every process has an idle core. Rows by processor time hold beside
// neighbours too: rollout tokens for each processor second of the process that used most.
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BenchRow, median, row } from './bench.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const program = join(root, 'bin', 'roundtrip.mjs')
const steps = Number(process.env.SCALING_BENCH_STEPS ?? 10)
const rounds = Number(process.env.SCALING_BENCH_ROUNDS ?? 2)
const sizes = (process.env.SCALING_BENCH_SIZES ?? '2,4').split(',').map(Number)

interface Timing {
  step_time: number
  tokens_per_second: number
  'seconds/sample': number
  'processor_seconds/sample': number
  'seconds/reduce'?: number
  'ranks/sample_slowest'?: number
  'ranks/sample_mean'?: number
  bytes_sent?: number
}

interface Figures {
  seconds: number
  rolloutTokens: number
  /** For each processor second of the process that used most. */
  tokensByProcessor: number
  /** Sampling by the slowest process over the mean of all. */
  uneven: number
  reduce: number
  bytes: number
}

/** The first two steps warm up. */
async function trained(processes: number): Promise<Timing[]> {
  const output = mkdtempSync(join(tmpdir(), 'roundtrip-scaling-'))
  const settings = [
    '--recipe',
    'demo',
    '--model',
    'assets/miniature',
    '--maxSteps',
    String(steps),
    '--evalRecords',
    '0',
  ]
  const many = processes > 1 ? ['--nproc', String(processes)] : []
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  try {
    const words = [program, 'train', ...settings, '--output', output, ...many]
    const child = spawn(process.execPath, words, { cwd: root, env, stdio: ['ignore', 'ignore', 'pipe'] })
    let said = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text
    })
    const code = await new Promise<number | null>((done) => child.once('close', done))
    if (code !== 0) throw new Error(`train with ${processes} processes ended with ${code}: ${said}`)
    return readTimings(output).slice(2)
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
    tokensByProcessor: of((t) => (t.tokens_per_second * t.step_time) / t['processor_seconds/sample']),
    uneven: of((t) => (t['ranks/sample_slowest'] ?? 1) / (t['ranks/sample_mean'] ?? 1)),
    reduce: of((t) => t['seconds/reduce'] ?? 0),
    bytes: of((t) => t.bytes_sent ?? 0),
  }
}

/** Each size in turn, so that slow minutes of the machine meet all of them. */
async function inTurns(): Promise<Map<number, Figures>> {
  const timings = new Map<number, Timing[]>([1, ...sizes].map((size) => [size, []]))
  for (let round = 0; round < rounds; round++) for (const [size, all] of timings) all.push(...(await trained(size)))
  return new Map([...timings].map(([size, all]) => [size, figures(all)]))
}

export async function run(): Promise<BenchRow[]> {
  const found = await inTurns()
  const one = found.get(1)!
  return sizes.flatMap((processes) => {
    const many = found.get(processes)!
    const name = (what: string) => `${processes} processes: ${what}`
    return [
      row(name('rollout by processor time'), many.tokensByProcessor, one.tokensByProcessor, 'tokens/s'),
      row(name('rollout by the clock'), many.rolloutTokens, one.rolloutTokens, 'tokens/s'),
      row(name('step'), many.seconds, one.seconds, 's'),
      row(name('slowest sampling over the mean'), many.uneven, null, 'x'),
      row(name('waiting for gradients'), many.reduce, null, 's a step'),
      row(name('sent by a process'), many.bytes / 1e6, null, 'MB a step'),
    ]
  })
}
