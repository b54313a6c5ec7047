// Forward and backward of teacher-forced completions with adapters: 128 tokens each, K per prompt, one prompt or four in one pass; one
// also while other programs keep 16 cores busy.
import { spawn } from 'node:child_process'
import type { Example } from '../../src/data/index.ts'
import { teacherForceGroups } from '../../src/llm/index.ts'
import type { Sa2VAFamily } from '../../src/models/index.ts'
import type { Learner } from '../../src/run/index.ts'
import { backward, clearTape, noGrad, type Tensor, tidy } from '../../src/tensor/index.ts'
import { type BenchRow, median, row } from '../bench.ts'
import { now, onGpu, peakGiB, question, resetPeak } from './random-model.ts'

const [K, rounds] = [4, 4]
/** Limits on an H200 by prompts in a pass: milliseconds, GiB. */
const limits = { 1: [60, null], 4: [210, 25] } as const
const busyCores = 16
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
        if (n > 1 || checkpointing) continue
        const busy = besideBusyCores(() => timedPasses(learner, () => forward(n, checkpointing), 40))
        rows.push(row(`  beside ${busyCores} busy cores`, median(busy.all), ms, 'ms'))
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
function timedPasses(
  learner: Learner,
  forward: () => Tensor,
  count = 2 * rounds,
): { all: number[]; forward: number[] } {
  const spent = { all: [] as number[], forward: [] as number[] }
  for (let i = 0; i < count; i++) {
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

/** Other programs: each in another session, as a user's are. Some systems share the cores among sessions. */
function besideBusyCores<R>(work: () => R): R {
  const loop = ['-e', 'for (const end = Date.now() + 60_000; Date.now() < end; ) {}'] // also if this process is killed
  const options = { stdio: 'ignore', detached: true } as const
  const others = Array.from({ length: onGpu ? busyCores : 1 }, () => spawn(process.execPath, loop, options))
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000) // until they have started
    return work()
  } finally {
    for (const other of others) other.kill('SIGKILL')
  }
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
