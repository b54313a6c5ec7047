// The engine compared with Python's eager torch on the same libtorch: op overhead, a decoder layer, AdamW. Both sides alternate with the
// same number of threads; a ratio is the median over rounds of our time / theirs.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { log } from '../src/core/index.ts'
import { buffer, defaultThreads, native, prepareEnvironment } from '../src/engine/index.ts'
import { backward, keep, type Tensor, tensor, tidy, tidyNoGrad, zeros } from '../src/tensor/index.ts'
import { type BenchRow, median } from './bench.ts'
import { dropGrads, formula, layerForward, layerInput, layerLoss, layerSize, layerWeights } from './engine-layer.ts'

const python = '/usr/bin/python3'

interface Job {
  name: string
  kind: 'add' | 'forward' | 'layer' | 'adamw'
  make: Record<string, number>
  /** Steps per measurement, and before the first. */
  times: number
  warm: number
  rounds: number
  unit: string
  /** Seconds of one step -> the unit. */
  scale: number
  /** Single-threaded work is compared by CPU time, which other processes disturb least. */
  clock: 'wall' | 'cpu'
  prepare: () => () => void
}

interface Times {
  wall: number
  cpu: number
}

const adds = 20_000
function prepareAdd(): () => void {
  const a = keep(tensor([1, 2, 3, 4]))
  const b = keep(tensor([1, 2, 3, 4]))
  return () => {
    for (let i = 0; i < adds / 10; i++)
      tidy(() => {
        for (let k = 0; k < 10; k++) a.add(b)
      })
  }
}

const forwards = 20
/** 32 wide, 2 x 6 tokens: the cost is calls, not arithmetic. */
function prepareForward(): () => void {
  const size = layerSize(32)
  const weights = layerWeights(size)
  const input = layerInput(size, 2, 6)
  return () => {
    for (let i = 0; i < forwards; i++) tidyNoGrad(() => void layerForward(weights, size, input))
  }
}

function prepareLayer(hidden: number): () => void {
  const size = layerSize(hidden)
  const weights = layerWeights(size)
  const input = layerInput(size, 4, 128)
  return () => {
    tidy(() => backward(layerLoss(layerForward(weights, size, input))))
    dropGrads(weights)
  }
}

function prepareAdamW(tensors: number, elements: number): () => void {
  const tensorsOf = (n: number) => Array.from({ length: tensors }, (_, i) => keep(tensor(formula(i + n, elements))))
  const state = [tensorsOf(0), tensorsOf(1), tensorsOf(0).map(zero), tensorsOf(0).map(zero)]
  let step = 0
  return () => {
    step++
    buffer.set([1e-3, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9 ** step, 1 - 0.95 ** step, tensors])
    let at = 8
    for (let i = 0; i < tensors; i++) for (const list of state) buffer[at++] = list[i]!.handle
    native().adamw()
  }
}
function zero(t: Tensor): Tensor {
  const empty = keep(zeros(t.shape))
  t.dispose()
  return empty
}

const calls = { rounds: 15, unit: 'us', clock: 'cpu' } as const
const arithmetic = { times: 2, unit: 'ms', scale: 1e3, clock: 'wall' } as const

const layerJob = (hidden: number, rounds: number): Job => ({
  name: `decoder layer forward+backward, hidden ${hidden}, 4 x 128 tokens, float32`,
  kind: 'layer',
  make: { hidden, batch: 4, tokens: 128 },
  ...arithmetic,
  warm: 3,
  rounds,
  prepare: () => prepareLayer(hidden),
})

const jobs: Job[] = [
  {
    name: 'tiny add with its release',
    kind: 'add',
    make: {},
    ...calls,
    times: 1,
    warm: 3,
    scale: 1e6 / adds,
    prepare: prepareAdd,
  },
  {
    name: 'decoder layer forward, hidden 32, 2 x 6 tokens (calls)',
    kind: 'forward',
    make: { hidden: 32, batch: 2, tokens: 6 },
    ...calls,
    times: 5,
    warm: 100, // V8 compiles the last of the encoders after about 2,000 forwards
    scale: 1e6 / forwards,
    prepare: prepareForward,
  },
  layerJob(256, 15),
  layerJob(1024, 9),
  {
    name: 'AdamW over 1,000 tensors of 4,096',
    kind: 'adamw',
    make: { tensors: 1000, elements: 4096 },
    ...arithmetic,
    warm: 2,
    rounds: 9,
    prepare: () => prepareAdamW(1000, 4096),
  },
]

/** The Python side: one process for all rounds, so that its start is not measured. */
class Python {
  readonly #child: ChildProcessWithoutNullStreams
  readonly #lines: AsyncIterator<string>

  private constructor(child: ChildProcessWithoutNullStreams) {
    this.#child = child
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  }

  static start(threads: number): Python | null {
    if (!existsSync(python)) return null
    const script = fileURLToPath(new URL('./engine-layer.py', import.meta.url))
    if (!existsSync(script)) return null
    const child = spawn(python, [script, String(threads)])
    child.stderr.on('data', (text: Buffer) => log.debug(text.toString()))
    child.stdin.on('error', () => {}) // a Python without torch has already ended; its first answer is then missing
    return new Python(child)
  }

  async run({ kind, make, times, warm }: Job): Promise<Times | null> {
    this.#child.stdin.write(`${JSON.stringify({ kind, make, times, warm })}\n`)
    const { value, done } = await this.#lines.next()
    return done ? null : (JSON.parse(value) as Times)
  }

  stop(): void {
    this.#child.stdin.end()
    this.#child.kill()
  }
}

function measure(step: () => void, times: number): Times {
  const cpu = process.cpuUsage()
  const start = performance.now()
  for (let i = 0; i < times; i++) step()
  const wall = (performance.now() - start) / 1000
  const used = process.cpuUsage(cpu)
  return { wall, cpu: (used.user + used.system) / 1e6 }
}

async function compare(job: Job, other: Python | null): Promise<BenchRow> {
  const step = job.prepare()
  measure(step, job.warm)
  await other?.run(job)
  const ours: number[] = []
  const theirs: number[] = []
  for (let round = 0; round < job.rounds; round++) {
    ours.push((measure(step, job.times)[job.clock] / job.times) * job.scale)
    const answer = await other?.run(job)
    if (answer) theirs.push((answer[job.clock] / job.times) * job.scale)
  }
  const paired = theirs.length === ours.length
  return {
    name: job.name,
    ours: median(ours),
    other: paired ? median(theirs) : null,
    ratio: paired ? median(ours.map((v, i) => v / theirs[i]!)) : null,
    unit: job.unit,
  }
}

export async function run(): Promise<BenchRow[]> {
  prepareEnvironment() // the child inherits the same BLAS kernels and thread counts
  const threads = defaultThreads()
  native().threads(threads)
  const other = Python.start(threads)
  if (!other) log.warn(`no ${python}: our side only`)
  const rows: BenchRow[] = []
  try {
    for (const job of jobs) rows.push(await compare(job, other))
  } finally {
    other?.stop()
  }
  return rows
}
