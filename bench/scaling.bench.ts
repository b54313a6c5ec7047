// A step of the demo with 1, 2 and 4 processes of one thread each. Runs alternate; each gets as many cores as processes. Every round
// trains the same steps, and of each step the fastest counts: what other work on the machine adds is left out.
// Three workloads: the demo's batch split over the processes, the demo's batch for each process, and a larger batch split over them.
// Beside them runs that know nothing of each other, each with its share of the larger batch: what the cores lose to each other by themselves.
// Wall-clock rows are meaningful only if every process has an idle core. CPU-time rows are valid on a busy machine too: rollout tokens
// per CPU second of the process that used most. A host may run other work on the cores of a virtual machine: what it took is measured
// and shown, and `without stolen time` subtracts the mean of the cores that a run used. Two processes that wait for each other lose up
// to the sum, so this ratio is rather too low than too high.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BenchRow, median, row } from './bench.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const program = join(root, 'bin', 'roundtrip.mjs')
/** The first half warms up: V8 compiles for about ten steps, in every process the same amount. */
const steps = Number(process.env.SCALING_BENCH_STEPS ?? 24)
const rounds = Number(process.env.SCALING_BENCH_ROUNDS ?? 2)
const sizes = (process.env.SCALING_BENCH_SIZES ?? '2,4').split(',').map(Number)
/** Records a step of the demo. */
const demoBatch = 6
const largeBatch = Number(process.env.SCALING_BENCH_BATCH ?? 24)
/** `large`: without the demo's batch. */
const isLargeAlone = process.env.SCALING_BENCH_WORKLOADS === 'large'

interface Timing {
  /** Seconds from the end of the step before to the end of this one. */
  clock: number
  /** Seconds of it in which the host ran something else on our cores, mean of the cores. */
  stolen: number
  step_time: number
  tokens_per_second: number
  'seconds/sample': number
  'processor_seconds/sample': number
  'seconds/reduce'?: number
  'wait/sample'?: number
  'wait/learn'?: number
  'ranks/sample_slowest'?: number
  'ranks/sample_mean'?: number
}

interface Metrics {
  seconds: number
  /** Without the time that the host took. */
  ownSeconds: number
  stolen: number
  rolloutTokens: number
  /** Per CPU second of the process that used most. */
  tokensByProcessor: number
  /** Sampling time of the slowest process / mean of all: median over steps. */
  uneven: number
  /** Share of a step spent in collectives, most of it waiting for other processes: median over steps. */
  waiting: number
  reduce: number
}

interface Kind {
  processes: number
  batch: number
  /** Separate runs side by side, each on its cores; the slowest counts. */
  runs?: number
}

const keyOf = ({ processes, batch, runs = 1 }: Kind) => `${processes} ${batch}${runs > 1 ? ` in ${runs} runs` : ''}`

/** Numbers of the cores that this process may use: "0-1,6-7" gives 0, 1, 6, 7. */
function ownCores(): number[] {
  const { stdout } = spawnSync('taskset', ['-cp', String(process.pid)], { encoding: 'utf8' })
  const ranges = (stdout ?? '').trim().split(': ').at(-1) ?? ''
  return ranges.split(',').flatMap((range) => {
    const [from, to = from] = range.split('-').map(Number) as [number, number | undefined]
    return Array.from({ length: to! - from + 1 }, (_, i) => from + i)
  })
}

/** A time and the seconds that the host had taken from a core by then. */
type Reading = [time: number, stolen: number]

/** `steal` of /proc/stat, mean of the cores, ten times a second until it is stopped. */
function watchStolen(cores: readonly number[]) {
  const readings: Reading[] = []
  const read = () => {
    const fields = readFileSync('/proc/stat', 'utf8')
      .split('\n')
      .map((line) => line.split(/ +/))
    const ofCore = (core: number) => Number(fields.find(([name]) => name === `cpu${core}`)?.[8] ?? 0) / 100
    readings.push([Date.now(), cores.reduce((sum, core) => sum + ofCore(core), 0) / cores.length])
  }
  read()
  const timer = setInterval(read, 100)
  return () => {
    clearInterval(timer)
    read()
    return readings
  }
}

/** Between two readings the value rises evenly. */
function stolenAt(readings: readonly Reading[], time: number): number {
  const next = Math.max(
    1,
    readings.findIndex(([at]) => at >= time),
  )
  const [[from, before], [to, after]] = [readings[next - 1]!, readings[next]!]
  return before + ((after - before) * (time - from)) / Math.max(1, to - from)
}

/** Timings of the second half of a training run. */
async function trained({ processes, batch }: Kind, run = 0): Promise<Timing[]> {
  const output = mkdtempSync(join(tmpdir(), 'roundtrip-scaling-'))
  const settings = `--recipe demo --model assets/miniature --maxSteps ${steps} --evalRecords 0 --batchSize ${batch}`
  const many = processes > 1 ? ` --nproc ${processes}` : ''
  const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  const own = ownCores()
  const cores =
    own.length < processes ? own : Array.from({ length: processes }, (_, i) => own[(run * processes + i) % own.length]!)
  const pinned = ['taskset', '-c', cores.join()]
  try {
    const flags = [...`${settings}${many}`.split(' '), '--output', output]
    const [command, ...words] = [...pinned, process.execPath, program, 'train', ...flags]
    const child = spawn(command!, words, { cwd: root, env, stdio: ['ignore', 'ignore', 'pipe'] })
    const stolen = watchStolen(cores)
    let said = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text
    })
    const code = await new Promise<number | null>((done) => child.once('close', done))
    const readings = stolen()
    if (code !== 0) throw new Error(`train with ${processes} processes ended with ${code}: ${said}`)
    return readTimings(output, readings).slice(steps / 2)
  } finally {
    rmSync(output, { recursive: true, force: true })
  }
}

