import { availableParallelism } from 'node:os'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Worker, type WorkerOptions } from 'node:worker_threads'
import { Mismatch } from '../../core/index.ts'
import { type MeteorOptions, meteor, settle } from './score.ts'

export type MeteorPair = readonly [reference: string, hypothesis: string]

export interface MeteorBatchOptions extends MeteorOptions {
  /** Most worker threads; 0 stays in this thread. Default: the cores of the machine, at most 8. */
  maxWorkers?: number
}

/** What a worker gets and sends back: texts are reference, hypothesis, reference, ...; the answer is a Float64Array. */
export interface MeteorJob {
  texts: string[]
  options: MeteorOptions
}

/** A worker starts and reads its table in about the time this many pairs take. */
const pairsPerWorker = 25_000
/** About 20 ms: other work of the thread (requests to a judge) goes on in between. */
const pairsPerTurn = 1_000

/** Large batches run one after the other, so the number of threads is bounded for the process. */
let former: Promise<unknown> = Promise.resolve()

function numWorkers(numPairs: number, limit: number | undefined): number {
  const most = limit ?? Math.min(8, availableParallelism())
  if (!Number.isInteger(most) || most < 0) {
    const expected = 'a whole number from 0'
    throw new Mismatch({ where: 'METEOR options', field: 'maxWorkers', expected, got: String(most) })
  }
  return Math.min(most, Math.floor(numPairs / pairsPerWorker))
}

async function scoreHere(pairs: readonly MeteorPair[], options: MeteorOptions): Promise<Float64Array> {
  const scores = new Float64Array(pairs.length)
  for (const [i, [reference, hypothesis]] of pairs.entries()) {
    scores[i] = meteor(reference, hypothesis, options)
    if (i % pairsPerTurn === pairsPerTurn - 1) await nextTurn()
  }
  return scores
}

/** Node 20 does not hand a loader on to its workers: under tsx the worker registers it before it imports our source. */
function startWorker(data: MeteorJob): Worker {
  const options: WorkerOptions = { workerData: data, execArgv: [] }
  if (!import.meta.url.endsWith('.ts')) return new Worker(new URL('./worker.js', import.meta.url), options)
  const loader = import.meta.resolve('tsx/esm/api')
  const source = new URL('./worker.ts', import.meta.url).href
  const start = `import('${loader}').then((tsx) => { tsx.register(); return import('${source}') })`
  return new Worker(start, { ...options, eval: true })
}

function scoreInWorker(worker: Worker): Promise<Float64Array> {
  return new Promise((resolve, reject) => {
    worker.once('message', resolve)
    worker.once('error', reject)
    worker.once('exit', (code) => reject(new Error(`METEOR worker ended with code ${code} before its answer`)))
  })
}

async function scoreInWorkers(pairs: readonly MeteorPair[], count: number, options: MeteorOptions) {
  const size = Math.ceil(pairs.length / count)
  const workers: Worker[] = []
  try {
    for (let at = 0; at < pairs.length; at += size) {
      workers.push(startWorker({ texts: pairs.slice(at, at + size).flat(), options }))
    }
    const parts = await Promise.all(workers.map(scoreInWorker))
    const scores = new Float64Array(pairs.length)
    for (const [i, part] of parts.entries()) scores.set(part, i * size)
    return scores
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()))
  }
}

/** Scores in the order of the pairs, equal to those of `meteor`. Batches from 50,000 pairs are spread over worker threads. */
export async function meteorBatch(
  pairs: readonly MeteorPair[],
  { maxWorkers, ...options }: MeteorBatchOptions = {},
): Promise<Float64Array> {
  const settings = settle(options)
  const count = numWorkers(pairs.length, maxWorkers)
  if (count < 2) return scoreHere(pairs, settings)
  const run = former.then(() => scoreInWorkers(pairs, count, settings))
  former = run.catch(() => undefined)
  return run
}
