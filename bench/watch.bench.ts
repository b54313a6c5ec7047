// A training run with its live page open against the same run with the page closed: stretches of a few steps alternate within
// one run, and the time of a step is the run's own. The page is a client that asks what the real one asks, as a browser on
// another machine would; `WATCH_BENCH_STEPS` makes the run longer. First row: seconds a step with the page, and without; on a
// machine with neighbours it is noise, and the second row bounds it: processor seconds of the server and of the run while the
// page was open, whose ratio is what the page costs where both share one core.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BenchRow, median } from './bench.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const program = join(root, 'bin', 'roundtrip.mjs')
const steps = Number(process.env.WATCH_BENCH_STEPS ?? 96)
const stretch = 6
const unmeasured = 4 // the first steps allocate and plan

interface TimingLine {
  t: string
  step: number
  metrics?: { step_time?: number }
}

function stepTimes(run: string): Map<number, number> {
  const path = join(run, 'timing.jsonl')
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : []
  const parsed = lines.map((line) => JSON.parse(line) as TimingLine).filter(({ t }) => t === 'step')
  return new Map(parsed.map(({ step, metrics }) => [step, metrics?.step_time ?? Number.NaN]))
}

/** Processor seconds a process has used; ticks are of 10 ms on Linux. */
function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').at(-1)!.split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}

/** Processor seconds of two processes, counted between `start` and `stop`. */
class Meter {
  readonly spent = [0, 0]
  readonly #pids: readonly number[]
  #from: number[] | undefined

  constructor(...pids: readonly number[]) {
    this.#pids = pids
  }

  start(): void {
    this.#from = this.#pids.map(cpuSeconds)
  }

  stop(): void {
    this.#pids.forEach((pid, i) => {
      if (this.#from) this.spent[i]! += cpuSeconds(pid) - this.#from[i]!
    })
    this.#from = undefined
  }
}

/** Hears of changes and asks for everything the curves show, as the page does; the returned function closes it. */
function openPage(url: string): () => void {
  const closing = new AbortController()
  const { signal } = closing
  const ask = async (path: string) => (await fetch(new URL(path, url), { signal })).json()
  const look = async () => {
    const { runs } = (await ask('/api/runs')) as { runs: { id: string }[] }
    for (const { id } of runs) {
      const { metrics } = (await ask(`/api/runs/${id}`)) as { metrics: string[] }
      await ask(
        `/api/runs/${id}/series?${new URLSearchParams(metrics.slice(0, 60).map((name): [string, string] => ['name', name]))}`,
      )
    }
  }
  const listen = async () => {
    const { body } = await fetch(new URL('/api/live', url), { signal })
    for await (const piece of body!) if (Buffer.from(piece).includes('event: runs')) await look()
  }
  listen().catch((error: unknown) => {
    if (!signal.aborted) throw error
  })
  return () => closing.abort()
}

export async function run(): Promise<BenchRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'watch-bench-'))
  const output = join(folder, 'run')
  mkdirSync(output)
  const words = `--recipe demo --model assets/miniature --batchSize 2 --maxSteps ${steps} --evalRecords 0 --output ${output}`
  const environment = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
  const server = spawn(process.execPath, [program, 'watch', output, '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const url = await new Promise<string>((done) =>
    server.stdout.once('data', (bytes: Buffer) => done(String(bytes).trim())),
  )
  const training = spawn(process.execPath, [program, 'train', ...words.split(' ')], {
    cwd: root,
    env: environment,
    stdio: 'ignore',
  })
  const ended = new Promise<number | null>((done) => training.once('close', done))
  let [close, code]: [(() => void) | undefined, number | null | undefined] = [undefined, undefined]
  void ended.then((status) => {
    code = status
  })
  const withPage = new Set<number>()
  const meter = new Meter(server.pid!, training.pid!)
  for (let last = 0; code === undefined; await new Promise((done) => setTimeout(done, 20))) {
    const now = Math.max(0, ...stepTimes(output).keys())
    const wanted = Math.floor(now / stretch) % 2 === 1
    if (wanted && !close) {
      meter.start()
      close = openPage(url)
    }
    if (!wanted && close) {
      meter.stop()
      close = void close()
    }
    // The step in which the page opened or closed belongs to neither.
    if (now > last && (now + 1) % stretch !== 0 && close) withPage.add(now + 1)
    last = now
  }
  close?.()
  server.kill()
  if (code !== 0) throw new Error(`the run ended with ${code}`)
  const times = [...stepTimes(output)].filter(([step]) => step > unmeasured && step % stretch > 1)
  rmSync(folder, { recursive: true, force: true })
  const open = times.filter(([step]) => withPage.has(step)).map(([, seconds]) => seconds)
  const closed = times.filter(([step]) => !withPage.has(step)).map(([, seconds]) => seconds)
  const [ours, other] = [median(open), median(closed)]
  const [serving, working] = meter.spent as [number, number]
  return [
    {
      name: `step with the page open, ${open.length} and ${closed.length} steps`,
      ours,
      other,
      ratio: ours / other,
      unit: 's',
    },
    {
      name: 'processor time of the server, of the run',
      ours: serving,
      other: working,
      ratio: serving / working,
      unit: 's',
    },
  ]
}
