// Milliseconds per decoding step of `generate` at 4, 16 and 64 rows (4 samples per prompt), including the draws: with merged adapters,
// and with matrices in 8 or 4 bit, merged (what `auto` chooses on an H200) and with separate adapters. Also with three of four rows finished,
// and of a prompt of about 1,100 tokens.
import { RandomStream, stream } from '../../src/core/index.ts'
import type { Example } from '../../src/data/index.ts'
import { useKernels } from '../../src/kernels/index.ts'
import { decodePool, generate } from '../../src/llm/index.ts'
import type { Features, Prompt, Sa2VAFamily } from '../../src/models/index.ts'
import { Learner, type RunConfig } from '../../src/run/index.ts'
import { tidy, tidyNoGrad } from '../../src/tensor/index.ts'
import { type BenchRow, row } from '../bench.ts'
import { now, onGpu, randomModel, speakingFamily } from './random-model.ts'

/** ms on an H200. limit: required; memory: reading weights and cache once at full bandwidth; compiled: torch.compile in a CUDA graph. */
const cases = [
  { rows: 4, limit: 2.0, memory: 1.51, compiled: 3.37 },
  { rows: 16, limit: 2.3, memory: 1.64, compiled: 3.82 },
  { rows: 64, limit: 3.0, memory: 2.16, compiled: 4.43 },
]
const samples = 4
const [short, long] = onGpu ? [17, 145] : [3, 7]

const stopId = 0

/** Draws the stop token as its second token. */
class Ending extends RandomStream {
  override uniformAt(i: number): number {
    return i === 1 ? 0 : super.uniformAt(i) // the lowest id
  }
}

/** Of a call with so many tokens. `ended` of four prompts stop at once. */
function milliseconds(family: Sa2VAFamily, prompts: readonly Prompt[], ended: number, maxNewTokens: number): number {
  const { model, prompter } = family.loaded
  const from = now()
  const options = { samples, maxNewTokens, stopStrings: [], segId: -1, sampling: { temperature: 1 } }
  const stopIds = new Set(ended ? [stopId] : [])
  const random = (b: number, k: number) => (b % 4 < ended ? new Ending(...stream(b, k).key) : stream(b, k))
  tidy(() => generate(model, prompter.tokenizer, prompts, { ...options, stopIds, random }).length)
  return now() - from
}

/** Per token: the difference of a long and a short call removes prefill and graph capture. */
function perToken(once: (maxNewTokens: number) => number): number {
  once(long)
  once(short)
  return Math.min(...[0, 1, 2].map(() => (once(long) - once(short)) / (long - short)))
}

type Time = (rows: number, kernels: 'auto' | 'off', ended?: number | null) => number

function timesOf(family: Sa2VAFamily, learner: Learner, examples: readonly Example[]): Time {
  const prepared = examples.map((e) => family.prepare(e.image, { maxTiles: 3 }))
  const features: Features[] = tidyNoGrad(() => family.encode(prepared))
  return (rows, kernels, ended = 0) => {
    useKernels(kernels)
    const prompts = Array.from({ length: rows / samples }, (_, b) =>
      family.loaded.prompter.segment(features[b % features.length]!, examples[0]!.caption),
    )
    const once = (n: number) => milliseconds(family, prompts, ended ?? 0, n)
    // with its first token; what one call reads of a prompt would serve the next ones
    if (ended === null) return Math.min(...[1, 1, 1, 1].map((n) => learner.forSampling(() => once(n))).slice(1))
    return learner.forSampling(() => perToken(once))
  }
}

function resetDecoding(): void {
  useKernels('auto')
  decodePool.clear() // later rows use other shapes
}

export function decodeRows(family: Sa2VAFamily, learner: Learner, examples: readonly Example[]): BenchRow[] {
  const time = timesOf(family, learner, examples)
  const out = cases.flatMap(({ rows, limit, memory, compiled }) => {
    const auto = time(rows, 'auto')
    const name = `decode, ${rows} rows`
    return [
      row(`${name}, limit`, auto, limit, 'ms'),
      row(`${name}, memory alone`, auto, memory, 'ms'),
      row(`${name}, torch.compile`, auto, compiled, 'ms'),
      row(`${name}, kernels off`, auto, time(rows, 'off'), 'ms'),
      ...(rows > samples ? [row(`${name}, 3/4 of them finished`, time(rows, 'auto', 3), auto, 'ms')] : []),
    ]
  })
  out.push(row('a prompt, kernels off', time(samples, 'auto', null), time(samples, 'off', null), 'ms'))
  resetDecoding()
  return out
}

/** The same with quantized matrices, merged and with separate adapters; `other` is that of `plain`, the rows of decodeRows in bfloat16. */
export function quantizedDecodeRows(config: RunConfig, examples: readonly Example[], plain: readonly BenchRow[]) {
  const choices = [onGpu ? 'auto' : 'merged', 'exact'] as const
  return choices.flatMap((weights) => sampledRows({ ...config, sampling: { weights } }, examples, plain))
}

function sampledRows(config: RunConfig, examples: readonly Example[], plain: readonly BenchRow[]): BenchRow[] {
  const { frozenWeights: form } = config
  const family = speakingFamily(randomModel('4b', form), examples[0]!)
  const learner = new Learner(family, config)
  const { weights } = learner.sampling
  const time = timesOf(family, learner, examples)
  const inBfloat16 = (name: string) => plain.find((other) => other.name === name)!.ours
  const out = cases.flatMap(({ rows }) => {
    const auto = time(rows, 'auto')
    const name = `decode in ${form}, ${weights}, ${rows} rows`
    return [
      row(`${name}, bfloat16`, auto, inBfloat16(`decode, ${rows} rows, limit`), 'ms'),
      ...(weights === 'exact' ? [row(`${name}, kernels off`, auto, time(rows, 'off'), 'ms')] : []),
    ]
  })
  const prompt = time(samples, 'auto', null)
  out.push(row(`a prompt in ${form}, ${weights}, bfloat16`, prompt, inBfloat16('a prompt, kernels off'), 'ms'))
  const merge = () => -now() + learner.forSampling(now)
  if (weights === 'merged')
    out.push(row(`merging ${form}, once a role and step`, Math.min(...[0, 1, 2].map(merge)), null, 'ms'))
  resetDecoding()
  learner.dispose()
  for (const t of family.module.parameters().values()) t.dispose()
  return out
}
