// One life of a run, or of one of its ranks: node --import tsx work.ts KIND MODEL OUTPUT STEPS SAVE_STEPS [SECONDS]. Says what it holds
// after each of its steps; after SECONDS it ends in order.
import { readdirSync, readFileSync, writeSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { inWorld } from '../../src/distributed/index.ts'
import { sft, train } from '../../src/run/index.ts'
import { memory } from '../../src/tensor/index.ts'
import { hostOf, toyRun } from '../support/runs.ts'
import { type Held, looks } from './flat.ts'

const [kind, model, output, steps, saveSteps, seconds = 'Infinity'] = process.argv.slice(2)
const config = toyRun(model!, output!, {
  batchSize: Number(process.env['WORLD_SIZE'] ?? 1),
  maxSteps: Number(steps),
  saveSteps: Number(saveSteps),
  saveTotalLimit: 2,
  evalRecords: 2,
  evalSteps: 50,
  samplesMiB: 1,
  rl: { numGenerations: 2, maxCompletionLength: 3 },
})
setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

let step = 0

function held(): Held {
  const { rss, heapTotal, external } = process.memoryUsage()
  const { tensors, bytes, cachedBytes } = memory()
  const files = 1024 * Number(/^RssFile:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1])
  const handles = readdirSync('/proc/self/fd').length
  return { step, rss, heap: heapTotal + external, blocks: bytes + cachedBytes, files, tensors, handles }
}

const host = hostOf(undefined, {
  stopping: () => performance.now() > 1000 * Number(seconds),
  // after every step, on every rank: progress is rank 0's
  yieldToLoop: async () => {
    if (++step % looks === 0) collectGarbage()
    writeSync(1, `${JSON.stringify(held())}\n`)
  },
})
if (kind === 'sft') await sft(config, { everything: false, maskWeight: 1, exportTo: null }, host)
else await inWorld({}, (world) => train(config, host, undefined, world))
