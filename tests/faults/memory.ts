// Allocations that fail: the tensors of a step are too many, or the process may not have more memory.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { newestValid } from '../../src/checkpoint/index.ts'
import { taskKinds } from '../../src/tasks/index.ts'
import { memory, zeros } from '../../src/tensor/index.ts'
import { storedWeights } from '../support/runs.ts'
import { type Bench, refusal } from './bench.ts'
import { quick, type Row } from './row.ts'

type Phase = 'sample' | 'densities'

/** More than any machine has: the allocator itself says no. */
const tooMuch = () => zeros([2 ** 45])

/** A run in which, after step 1, a phase of every task asks for too much memory when it is given more than `most` records. */
async function short(bench: Bench, output: string, phase: Phase, most: number): Promise<void> {
  const kind = taskKinds.cycle
  const { build } = kind
  const first = join(bench.at(output), 'checkpoint_step_1')
  kind.build = (...parts) =>
    build(...parts).map((task) => {
      const whole = task[phase].bind(task) as (...args: unknown[]) => never
      const asked = (items: readonly object[], ...more: unknown[]) => {
        if (items.length > most && existsSync(first)) tooMuch()
        return whole(items, ...more)
      }
      return Object.assign(task, { [phase]: asked })
    })
  try {
    await bench.train(output, two)
  } finally {
    kind.build = build
  }
}

const files = ['trainables', 'adapter_model', 'ema', 'optimizer']
const two = { batchSize: 2, maxSteps: 2 }

/** Halves of a batch learn what the whole batch learns; matrix products of other sizes round in other places. */
function assertSame(bench: Bench, output: string): number {
  const [weights, calm] = [output, 'memory-calm'].map((name) => storedWeights(bench.at(name), 2, files))
  let most = 0
  for (const [name, values] of calm!)
    values.forEach((v, i) => {
      most = Math.max(most, Math.abs(v - weights!.get(name)![i]!))
    })
  assert.ok(most < 1e-5, `weights differ by ${most}`)
  return most
}

async function memoryEnds(bench: Bench): Promise<string> {
  await bench.train('memory-calm', two)
  const live = memory().tensors
  for (const phase of ['sample', 'densities'] as const) {
    await short(bench, `memory-${phase}`, phase, 1)
    const warnings = bench.events(`memory-${phase}`).filter((e) => e.t === 'warning')
    assert.match(JSON.stringify(warnings), /out of memory with 2 records at a time: once more with 1/)
    assertSame(bench, `memory-${phase}`)
    assert.equal(memory().tensors, live, `tensors left after ${phase}`)
    const never = () => short(bench, `memory-none-${phase}`, phase, 0)
    await refusal(never, /step: memory: expected room for the tensors of a step, got out of memory: asked for/)
    assert.equal(newestValid(bench.at(`memory-none-${phase}`)).checkpoint?.step, 1)
    assert.equal(memory().tensors, live, `tensors left after a stop in ${phase}`)
  }
  return 'in sampling and in learning: once more with half of the records, the same weights, no tensor left; else a stop with a clear message after step 1'
}

export const allocations: readonly Row[] = [
  quick(27, 'memory', 'no memory for the tensors of a step', 'ends', memoryEnds),
]
