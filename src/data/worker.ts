// A decoding thread: bytes in, pixels and what a model takes of them out, moved rather than copied.
import { parentPort, workerData } from 'node:worker_threads'
import { messageOf } from '../core/index.ts'
import type { Preparation } from '../image/index.ts'
import { type DecodeJob, decodeJob, preparer } from './decode.ts'
import { BadRecord } from './example.ts'
import type { WorkerAnswer } from './pool.ts'

const port = parentPort
if (!port) throw new Error('broken invariant: worker.ts runs as a worker')

const preparation = workerData as Preparation | null
const ready = preparation ? preparer(preparation) : null

/** Memory of the typed arrays in plain data, each once. */
function buffersIn(value: unknown, found = new Set<ArrayBuffer>()): Set<ArrayBuffer> {
  if (ArrayBuffer.isView(value)) found.add(value.buffer as ArrayBuffer)
  else if (typeof value === 'object' && value !== null) for (const part of Object.values(value)) buffersIn(part, found)
  return found
}

async function answer(number: number, job: DecodeJob): Promise<void> {
  try {
    const { width, height, data } = await decodeJob(job)
    const own = new Uint8Array(data) // the decoder's memory is native and cannot be moved
    const image = { width, height, data: own }
    const decoded = ready ? { image, prepared: (await ready)(image) } : { image }
    port!.postMessage({ number, decoded } satisfies WorkerAnswer, [...buffersIn(decoded)])
  } catch (error) {
    const bad =
      error instanceof BadRecord
        ? { reason: error.reason, info: { ...error.info, got: String(error.info.got) } }
        : undefined
    port!.postMessage({ number, bad, message: messageOf(error) } satisfies WorkerAnswer)
  }
}

port.on('message', ({ number, job }: { number: number; job: DecodeJob }) => void answer(number, job))