/** Those of the slowest of the runs side by side. */
async function slowest(kind: Kind): Promise<Timing[]> {
  const all = await Promise.all(Array.from({ length: kind.runs ?? 1 }, (_, i) => trained(kind, i)))
  const total = (one: readonly Timing[]) => one.reduce((sum, { clock }) => sum + clock, 0)
  return all.reduce((a, b) => (total(b) > total(a) ? b : a))
}

function readTimings(output: string, readings: readonly Reading[]): Timing[] {
  const lines = readFileSync(join(output, 'timing.jsonl'), 'utf8').trim().split('\n')
  const events = lines.map((line) => JSON.parse(line) as { time: number; metrics?: Timing })
  return events.flatMap(({ time, metrics }, i) => {
    if (!metrics) return []
    const before = events[i - 1]!.time
    const stolen = stolenAt(readings, time) - stolenAt(readings, before)
    return [{ ...metrics, clock: (time - before) / 1000, stolen }]
  })
}

function metrics(timings: readonly Timing[]): Metrics {
  const of = (value: (t: Timing) => number) => median(timings.map(value))
  return {
    seconds: of((t) => t.clock),
    ownSeconds: of((t) => t.clock - t.stolen),
    stolen: of((t) => t.stolen / t.clock),
    rolloutTokens: of((t) => (t.tokens_per_second * t.step_time) / t['seconds/sample']),
    tokensByProcessor: of((t) => (t.tokens_per_second * t.step_time) / t['processor_seconds/sample']),
    uneven: of((t) => (t['ranks/sample_slowest'] ?? 1) / (t['ranks/sample_mean'] ?? 1)),
    waiting: of((t) => ((t['wait/sample'] ?? 0) + (t['wait/learn'] ?? 0)) / t.step_time),
    reduce: of((t) => t['seconds/reduce'] ?? 0),
  }
}

const separate = (runs: number): Kind => ({ processes: 1, batch: Math.round(largeBatch / runs), runs })

function kinds(): Kind[] {
  const batchesOf = (processes: number) =>
    isLargeAlone ? [largeBatch] : [demoBatch, demoBatch * processes, largeBatch]
  const split = [1, ...sizes].flatMap((processes) => batchesOf(processes).map((batch): Kind => ({ processes, batch })))
  const all = [...split, ...sizes.map(separate)]
  return [...new Map(all.map((kind) => [keyOf(kind), kind])).values()]
}

/** Each step as the fastest of the rounds took it. */
const fastest = (all: readonly Timing[][]) =>
  all[0]!.map((_, i) => all.map((one) => one[i]!).reduce((a, b) => (b.clock - b.stolen < a.clock - a.stolen ? b : a)))

/** Alternates the kinds, so that slow minutes of the machine affect all of them. */
async function inTurns(): Promise<Map<string, Metrics>> {
  const timings = new Map<string, Timing[][]>()
  for (let round = 0; round < rounds; round++)
    for (const kind of kinds()) {
      const key = keyOf(kind)
      const found = await slowest(kind)
      timings.set(key, [...(timings.get(key) ?? []), found])
      const { seconds, stolen, rolloutTokens, tokensByProcessor } = metrics(found)
      const rates = `${rolloutTokens.toFixed(0)} tokens/s by the clock, ${tokensByProcessor.toFixed(0)} by CPU time`
      console.error(
        `processes, records ${key}: ${seconds.toFixed(3)} s a step, ${(100 * stolen).toFixed(1)} % of it stolen, ${rates}`,
      )
    }
  return new Map([...timings].map(([key, all]) => [key, metrics(fastest(all))]))
}

export async function run(): Promise<BenchRow[]> {
  const found = await inTurns()
  const of = (processes: number, batch: number) => found.get(keyOf({ processes, batch }))!
  return sizes.flatMap((size) => {
    const compared = (what: string, batch: number, alone = batch): BenchRow[] => {
      const [ours, other] = [of(size, batch), of(1, alone)]
      const name = (metric: string) => `${size} processes, ${what}: ${metric}`
      return [
        row(name('rollout by CPU time'), ours.tokensByProcessor, other.tokensByProcessor, 'tokens/s'),
        row(name('rollout by the clock'), ours.rolloutTokens, other.rolloutTokens, 'tokens/s'),
        row(name('step to step'), ours.seconds, other.seconds, 's'),
        row(name('step to step without stolen time'), ours.ownSeconds, other.ownSeconds, 's'),
        row(name('stolen by the host'), 100 * ours.stolen, 100 * other.stolen, '% of a step'),
      ]
    }
    const large = of(size, largeBatch)
    const apart = found.get(keyOf(separate(size)))!
    const costs = (metric: string) => `${size} processes: ${metric}`
    const costsOf = (batch: number, { waiting, uneven, reduce }: Metrics) => [
      row(costs(`waiting with ${batch} records`), 100 * waiting, null, '% of a step'),
      row(costs(`slowest sampling over the mean with ${batch} records`), uneven, null, 'x'),
      row(costs(`waiting for gradients with ${batch} records`), reduce, null, 's a step'),
    ]
    const ofDemo = () => [
      ...compared(`${demoBatch} records`, demoBatch),
      ...compared(`${demoBatch} records each`, demoBatch * size, demoBatch),
      ...costsOf(demoBatch, of(size, demoBatch)),
    ]
    return [
      ...(isLargeAlone ? [] : ofDemo()),
      ...compared(`${largeBatch} records`, largeBatch),
      row(`${size} separate runs of their share of ${largeBatch}`, apart.seconds, of(1, largeBatch).seconds, 's'),
      ...costsOf(largeBatch, large),
    ]
  })
}
