// What the live page costs a training run. Two equal runs train at the same time, and a client requests what the page requests for one of
// them; then the roles are swapped. CPU time is compared over blocks of the same steps, so other processes slow both alike.
// Rows: CPU time of a step with and without the page; CPU time of the server and of the run, which bounds the cost on one shared core;
// bytes read by the server and bytes logged by the run. `WATCH_BENCH_STEPS` and `WATCH_BENCH_PAIRS` make it longer.
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BenchRow, median, row } from './bench.ts'
import { cpuSeconds, program, serveRuns } from './watch-server.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const steps = Number(process.env.WATCH_BENCH_STEPS ?? 36)
const pairs = Number(process.env.WATCH_BENCH_PAIRS ?? 2)
const block = 4
const unmeasured = 4 // the first steps allocate and plan

/** Bytes a process has read so far. */
function bytesRead(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'latin1'))![1])
}

function bytesLogged(run: string): number {
  const files = readdirSync(run).filter((name) => name.endsWith('.jsonl'))
  return files.reduce((sum, name) => sum + statSync(join(run, name)).size, 0)
}

/** On every change requests all series of the curves, as the page does. Returns a function that closes the client. */
function openPage(url: string): () => void {
  const closing = new AbortController()
  const { signal } = closing
  const ask = async (path: string) => (await fetch(new URL(path, url), { signal })).json()
  const requestAll = async () => {
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
    for await (const piece of body!) if (Buffer.from(piece).includes('event: runs')) await requestAll()
  }
  listen().catch((error: unknown) => {
    if (!signal.aborted) throw error
  })
  return () => closing.abort()
}

/** A training run whose CPU time is recorded every `block` steps. */
class Training {
  readonly ended: Promise<void>
  /** Processor seconds at the end of each block, by step. */
  readonly spent = new Map<number, number>()
  readonly pid: number
  readonly #output: string
  readonly #child: ChildProcess

  constructor(output: string) {
    mkdirSync(output)
    this.#output = output
    const words = `--recipe demo --model assets/miniature --batchSize 2 --maxSteps ${steps} --evalRecords 0 --output ${output}`
    const env = { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' }
    this.#child = spawn(process.execPath, [program, 'train', ...words.split(' ')], { cwd: root, env, stdio: 'ignore' })
    this.pid = this.#child.pid!
    this.ended = new Promise((done, fail) => {
      this.#child.once('close', (code) => (code === 0 ? done() : fail(new Error(`the run ended with ${code}`))))
    })
  }

  record(): void {
    const path = join(this.#output, 'timing.jsonl')
    if (this.#child.exitCode !== null || !existsSync(path)) return
    const step = readFileSync(path, 'utf8').split('"t":"step"').length - 1
    if (step >= unmeasured && step % block === 0 && !this.spent.has(step)) this.spent.set(step, cpuSeconds(this.pid))
  }
}

interface Pair {
  /** Processor seconds of each block, with the page and without. */
  blocks: [number, number][]
  serving: number
  working: number
  read: number
  logged: number
}

/** Two runs at the same time; `first` is which of them is started first. */
async function trainPair(first: 'watched' | 'unwatched'): Promise<Pair> {
  const folder = mkdtempSync(join(tmpdir(), 'watch-bench-'))
  const at = (name: string) => join(folder, name)
  const names = first === 'watched' ? ['watched', 'unwatched'] : ['unwatched', 'watched']
  const runs = new Map(names.map((name) => [name, new Training(at(name))]))
  const [watched, unwatched] = [runs.get('watched')!, runs.get('unwatched')!]
  const server = await serveRuns(at('watched'))
  const before = { serving: cpuSeconds(server.pid), read: bytesRead(server.pid) }
  const close = openPage(server.url)
  const timer = setInterval(() => {
    for (const run of runs.values()) run.record()
  }, 10)
  try {
    await Promise.all([watched.ended, unwatched.ended])
    const blocks = [...watched.spent.keys()].filter((step) => step > unmeasured && unwatched.spent.has(step))
    const of = (run: Training, step: number) => run.spent.get(step)! - (run.spent.get(step - block) ?? Number.NaN)
    return {
      blocks: blocks.map((step) => [of(watched, step), of(unwatched, step)]),
      serving: cpuSeconds(server.pid) - before.serving,
      working: Math.max(...watched.spent.values()),
      read: bytesRead(server.pid) - before.read,
      logged: bytesLogged(at('watched')),
    }
  } finally {
    clearInterval(timer)
    close()
    server.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

export async function run(): Promise<BenchRow[]> {
  const results: Pair[] = []
  for (let i = 0; i < pairs; i++) results.push(await trainPair(i % 2 === 0 ? 'watched' : 'unwatched'))
  const blocks = results.flatMap((pair) => pair.blocks).filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b))
  const perStep = (which: 0 | 1) => median(blocks.map((seconds) => seconds[which])) / block
  const total = (of: (pair: Pair) => number) => results.reduce((sum, pair) => sum + of(pair), 0)
  return [
    {
      name: `CPU time of a step, page open and closed, ${blocks.length} blocks`,
      ours: perStep(0),
      other: perStep(1),
      ratio: median(blocks.map(([open, closed]) => open / closed)),
      unit: 's',
    },
    row(
      'CPU time of the server, of the run',
      total((p) => p.serving),
      total((p) => p.working),
      's',
    ),
    row('read by the server, logged by the run', total((p) => p.read) / 1e6, total((p) => p.logged) / 1e6, 'MB'),
  ]
}
