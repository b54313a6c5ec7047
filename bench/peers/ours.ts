// Our side of `npm run bench -- peers`, in a separate process with its own torch and its own peak memory.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { train } from '../../src/host/index.ts'
import type { PeerRun, PeerSettings } from './settings.ts'

const folder = process.argv[2]!
const settings = JSON.parse(readFileSync(join(folder, 'settings.json'), 'utf8')) as PeerSettings
const marks: { at: number; processor: number }[] = []
const mark = () => {
  const { user, system } = process.cpuUsage()
  marks.push({ at: performance.now() / 1000, processor: (user + system) / 1e6 })
}
await train(
  {
    model: join(folder, 'model'),
    dataPath: join(folder, 'records.jsonl'),
    output: join(folder, 'ours'),
    task: join(import.meta.dirname, 'digits.ts'),
    train: ['lora'],
    dtype: 'float32',
    threads: settings.threads,
    maxSteps: settings.steps,
    batchSize: settings.batch,
    evalRecords: 0,
    saveSteps: 0,
    lora: { rank: settings.rank, alpha: settings.alpha },
    optim: { learningRate: settings.lr, lrSchedulerType: 'constant' },
    rl: { numGenerations: settings.k, maxCompletionLength: settings.tokens, gradientAccumulationSteps: 1, beta: 0 },
    data: { workers: 0 },
  },
  {
    onProgress: (event) => {
      if (event.kind === 'step') mark()
    },
  },
)
const between = (of: (m: (typeof marks)[0]) => number) => marks.slice(1).map((m, i) => of(m) - of(marks[i]!))
const result: PeerRun = {
  seconds: between((m) => m.at),
  processor: between((m) => m.processor),
  peak: process.resourceUsage().maxRSS * 1024,
  tokens: settings.tokens,
}
console.log(JSON.stringify(result))
