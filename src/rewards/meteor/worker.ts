// One part of a large METEOR batch; started by batch.ts.
import { parentPort, workerData } from 'node:worker_threads'
import type { MeteorJob } from './batch.ts'
import { meteor } from './score.ts'

const { texts, options } = workerData as MeteorJob
const scores = new Float64Array(texts.length / 2)
for (let i = 0; i < scores.length; i++) scores[i] = meteor(texts[2 * i]!, texts[2 * i + 1]!, options)
parentPort!.postMessage(scores, [scores.buffer])
