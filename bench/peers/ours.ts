// Our side of `npm run bench -- peers`, in a separate process with its own torch and its own peak memory.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { train } from '../../src/host/index.ts'
import type { TimingLine } from '../../src/tracking/index.ts'
import type { PeerRun, PeerSettings } from './settings.ts'

const folder = process.argv[2]!
const settings = JSON.parse(readFileSync(join(folder, 'settings.json'), 'utf8')) as PeerSettings
const { device } = settings
const output = join(folder, 'ours')
const marks: { at: number; processor: number }[] = []
const mark = () => {
  const { user, system } = process.cpuUsage()
  marks.push({ at: performance.now() / 1000, processor: (user + system) / 1e6 })
}
await train(
  {
    model: join(folder, 'model'),
    dataPath: join(folder, 'records.jsonl'),
    output,
    task: join(import.meta.dirname, 'digits.ts'),
    train: ['lora'],
    device,
    dtype: device === 'cpu' ? 'float32' : 'bfloat16',
    threads: settings.threads,
    maxSteps: settings.steps,
    batchSize: settings.batch,
    evalRecords: 0,
    saveSteps: 0,
    lora: { rank: settings.rank, alpha: settings.alpha },
    optim: { learningRate: settings.lr, lrSchedulerType: 'constant' },
    rl: { numGenerations: settings.k, maxCompletionLength: settings.tokens, gradientAccumulationSteps: 1, beta: 0 },
    ...(device === 'cpu' ? { data: { workers: 0 } } : {}), // two threads are all that the CPU bench has; on a GPU both sides use their defaults
  },
  {
    onProgress: (event) => {
      if (event.kind === 'step') mark()
    },
  },
)
const between = (of: (m: (typeof marks)[0]) => number) => marks.slice(1).map((m, i) => of(m) - of(marks[i]!))
function gpuPeak(): number {
  const lines = readFileSync(join(output, 'timing.jsonl'), 'utf8').trim().split('\n')
  return Math.max(...lines.map((line) => (JSON.parse(line) as TimingLine).metrics?.['gpu_peak_bytes'] ?? 0))
}
const result: PeerRun = {
  seconds: between((m) => m.at),
  processor: between((m) => m.processor),
  peak: device === 'cpu' ? process.resourceUsage().maxRSS * 1024 : gpuPeak(),
  tokens: settings.tokens,
}
for (const print of [console.log, console.error]) print(JSON.stringify(result)) // the second is seen at once
