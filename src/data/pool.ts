import { Worker } from 'node:worker_threads'
import type { MismatchInfo } from '../core/index.ts'
import type { Preparation } from '../image/index.ts'
import { type Decoded, type DecodeJob, decodeJob } from './decode.ts'
import { BadRecord, type Reason } from './example.ts'

export interface WorkerAnswer {
  number: number
  decoded?: Decoded
  bad?: { reason: Reason; info: MismatchInfo }
  message?: string
}

interface Thread {
  worker: Worker
  waiting: Map<number, { resolve: (decoded: Decoded) => void; reject: (error: Error) => void }>
  /** Why the thread answers no more. */
  failure: Error | null
  /** Being ended: it must keep the process alive until it has. */
  ending: boolean
}

/** From sources the thread loads TypeScript itself: hooks registered in the main thread do not reach it. */
function startWorker(preparation: Preparation | null): Worker {
  if (!import.meta.url.endsWith('.ts'))
    return new Worker(new URL('./worker.js', import.meta.url), { workerData: preparation })
  const code = `import(${JSON.stringify(import.meta.resolve('tsx/esm/api'))})
    .then(({ register }) => { register(); return import(${JSON.stringify(new URL('./worker.ts', import.meta.url).href)}) })`
  return new Worker(code, { eval: true, execArgv: [], workerData: preparation })
}

/** Worker threads that decode images and prepare them for a model. Callers bound how much they ask for; the pool only spreads it. */
export class DecodePool {
  readonly #threads: Thread[] = []
  readonly #preparation: Preparation | null
  #next = 0
  #closed = false

  constructor(size: number, preparation: Preparation | null = null) {
    this.#preparation = preparation
    for (let i = 0; i < size; i++) this.#threads.push(this.#start())
  }

  /** Without threads nothing is prepared: whoever encodes the image does it. */
  async decode(job: DecodeJob): Promise<Decoded> {
    const pixels = 'rgb' in job.source && !this.#preparation
    if (pixels || this.#threads.length === 0) return { image: await decodeJob(job) }
    const thread = this.#threads.reduce((best, t) => (t.waiting.size < best.waiting.size ? t : best))
    if (thread.failure) throw thread.failure
    const number = this.#next++
    return await new Promise((resolve, reject) => {
      thread.waiting.set(number, { resolve, reject })
      thread.worker.ref()
      thread.worker.postMessage({ number, job }, movable(job.source))
    })
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const thread of this.#threads) thread.ending = true
    await Promise.all(this.#threads.map((thread) => thread.worker.terminate()))
  }

  #start(): Thread {
    const thread: Thread = { worker: startWorker(this.#preparation), waiting: new Map(), failure: null, ending: false }
    thread.worker.unref() // an idle thread keeps no process alive
    thread.worker.on('message', (answer: WorkerAnswer) => settle(thread, answer))
    thread.worker.on('error', (error) => failAll(thread, error))
    thread.worker.on('exit', (code) => {
      const why = this.#closed ? 'the loader was closed' : `a decoding thread ended with code ${code}`
      failAll(thread, new Error(why))
    })
    return thread
  }
}

/** Bytes that fill their own buffer are moved to the worker; parts of a shared one are copied. */
function movable(source: DecodeJob['source']): ArrayBuffer[] {
  if ('rgb' in source) return []
  const { bytes } = source
  const { buffer } = bytes
  return buffer instanceof ArrayBuffer && bytes.byteLength === buffer.byteLength && bytes.byteLength > 65536
    ? [buffer]
    : []
}

function settle(thread: Thread, { number, decoded, bad, message }: WorkerAnswer): void {
  const waiting = thread.waiting.get(number)
  thread.waiting.delete(number)
  if (thread.waiting.size === 0 && !thread.ending) thread.worker.unref()
  if (decoded) waiting?.resolve(decoded)
  else waiting?.reject(bad ? new BadRecord(bad.reason, bad.info) : new Error(message ?? 'decoding failed'))
}

function failAll(thread: Thread, error: Error): void {
  thread.failure ??= error
  for (const { reject } of thread.waiting.values()) reject(thread.failure)
  thread.waiting.clear()
}
