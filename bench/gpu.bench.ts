// The Sa2VA-4B shape with random bfloat16 weights on a GPU: decoding, training passes and the whole step by phase. `other` is the limit on
// an H200, or what the name says. Without a GPU the tiny shape on the CPU, which shows that it runs. ROUNDTRIP_BENCH_STEPS: steps (3).
import { Learner, resolveRun } from '../src/run/index.ts'
import { randn, tidyNoGrad } from '../src/tensor/index.ts'
import { type BenchRow, row } from './bench.ts'
import { decodeRows, quantizedDecodeRows } from './gpu/decode.ts'
import { now, onGpu, placement, question, randomExample, randomModel, speakingFamily } from './gpu/random-model.ts'
import { stepRows } from './gpu/step.ts'
import { trainingRows } from './gpu/training.ts'

/** Products of two square bfloat16 matrices, the bound of prompts and learning. */
function productRow(): BenchRow {
  const [n, repeats] = onGpu ? [8192, 20] : [256, 2]
  return tidyNoGrad(() => {
    const [a, b] = [0, 1].map(() => randn([n, n], placement))
    const burst = () => {
      for (let i = 0; i < repeats; i++) a!.matmul(b!).dispose()
      return now()
    }
    const from = burst() // warm
    const seconds = (burst() - from) / 1000
    return row(`product of ${n} x ${n}`, (repeats * 2 * n ** 3) / seconds / 1e12, 600, 'TFLOP/s')
  })
}

export async function run(): Promise<BenchRow[]> {
  const plain = Number(process.env.ROUNDTRIP_BENCH_STEPS ?? 3)
  const config = resolveRun({
    model: 'random',
    dataPath: 'scenes:1',
    ...placement,
    maxTiles: 3,
    sampling: { weights: 'merged' },
    loop1: { question },
    rl: { numGenerations: 4, maxCompletionLength: onGpu ? 128 : 16 },
    ...(onGpu ? {} : { lora: { rank: 8, alpha: 16 } }),
  })
  const examples = [0, 1, 2, 3].map((i) => randomExample(i))
  const family = speakingFamily(randomModel(), examples[0]!)
  const from = now()
  const learner = new Learner(family, config)
  const rows = [row('new Learner', now() - from, null, 'ms'), productRow()]
  rows.push(...trainingRows(family, learner, examples)) // first: merged weights, which sampling allocates, would count in the peak
  rows.push(...(await stepRows(family, learner, config, examples, { plain, fenced: 1 })))
  const decoding = decodeRows(family, learner, examples)
  rows.push(
    ...decoding,
    ...(['int8', 'nf4'] as const).flatMap((frozenWeights) =>
      quantizedDecodeRows({ ...config, frozenWeights, checkpointing: true }, examples, decoding),
    ),
  )
  return rows
}
