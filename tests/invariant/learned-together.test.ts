// All records of a piece are learned from in one pass: prompts and answers of different lengths side by side, masks of several images
// drawn together. Nothing of it may be seen in the numbers: they are those of one record after the other. K samples, T columns.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import {
  allPlainDensities,
  columnsOf,
  type Group,
  type JointPass,
  plainDensities,
  step,
  type Task,
} from '../../src/rl/index.ts'
import type { RunConfig, RunInput } from '../../src/run/index.ts'
import { jointPass } from '../../src/tasks/cycle/joint.ts'
import { tidy } from '../../src/tensor/index.ts'
import { assertSameSums, inFloat64, roundingBound } from '../support/rounding.ts'
import { makeToy, type Opened, openRun, samplesIn, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('together')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const records = 3

async function opened<R>(input: Partial<RunInput>, use: (o: Opened, groups: Group[]) => Promise<R>): Promise<R> {
  return openedAs(toyRun(toy, join(folder, 'none'), input), async (o) => use(o, uneven(await o.sample(), o)))
}

async function openedAs<R>(config: RunConfig, use: (o: Opened) => Promise<R>): Promise<R> {
  const o = await openRun(config, records)
  try {
    return await use(o)
  } finally {
    o.dispose()
  }
}

/** Captions of other lengths in every group, and one record whose mask answers do not act. */
function uneven(groups: readonly Group[], { config, items }: Opened): Group[] {
  return groups.map((group) => {
    const b = items.indexOf(group.item as never)
    const samples = samplesIn(group).map((s, k) => {
      if (group.task.name === 'loop2') return b === 1 ? { ...s, action: null, ids: s.ids.slice(1) } : s
      const length = Math.max(1, s.ids.length - 2 * b - k)
      return { ...s, ids: s.ids.subarray(0, length), logps: s.logps.subarray(0, length) }
    })
    return { ...group, samples, columns: columnsOf(group.task, samples, config.rl) }
  })
}

const ways: Record<string, Partial<RunInput>> = {
  'both actions': {},
  'masks alone': { loop2: { action: 'field' }, train: ['mlp1', 'lora', 'mask_decoder'] },
  'prompts alone': { loop2: { action: 'embedding' }, train: ['mlp1', 'lora', 'text_hidden_fcs'] },
  'sampled words, mask loss': { loop2: { sampleText: true, maskLoss: 0.3 } },
}

for (const [name, input] of Object.entries(ways)) {
  test(`${name}: log-densities of all records in one pass are those of each alone`, () =>
    opened(input, async ({ run }, groups) => {
      for (const task of run.tasks) {
        const own = groups.filter((g) => g.task === task)
        assert.equal(own.length, records)
        const all = allPlainDensities(own)
        own.forEach((group, b) => {
          const alone = plainDensities(group)
          assert.equal(all[b]!.length, group.columns.mask.length)
          const far = Math.max(...alone.map((v, i) => Math.abs(v - all[b]![i]!) / Math.max(1, Math.abs(v))))
          assert.ok(far < roundingBound(256), `${task.name} ${b}: ${far}`)
        })
      }
    }))

  test(`${name}: gradients of one piece are those of a piece for each record`, () =>
    opened({ ...input, optim: { maxGradNorm: 0 }, rl: { beta: 0.1 } }, async (o, groups) => {
      for (const g of groups) g.reference = plainDensities(g) // stored in float32: the same numbers for all four passes
      const single = await bothWays(o, groups)
      const double = await openedAs(inFloat64(o.config), (exact) => bothWays(exact, samplesOf(groups, o, exact)))
      assertSameSums(
        { one: single.apart.taken, other: single.together.taken },
        { one: double.apart.taken, other: double.together.taken },
      )
      const [together, apart] = [single.together.metrics, single.apart.metrics]
      assert.deepEqual(Object.keys(together), Object.keys(apart))
      assertSameSums(
        { one: asNumbers(single.apart.metrics), other: asNumbers(single.together.metrics) },
        { one: asNumbers(double.apart.metrics), other: asNumbers(double.together.metrics) },
      )
    }))
}

/** Both round trips with a joint pass, which on the CPU they do not have: there an image would be read for every question all the same. */
function joined(o: Opened): Opened {
  const joint: JointPass = { with: o.cycle, prepare: (parts) => jointPass(o.cycle, parts as never) }
  for (const task of o.run.tasks) Object.defineProperty(task, 'joint', { value: joint })
  return o
}

test('gradients and metrics of both round trips in one pass are those of one after the other', () =>
  opened({ optim: { maxGradNorm: 0 }, rl: { beta: 0.1 }, loop1: { weight: 0.7 } }, async (o, groups) => {
    const inFloat32 = await inBothPasses(o, groups)
    const inDouble = await openedAs(inFloat64(o.config), (exact) => inBothPasses(exact, samplesOf(groups, o, exact)))
    assertSameSums(
      { one: inFloat32.alone.taken, other: inFloat32.joint.taken },
      { one: inDouble.alone.taken, other: inDouble.joint.taken },
    )
    assert.deepEqual(Object.keys(inFloat32.joint.metrics), Object.keys(inFloat32.alone.metrics))
    assertSameSums(
      { one: asNumbers(inFloat32.alone.metrics), other: asNumbers(inFloat32.joint.metrics) },
      { one: asNumbers(inDouble.alone.metrics), other: asNumbers(inDouble.joint.metrics) },
    )
  }))

async function inBothPasses(o: Opened, groups: readonly Group[]) {
  const again = () => groups.map((g) => ({ ...g, reference: null }))
  const alone = await gradients(o, again(), [o.items.slice(0, 2), o.items.slice(2)])
  let passes = 0
  const [{ joint }] = joined(o).run.tasks as [Task]
  const { prepare } = joint!
  joint!.prepare = (parts) => {
    assert.equal(parts.length, 2)
    const score = prepare(parts)
    return () => {
      passes++
      return score()
    }
  }
  const inOne = await gradients(o, again(), [o.items.slice(0, 2), o.items.slice(2)])
  assert.equal(passes, 4, 'two pieces, each under the reference and with gradient')
  return { alone, joint: inOne }
}

const asNumbers = (metrics: Readonly<Record<string, number>>) =>
  new Map(Object.entries(metrics).map(([key, value]) => [key, [value]]))

/** The same samples and advantages for another opening of the same model. */
function samplesOf(groups: readonly Group[], from: Opened, to: Opened): Group[] {
  return groups.map((g) => {
    const task = to.run.tasks.find((t) => t.name === g.task.name)!
    return { ...g, task, item: to.items[from.items.indexOf(g.item as never)]! }
  })
}

async function bothWays(o: Opened, groups: readonly Group[]) {
  return {
    together: await gradients(o, groups, [o.items]),
    apart: await gradients(
      o,
      groups,
      o.items.map((item) => [item]),
    ),
  }
}

/** What a step hands to the optimizer, which does not act. */
async function gradients(o: Opened, groups: readonly Group[], pieces: Opened['items'][]) {
  const { optim } = o.learner
  const update = optim.step.bind(optim)
  const taken = new Map<string, number[]>()
  optim.step = () => {
    for (const [param, t] of o.learner.params())
      taken.set(
        param,
        tidy(() => t.grad()?.numbers() ?? []),
      )
  }
  const report = await step(o.run, { draw: { seed: 1, step: 0 }, pieces, groups }, 0)
  optim.step = update
  return { taken, metrics: report.metrics(0) }
}
