// Decoding through generate with merged adapters, draws included: milliseconds a token-step at 4, 16 and 64 rows, 4 samples a prompt.
import { stream } from '../../src/core/index.ts'
import type { Example } from '../../src/data/index.ts'
import { useKernels } from '../../src/kernels/index.ts'
import { decodePool, type Features, generate, type Prompt, type Sa2VAFamily } from '../../src/models/index.ts'
import type { Learner } from '../../src/run/index.ts'
import { noGrad, tidy } from '../../src/tensor/index.ts'
import { type BenchRow, row } from '../bench.ts'
import { now, onCard } from './random-model.ts'

/** Rows; what must hold on an H200; reading weights and cache once at its memory's speed; torch.compile in a CUDA graph there. */
const cases = [
  { rows: 4, limit: 2.2, memory: 1.51, compiled: 3.37 },
  { rows: 16, limit: 2.6, memory: 1.64, compiled: 3.82 },
  { rows: 64, limit: 3.4, memory: 2.16, compiled: 4.43 },
]
const samples = 4
const [short, long] = onCard ? [17, 145] : [3, 7]

/** Prefill and recording are taken out by difference; the best of three. */
function msAToken(family: Sa2VAFamily, prompts: readonly Prompt[]): number {
  const { model, prompter } = family.loaded
  const once = (maxNewTokens: number) => {
    const from = now()
    const options = { samples, maxNewTokens, stopStrings: [], segId: -1, sampling: { temperature: 1 } }
    tidy(() => generate(model, prompter.tokenizer, prompts, { ...options, random: (b, k) => stream(b, k) }).length)
    return now() - from
  }
  once(long)
  once(short)
  return Math.min(...[0, 1, 2].map(() => (once(long) - once(short)) / (long - short)))
}

export function decodeRows(family: Sa2VAFamily, learner: Learner, examples: readonly Example[]): BenchRow[] {
  const prepared = examples.map((e) => family.prepare(e.image, { maxTiles: 3 }))
  const features: Features[] = noGrad(() => tidy(() => family.encode(prepared)))
  const time = (rows: number, kernels: 'auto' | 'off') => {
    useKernels(kernels)
    const prompts = Array.from({ length: rows / samples }, (_, b) =>
      family.loaded.prompter.segment(features[b % features.length]!, examples[0]!.caption),
    )
    return learner.forSampling(() => msAToken(family, prompts))
  }
  const out = cases.flatMap(({ rows, limit, memory, compiled }) => {
    const auto = time(rows, 'auto')
    const name = `decode, ${rows} rows`
    return [
      row(`${name}, limit`, auto, limit, 'ms'),
      row(`${name}, memory alone`, auto, memory, 'ms'),
      row(`${name}, torch.compile`, auto, compiled, 'ms'),
      row(`${name}, kernels off`, auto, time(rows, 'off'), 'ms'),
    ]
  })
  useKernels('auto')
  decodePool.clear() // what follows takes no such shapes
  return out
}
