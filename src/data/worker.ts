// A decoding thread: bytes in, pixels out, both moved rather than copied.
import { parentPort } from 'node:worker_threads'
import { messageOf } from '../core/index.ts'
import { type DecodeJob, decodeJob } from './decode.ts'
import { BadRecord } from './example.ts'
import type { WorkerAnswer } from './pool.ts'

const port = parentPort
if (!port) throw new Error('broken invariant: worker.ts runs as a worker')

async function answer(number: number, job: DecodeJob): Promise<void> {
  try {
    const { width, height, data } = await decodeJob(job)
    const own = new Uint8Array(data) // the decoder's memory is native and cannot be moved
    port!.postMessage({ number, image: { width, height, data: own } } satisfies WorkerAnswer, [own.buffer])
  } catch (error) {
    const bad =
      error instanceof BadRecord
        ? { reason: error.reason, info: { ...error.info, got: String(error.info.got) } }
        : undefined
    port!.postMessage({ number, bad, message: messageOf(error) } satisfies WorkerAnswer)
  }
}

port.on('message', ({ number, job }: { number: number; job: DecodeJob }) => void answer(number, job))
