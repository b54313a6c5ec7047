// What a trainer of this method owes, on a toy model with both loops and the real step. The golden cases are in
// src/rl/verify.test.ts, splitting and garbage on bare log-probs in src/rl/grpo.test.ts. B rows, T tokens, S hidden, V vocabulary.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { stream, streamId } from '../../src/core/index.ts'
import { type Decoder, headLogProbs } from '../../src/llm/index.ts'
import { tensorAt } from '../../src/nn/index.ts'
import {
  columnsOf,
  type Group,
  type GrpoInput,
  grpoLoss,
  type LossConfig,
  type LossType,
  lossTypes,
  plainDensities,
  resolveGrpo,
} from '../../src/rl/index.ts'
import { type RunInput, train } from '../../src/run/index.ts'
import { backward, memory, noGrad, resetPeak, stack, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { largest, roundingBound } from '../support/rounding.ts'
import {
  changed,
  hashes,
  hostOf,
  makeToy,
  type Opened,
  openRun,
  runBytes,
  samplesIn,
  scratch,
  stoppingAfter,
  storedWeights,
  toyRun,
} from '../support/runs.ts'

const folder = scratch('obligations')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

async function opened<R>(input: Parameters<typeof toyRun>[2], use: (o: Opened) => Promise<R> | R): Promise<R> {
  const o = await openRun(toyRun(toy, at('none'), input))
  try {
    return await use(o)
  } finally {
    o.dispose()
  }
}

const [B, T, S] = [4, 3, 32]
const wide = { dtype: 'float64' } as const
const mask = [1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1]
const ids = BigInt64Array.from({ length: B * T }, (_, i) => BigInt((i * 71 + 13) % 497))
/** Old and reference log-probs as distances from the policy's: some ratios lie beyond the clip, none on its edge. */
const away = Float64Array.from({ length: B * T }, (_, i) => [0.05, -0.5, 0.4, -0.08, 0.5, -0.4][i % 6]!)

function lossConfig(lossType: LossType): LossConfig {
  const more: Partial<Record<LossType, GrpoInput>> = {
    luspo: { importanceSamplingLevel: 'sequence', beta: 0 },
    cispo: { epsilonHigh: 5 },
  }
  const rl = resolveGrpo({ lossType, beta: 0.04, entropyCoef: 0.03, maxCompletionLength: 4, ...more[lossType] })
  return { ...rl, numItemsInBatch: mask.reduce((a, b) => a + b, 0) }
}

interface Fixed {
  old: Tensor
  ref: Tensor
}

function lossOf(scored: Tensor, fixed: Fixed, config: LossConfig): Tensor {
  const [logps, entropies] = [0, 1].map((i) => scored.select(0, i).reshape([B, T])) as [Tensor, Tensor]
  const to = (t: Tensor) => t.to(logps.dtype)
  return grpoLoss(
    {
      logps,
      oldLogps: to(fixed.old),
      refLogps: config.beta === 0 ? null : to(fixed.ref),
      mask: tensor(mask, [B, T], wide),
      advantages: tensor([1.2, -0.7, 0.4, -0.9], wide),
      entropies,
    },
    config,
  ).loss
}

/** The head at once, in float64: an independent way to the same scores. */
function plainHead(decoder: Decoder, hidden: Tensor): Tensor {
  const logp = hidden.linear(decoder.headWeight.detach().to('float64')).div(0.9).logSoftmax(-1)
  const chosen = logp.gather(-1, tensor(ids).unsqueeze(-1)).squeeze(-1)
  const entropy = logp.exp().mul(logp).sum(-1).neg()
  return stack([chosen, entropy])
}

function normals(count: number, name: string): Float64Array {
  const random = stream(7, streamId.test, name)
  return Float64Array.from({ length: count }, (_, i) => Math.fround(random.normalAt(i)))
}

/** cispo and vespo weigh by values that carry no gradient: the loss is not its integral, so autograd through the plain head is used. */
const stopped: ReadonlySet<LossType> = new Set(['cispo', 'vespo'])

test('the gradient through the chunked head is the finite difference of every loss type', () =>
  opened({}, ({ cycle }) => {
    const { decoder } = cycle.family.model
    const start = normals(B * T * S, 'hidden')
    const direction = normals(B * T * S, 'direction')
    tidy(() => {
      const logps = noGrad(() =>
        plainHead(decoder, tensor(start, [B * T, S]))
          .select(0, 0)
          .reshape([B, T]),
      )
      const shift = tensor(away, [B, T])
      const fixed = { old: logps.add(shift), ref: logps.add(shift.mul(-0.6)) }
      for (const lossType of lossTypes) {
        const config = lossConfig(lossType)
        const h = tensor(Float32Array.from(start), [B * T, S]).requiresGrad_()
        backward(lossOf(headLogProbs(decoder, h, tensor(ids), 0.9, 5 * 497), fixed, config)) // chunks of 5, 5 and 2 rows
        const grad = h.grad()!.numbers()
        const slope = grad.reduce((sum, g, i) => sum + g * direction[i]!, 0)
        const lossAt = (step: number) =>
          lossOf(
            plainHead(
              decoder,
              tensor(
                start.map((v, i) => v + step * direction[i]!),
                [B * T, S],
              ),
            ),
            fixed,
            config,
          )
        const expected = stopped.has(lossType)
          ? plainSlope(decoder, start, direction, fixed, config)
          : (lossAt(1e-6).item() - lossAt(-1e-6).item()) / 2e-6
        const size = Math.sqrt(grad.reduce((sum, g) => sum + g * g, 0))
        assert.ok(size > 1e-2, `${lossType}: the gradient has norm ${size}`)
        assert.ok(Math.abs(slope - expected) < 2e-5 * Math.max(1, size), `${lossType}: ${slope} against ${expected}`)
      }
    })
  }))

function plainSlope(
  decoder: Decoder,
  start: Float64Array,
  direction: Float64Array,
  fixed: Fixed,
  config: LossConfig,
): number {
  const h = tensor(start, [B * T, S]).requiresGrad_()
  backward(lossOf(plainHead(decoder, h), fixed, config))
  return h
    .grad()!
    .numbers()
    .reduce((sum, g, i) => sum + g * direction[i]!, 0)
}

/** Columns that count, as [old, new] pairs. */
function pairs(group: Group, old: Float32Array): [number, number][] {
  const now = tidy(() => {
    const { logps } = group.task.densities([group.item], [group.samples])[0]!
    assert.ok(logps.requiresGrad, 'the pass of the loss records a gradient')
    return logps.detach().numbers()
  })
  const counts = group.columns.mask
  return now.flatMap((v, i) => (counts[i] ? [[old[i]!, v] as [number, number]] : []))
}

for (const action of ['both', 'field', 'embedding'] as const) {
  test(`in the first of two passes every ratio is 1 within 1e-5, tokens and ${action} action alike`, () => {
    const last = action === 'embedding' ? 'text_hidden_fcs' : 'mask_decoder'
    const more: Partial<RunInput> = action === 'both' ? {} : { train: ['mlp1', 'lora', last] }
    return opened({ rl: { numIterations: 2 }, loop2: { action }, ...more }, async ({ sample }) => {
      const groups = await sample()
      assert.equal(groups.length, 4)
      for (const group of groups) {
        const found = pairs(group, plainDensities(group))
        const columns = samplesIn(group).reduce(
          (n, r) => n + r.ids.length + (r.action ? group.columns.all - group.columns.tokens : 0),
          0,
        )
        assert.equal(found.length, columns)
        const worst = Math.max(...found.map(([a, b]) => Math.abs(Math.exp(b - a) - 1)))
        assert.ok(worst < 1e-5, `${group.task.name}: ${worst}`)
      }
    })
  })
}

test('in the second pass the ratio has moved', () =>
  opened({ rl: { numIterations: 2 } }, async ({ learn, sample }) => {
    const groups = await sample()
    const old = groups.map((g) => plainDensities(g))
    await learn(groups, 1e-2)
    groups.forEach((group, i) => {
      const worst = Math.max(...pairs(group, old[i]!).map(([a, b]) => Math.abs(Math.exp(b - a) - 1)))
      assert.ok(worst > 1e-3, `${group.task.name}: ${worst}`)
    })
  }))

/** Weights of the model outside what learns. */
function frozen({ learner }: Pick<Opened, 'learner'>): Map<string, string> {
  const mine = new Set(learner.slots.map((s) => s.name))
  const rest = learner.family.module.slots().filter((s) => !mine.has(s.name))
  return hashes(rest.map((s) => [s.name, tensorAt(s)]))
}

test('one step moves every LoRA B and every other trained tensor, two steps every LoRA A, and no frozen bit', () =>
  opened({}, async ({ learner, learn, sample }) => {
    const still = frozen({ learner })
    const states = [hashes(learner.params())]
    const drawn = new Set<number>()
    for (let step = 0; step < 2; step++) {
      const groups = await sample(step)
      if (step === 0) for (const r of groups.flatMap(samplesIn)) if (r.action) drawn.add(r.action.choice)
      await learn(groups, 1e-3)
      states.push(hashes(learner.params()))
    }
    const names = [...states[0]!.keys()]
    const isA = (name: string) => name.includes('.lora_A.')
    const first = changed(states[0]!, states[1]!)
    assert.deepEqual(
      names.filter((n) => !isA(n) && !first.includes(n)),
      unreached(names, drawn),
    )
    assert.deepEqual(first.filter(isA), [])
    assert.deepEqual(changed(states[1]!, states[2]!).filter(isA), names.filter(isA))
    assert.ok(names.filter(isA).length === 14, '7 linear layers in each of 2 layers')
    assert.deepEqual(changed(still, frozen({ learner })), [])
    assert.ok(still.size > 100)
  }))

/** Heads that rate masks or say whether an object is there have no part in a mask's values, nor do outputs that were not chosen. */
function unreached(names: readonly string[], choices: ReadonlySet<number>): string[] {
  return names.filter((n) => {
    const output = /output_hypernetworks_mlps\.(\d)\./.exec(n)?.[1]
    return output ? !choices.has(Number(output) - 1) : /iou_prediction_head|pred_obj_score_head/.test(n)
  })
}

test('another image changes the log-probs of both loops', () =>
  opened({}, async ({ encoder, items, sample }) => {
    const groups = await sample()
    const item = items[0]!
    const image = { ...item.example.image, data: item.example.image.data.map((v) => 255 - v) }
    encoder.with([{ ...item.example, image }], ([other]) => {
      for (const group of groups.filter((g) => g.item === item)) {
        const here = plainDensities(group)
        const there = plainDensities({ ...group, item: other! })
        const moved = Math.max(...here.map((v, i) => Math.abs(v - there[i]!)))
        assert.ok(moved > 1e-3, `${group.task.name}: ${moved}`)
      }
    })
  }))

/** Weights after two optimizer steps of 4 records each, what was sampled, and the largest share of memory in tensors. */
async function split(name: string, batchSize: number, rl: GrpoInput) {
  const config = toyRun(toy, at(name), { batchSize, maxSteps: 2, saveSteps: 0, rl })
  resetPeak()
  const before = memory().bytes
  await train(config, hostOf())
  const samples = [...readRun(config.output).samples()].map(({ step, loop, id, k, text, total }) => {
    return { step, loop, id, k, text, total }
  })
  const weights = storedWeights(config.output, 2, ['adapter_model', 'trainables', 'ema'])
  const order = (a: { loop: string; id: string }, b: { loop: string; id: string }) =>
    a.loop + a.id < b.loop + b.id ? -1 : 1
  return { weights, samples: samples.sort(order), peak: memory().peakBytes - before }
}

function farthest(a: Map<string, number[]>, b: Map<string, number[]>): number {
  assert.deepEqual([...a.keys()], [...b.keys()])
  let far = 0
  for (const [name, values] of a)
    for (const [i, v] of values.entries()) far = Math.max(far, Math.abs(v - b.get(name)![i]!))
  return far
}

for (const lossType of ['grpo', 'dr_grpo', 'dapo'] as const) {
  test(`${lossType}: 4 records in 1, 2 or 4 micro-batches draw the same samples and give the same weights within 1e-5`, async () => {
    const whole = await split(`split-${lossType}-1`, 4, { lossType })
    for (const parts of [2, 4]) {
      const rl = { lossType, gradientAccumulationSteps: parts }
      const other = await split(`split-${lossType}-${parts}`, 4 / parts, rl)
      assert.deepEqual(other.samples, whole.samples)
      assert.ok(farthest(other.weights, whole.weights) < 1e-5, `${farthest(other.weights, whole.weights)}`)
    }
  })
}

test('several generations in one step, or one for two steps, learn from the same records in the same steps', async () => {
  const rl = { gradientAccumulationSteps: 4 }
  const one = await split('spg-4', 1, { ...rl, stepsPerGeneration: 4 })
  assert.equal(one.samples.length, 2 * 2 * 4 * 3, '2 steps, 2 loops, 4 records, 3 samples')
  for (const stepsPerGeneration of [1, 2]) {
    const other = await split(`spg-${stepsPerGeneration}`, 1, { ...rl, stepsPerGeneration })
    assert.deepEqual(other.samples, one.samples)
    assert.ok(farthest(other.weights, one.weights) < 1e-5)
  }
  // with 8 the second step learns from samples of the first weights: the records are the same, their samples not
  const eight = await split('spg-8', 1, { ...rl, stepsPerGeneration: 8 })
  assert.deepEqual([...new Set(eight.samples.map((s) => s.step))], [1])
  assert.deepEqual(new Set(eight.samples.map((s) => s.id)), new Set(one.samples.map((s) => s.id)))
})

test('accumulation bounds memory: 8 micro-batches peak within a tenth of what 2 need', async () => {
  const peakOf = async (parts: number) =>
    (await split(`peak-${parts}`, 1, { gradientAccumulationSteps: parts, numGenerations: 3 })).peak
  const [two, eight] = [await peakOf(2), await peakOf(8)]
  assert.ok(eight < 1.1 * two, `${two} and ${eight} bytes`)
})

test('the gradient of a step is the mean over its records: learned one by one they sum to it', () =>
  opened({ rl: { beta: 0.1 }, optim: { maxGradNorm: 0 } }, async ({ learner, learn, run, sample }) => {
    const groups = await sample()
    const gradients = async (part: readonly Group[]): Promise<Map<string, number[]>> => {
      const taken = new Map<string, number[]>()
      const { optim } = learner
      const step = optim.step.bind(optim)
      optim.step = () => {
        for (const [name, t] of learner.params())
          taken.set(
            name,
            tidy(() => t.grad()?.numbers() ?? []),
          )
      }
      try {
        await learn(part, 0)
      } finally {
        optim.step = step
      }
      return taken
    }
    const all = await gradients(groups)
    const parts: Map<string, number[]>[] = []
    for (const task of run.tasks)
      for (const g of groups.filter((other) => other.task === task)) parts.push(await gradients([g]))
    assert.equal(parts.length, 4)
    const rounding = roundingBound(16, Math.max(...[...all.values()].map(largest)))
    for (const [name, values] of all) {
      const sums = values.map((_, i) => parts.reduce((sum, p) => sum + (p.get(name)![i] ?? 0), 0) / 2)
      const size = Math.max(...values.map(Math.abs), 1e-6)
      if (/k_proj\.bias$/.test(name)) {
        // a softmax does not see what all of its keys have in common: the true gradient is 0, and what is there is rounding
        assert.ok(
          [...values, ...sums].every((v) => Math.abs(v) < rounding),
          `${name}: ${size}`,
        )
        continue
      }
      const worst = Math.max(0, ...values.map((v, i) => Math.abs(v - sums[i]!)))
      assert.ok(worst < Math.max(1e-4 * size, rounding), `${name}: ${worst} of ${size}`)
    }
  }))

test('2 steps, stop, 2 steps: every byte of weights, EMA, optimizer, events and samples is that of 4 steps', async () => {
  const input = { evalRecords: 3, saveSteps: 1, saveTotalLimit: 9, evalSteps: 3 }
  await train(toyRun(toy, at('four'), input), hostOf())
  const halfway = stoppingAfter(2)
  const stoppedRun = await train(toyRun(toy, at('two'), input), halfway)
  assert.deepEqual([stoppedRun.step, stoppedRun.stopped], [2, true])
  const resumed = await train(toyRun(toy, at('two'), input), hostOf())
  assert.deepEqual([resumed.step, resumed.stopped], [4, false])
  const [four, two] = [runBytes(at('four')), runBytes(at('two'))]
  assert.deepEqual(two, four)
  assert.equal(four.size, 2 + 5 * 7)
})

test('garbage at masked columns of the stored log-probs changes neither loss nor weights', () =>
  opened({ rl: { beta: 0.1, numIterations: 2 } }, async ({ config, learner, learn, sample }) => {
    const groups = (await sample()).map((g) => {
      if (g.task.name !== 'loop1') return g
      const samples = g.samples.map((r, k) => ({
        ...r,
        ids: r.ids.subarray(0, 8 - 2 * k),
        logps: r.logps.subarray(0, 8 - 2 * k),
      }))
      return { ...g, samples, columns: columnsOf(g.task, samples, config.rl) }
    })
    for (const g of groups) {
      g.old = plainDensities(g)
      g.reference = learner.asReference(() => plainDensities(g))
    }
    const spoiled = groups.map((g) => {
      const counts = g.columns.mask
      const spoil = (values: Float32Array) => values.map((v, i) => (counts[i] ? v : [Number.NaN, 1e4, -1e4][i % 3]!))
      return { ...g, old: spoil(g.old!), reference: spoil(g.reference!) }
    })
    assert.ok(
      spoiled.some((g) => g.old.some(Number.isNaN)),
      'there are masked columns',
    )
    const before = learner.params()
    const copies = new Map([...before].map(([name, t]) => [name, noGrad(() => t.detach().clone())]))
    const outcome = async (part: readonly Group[]) => {
      const report = await learn(part, 1e-3)
      const after = hashes(learner.params())
      noGrad(() => before.forEach((t, name) => void t.copy_(copies.get(name)!)))
      return { after, metrics: report.metrics(0) }
    }
    const emptied = learner.optim.state()
    for (const t of emptied.values()) if (t.ndim > 0) noGrad(() => void t.zero_())
    const clean = await outcome(groups)
    learner.optim.load(new Map([...learner.optim.state()].map(([name, t]) => [name, t.mul(0)])))
    const dirty = await outcome(spoiled)
    assert.deepEqual(dirty, clean)
    for (const t of copies.values()) t.dispose()
  }))
