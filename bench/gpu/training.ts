// Forward and backward of teacher-forced completions with adapters: 128 tokens each, K per prompt, one prompt or four in one pass.
import type { Example } from '../../src/data/index.ts'
import { teacherForceGroups } from '../../src/llm/index.ts'
import type { Sa2VAFamily } from '../../src/models/index.ts'
import type { Learner } from '../../src/run/index.ts'
import { backward, clearTape, noGrad, type Tensor, tidy } from '../../src/tensor/index.ts'
import { type BenchRow, median, row } from '../bench.ts'
import { now, peakGiB, question, resetPeak } from './random-model.ts'

const [K, rounds] = [4, 4]
/** Limits on an H200 by prompts in a pass: milliseconds, GiB. */
const limits = { 1: [70, null], 4: [210, 25] } as const
const recomputedLimits = { 1: [null, null], 4: [250, 16] } as const

export function trainingRows(family: Sa2VAFamily, learner: Learner, examples: readonly Example[]): BenchRow[] {
  return tidy(() => {
    const features = noGrad(() => family.encode(examples.map((e) => family.prepare(e.image, { maxTiles: 3 }))))
    const prompts = examples.map((e, b) => family.describe(features[b]!, e.mask, question))
    const { vocab_size: V } = family.model.decoder.cfg
    const completion = (b: number, k: number) =>
      Int32Array.from({ length: 128 }, (_, t) => (b * 7919 + k * 104729 + t * 1299709) % (V - 100))
    const groups = prompts.map((_, b) => Array.from({ length: K }, (_, k) => completion(b, k)))
    const forward = (n: number, checkpointing: boolean) =>
      teacherForceGroups(family.model, prompts.slice(0, n), groups.slice(0, n), { checkpointing })
        .logProbs()
        .logps.mean()
        .neg()
    const rows: BenchRow[] = []
    for (const n of [1, 4] as const)
      for (const checkpointing of [false, true]) {
        const name = `training pass, ${n} x ${K} completions after ${prompts[0]!.ids.length} tokens${checkpointing ? ', recomputed' : ''}`
        const [ms, gib] = (checkpointing ? recomputedLimits : limits)[n]
        resetPeak()
        const spent = timedPasses(learner, () => forward(n, checkpointing))
        rows.push(row(name, median(spent.all), ms, 'ms'), row('  of it forward', median(spent.forward), null, 'ms'))
        rows.push(row('  peak', peakGiB(), gib, 'GiB'))
      }
    for (const n of [1, 4] as const)
      rows.push(
        row(
          `reference pass, ${n} x ${K} completions`,
          median(referencePasses(learner, () => forward(n, false))),
          null,
          'ms',
        ),
      )
    return rows
  })
}

/** A pass as a step runs it, without waiting for the GPU between its halves; every other one waits there and gives the forward half. */
function timedPasses(learner: Learner, forward: () => Tensor): { all: number[]; forward: number[] } {
  const spent = { all: [] as number[], forward: [] as number[] }
  for (let i = 0; i < 2 * rounds; i++) {
    tidy(() => {
      const from = now()
      const loss = tidy(forward)
      const between = i % 2 === 0 ? 0 : now()
      backward(loss)
      const to = now()
      if (i < 2) return
      if (between) spent.forward.push(between - from)
      else spent.all.push(to - from)
    })
    clearTape()
    learner.optim.zeroGrad()
  }
  return spent
}

function referencePasses(learner: Learner, forward: () => Tensor): number[] {
  const spent: number[] = []
  for (let i = 0; i < rounds; i++)
    learner.asReference(() =>
      tidy(() => {
        const from = now()
        forward()
        if (i > 0) spent.push(now() - from)
      }),
    )
  return spent
}
