// What a trainer of this method owes, on a toy model with both loops and the real step. The golden cases are in
// src/rl/verify.test.ts, splitting and garbage on bare log-probs in src/rl/grpo.test.ts. B rows, T tokens, S hidden, V vocabulary.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { stream, streamId } from '../../src/core/index.ts'
import { headLogProbs, type Sa2VA } from '../../src/models/index.ts'
import { tensorAt } from '../../src/nn/index.ts'
import { type GrpoInput, grpoLoss, type LossConfig, type LossType, lossTypes, resolveGrpo } from '../../src/rl/index.ts'
import { release, workItems } from '../../src/rl/records.ts'
import { contextOf, type Group, learn, plainDensities, type Run } from '../../src/rl/step.ts'
import { StepReport } from '../../src/rl/step-report.ts'
import { train } from '../../src/rl/trainer.ts'
import { backward, noGrad, stack, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'
import { changed, hashes, hostOf, makeToy, type Opened, openRun, runBytes, scratch, toyRun } from '../support/runs.ts'

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
function plainHead(model: Sa2VA, hidden: Tensor): Tensor {
  const logp = hidden.linear(model.decoder.headWeight.detach().to('float64')).div(0.9).logSoftmax(-1)
  const chosen = logp.gather(-1, tensor(ids).unsqueeze(-1)).squeeze(-1)
  const entropy = logp.exp().mul(logp).sum(-1).neg()
  return stack([chosen, entropy])
}

function normals(count: number, name: string): Float64Array {
  const random = stream(7, streamId.test, name)
  return Float64Array.from({ length: count }, (_, i) => Math.fround(random.normalAt(i)))
}

/** cispo and vespo weigh by values that carry no gradient: the loss is not its integral, and autograd through the plain head stands in. */
const stopped: ReadonlySet<LossType> = new Set(['cispo', 'vespo'])

test('the gradient through the chunked head is the finite difference of every loss type', () =>
  opened({}, ({ run }) => {
    const { model } = run.learner.loaded
    const start = normals(B * T * S, 'hidden')
    const direction = normals(B * T * S, 'direction')
    tidy(() => {
      const logps = noGrad(() =>
        plainHead(model, tensor(start, [B * T, S]))
          .select(0, 0)
          .reshape([B, T]),
      )
      const shift = tensor(away, [B, T])
      const fixed = { old: logps.add(shift), ref: logps.add(shift.mul(-0.6)) }
      for (const lossType of lossTypes) {
        const config = lossConfig(lossType)
        const h = tensor(Float32Array.from(start), [B * T, S]).requiresGrad_()
        backward(lossOf(headLogProbs(model.decoder, h, tensor(ids), 0.9, 5 * 497), fixed, config)) // chunks of 5, 5 and 2 rows
        const grad = h.grad()!.numbers()
        const slope = grad.reduce((sum, g, i) => sum + g * direction[i]!, 0)
        const lossAt = (step: number) =>
          lossOf(
            plainHead(
              model,
              tensor(
                start.map((v, i) => v + step * direction[i]!),
                [B * T, S],
              ),
            ),
            fixed,
            config,
          )
        const expected = stopped.has(lossType)
          ? plainSlope(model, start, direction, fixed, config)
          : (lossAt(1e-6).item() - lossAt(-1e-6).item()) / 2e-6
        const size = Math.sqrt(grad.reduce((sum, g) => sum + g * g, 0))
        assert.ok(size > 1e-2, `${lossType}: the gradient has norm ${size}`)
        assert.ok(Math.abs(slope - expected) < 2e-5 * Math.max(1, size), `${lossType}: ${slope} against ${expected}`)
      }
    })
  }))

function plainSlope(
  model: Sa2VA,
  start: Float64Array,
  direction: Float64Array,
  fixed: Fixed,
  config: LossConfig,
): number {
  const h = tensor(start, [B * T, S]).requiresGrad_()
  backward(lossOf(plainHead(model, h), fixed, config))
  return h
    .grad()!
    .numbers()
    .reduce((sum, g, i) => sum + g * direction[i]!, 0)
}

/** Columns that count, as [old, new] pairs. */
function pairs(run: Run, group: Group, old: Float32Array): [number, number][] {
  const now = tidy(() => {
    const { logps } = group.task.densities(contextOf(run), group.item, group.rollouts)
    assert.ok(logps.requiresGrad, 'the pass of the loss records a gradient')
    return logps.detach().numbers()
  })
  const counts = group.task.mask(contextOf(run), group.rollouts)
  return now.flatMap((v, i) => (counts[i] ? [[old[i]!, v] as [number, number]] : []))
}

for (const action of ['field', 'embedding'] as const) {
  test(`in the first of two passes every ratio is 1 within 1e-5, tokens and ${action} action alike`, () => {
    const train = ['mlp1', 'lora', 'text_hidden_fcs'] as const
    const more = action === 'embedding' ? { train: [...train] } : {}
    return opened({ rl: { numIterations: 2 }, loop2: { action }, ...more }, async ({ run, sample }) => {
      const groups = await sample()
      assert.equal(groups.length, 4)
      for (const group of groups) {
        const found = pairs(run, group, plainDensities(run, group))
        const columns = group.rollouts.reduce((n, r) => n + r.ids.length + (r.action ? 1 : 0), 0)
        assert.equal(found.length, columns)
        const worst = Math.max(...found.map(([a, b]) => Math.abs(Math.exp(b - a) - 1)))
        assert.ok(worst < 1e-5, `${group.task.name}: ${worst}`)
      }
    })
  })
}

test('in the second pass the ratio has moved', () =>
  opened({ rl: { numIterations: 2 } }, async ({ run, sample }) => {
    const groups = await sample()
    const old = groups.map((g) => plainDensities(run, g))
    learn(run, groups, 1e-2, new StepReport())
    groups.forEach((group, i) => {
      const worst = Math.max(...pairs(run, group, old[i]!).map(([a, b]) => Math.abs(Math.exp(b - a) - 1)))
      assert.ok(worst > 1e-3, `${group.task.name}: ${worst}`)
    })
  }))

/** Weights of the model outside what learns. */
function frozen({ learner }: Run): Map<string, string> {
  const mine = new Set(learner.slots.map((s) => s.name))
  const rest = learner.loaded.model.slots().filter((s) => !mine.has(s.name))
  return hashes(rest.map((s) => [s.name, tensorAt(s)]))
}

test('one step moves every LoRA B and every other trained tensor, two steps every LoRA A, and no frozen bit', () =>
  opened({}, async ({ run, sample }) => {
    const { learner } = run
    const still = frozen(run)
    const states = [hashes(learner.params())]
    const drawn = new Set<number>()
    for (let step = 0; step < 2; step++) {
      const groups = await sample(step)
      if (step === 0) for (const r of groups.flatMap((g) => g.rollouts)) if (r.action) drawn.add(r.action.choice)
      learn(run, groups, 1e-3, new StepReport())
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
    assert.deepEqual(changed(still, frozen(run)), [])
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
  opened({}, async ({ run, items, sample }) => {
    const groups = await sample()
    const item = items[0]!
    const image = { ...item.example.image, data: item.example.image.data.map((v) => 255 - v) }
    const [other] = workItems(run.learner, run.config, [{ ...item.example, image }], null)
    for (const group of groups.filter((g) => g.item === item)) {
      const here = plainDensities(run, group)
      const there = plainDensities(run, { ...group, item: other! })
      const moved = Math.max(...here.map((v, i) => Math.abs(v - there[i]!)))
      assert.ok(moved > 1e-3, `${group.task.name}: ${moved}`)
    }
    release([other!])
  }))

for (const lossType of ['grpo', 'dr_grpo', 'dapo'] as const) {
  test(`${lossType}: 4 records in 1, 2 or 4 micro-batches give the same weights bit for bit`, async () => {
    const found = []
    for (const parts of [1, 2, 4]) {
      const rl = { lossType, gradientAccumulationSteps: parts }
      const config = toyRun(toy, at(`split-${lossType}-${parts}`), {
        batchSize: 4 / parts,
        maxSteps: 2,
        saveSteps: 0,
        rl,
      })
      await train(config, hostOf())
      found.push(runBytes(config.output))
    }
    const weights = (run: Map<string, string>) =>
      ['adapter_model', 'trainables', 'ema', 'optimizer'].map((f) => run.get(`checkpoint_step_2/${f}.safetensors`))
    assert.ok(weights(found[0]!).every((hash) => hash !== undefined))
    for (const other of found.slice(1)) {
      assert.deepEqual(weights(other), weights(found[0]!))
      assert.equal(other.get('samples.jsonl'), found[0]!.get('samples.jsonl'))
    }
  })
}

test('the gradient of a step is the mean over its records: learned one by one they sum to it', () =>
  opened({ rl: { beta: 0.1 } }, async ({ run, sample }) => {
    const groups = await sample()
    const gradients = (some: readonly Group[]): Map<string, number[]> => {
      const taken = new Map<string, number[]>()
      const { optim } = run.learner
      const step = optim.step.bind(optim)
      optim.step = () => {
        for (const [name, t] of run.learner.params())
          taken.set(
            name,
            tidy(() => t.grad()?.numbers() ?? []),
          )
      }
      try {
        learn(
          { ...run, config: { ...run.config, optim: { ...run.config.optim, maxGradNorm: 0 } } },
          some,
          0,
          new StepReport(),
        )
      } finally {
        optim.step = step
      }
      return taken
    }
    const all = gradients(groups)
    const parts = run.tasks
      .flatMap((task) => [0, 1].map((i) => groups.filter((g) => g.task === task)[i]!))
      .map((g) => gradients([g]))
    for (const [name, values] of all) {
      const sums = values.map((_, i) => parts.reduce((sum, p) => sum + (p.get(name)![i] ?? 0), 0) / 2)
      const size = Math.max(...values.map(Math.abs), 1e-6)
      const worst = Math.max(0, ...values.map((v, i) => Math.abs(v - sums[i]!)))
      assert.ok(worst < 1e-4 * size, `${name}: ${worst} of ${size}`)
    }
  }))

test('2 steps, stop, 2 steps: every byte of weights, EMA, optimizer, events and samples is that of 4 steps', async () => {
  const input = { evalRecords: 3, saveSteps: 1, saveTotalLimit: 9, evalSteps: 3 }
  await train(toyRun(toy, at('four'), input), hostOf())
  let step = 0
  const halfway = hostOf(undefined, {
    stopping: () => step === 2,
    progress: (e) => {
      if (e.kind === 'step') step = e.step!
    },
  })
  const stoppedRun = await train(toyRun(toy, at('two'), input), halfway)
  assert.deepEqual([stoppedRun.step, stoppedRun.stopped], [2, true])
  const resumed = await train(toyRun(toy, at('two'), input), hostOf())
  assert.deepEqual([resumed.step, resumed.stopped], [4, false])
  const [four, two] = [runBytes(at('four')), runBytes(at('two'))]
  assert.deepEqual(two, four)
  assert.equal(four.size, 2 + 5 * 7)
})

test('garbage at masked columns of the stored log-probs changes neither loss nor weights', () =>
  opened({ rl: { beta: 0.1, numIterations: 2 } }, async ({ run, sample }) => {
    const groups = await sample()
    for (const g of groups) {
      if (g.task.name === 'loop1') g.rollouts = g.rollouts.map((r, k) => ({ ...r, ids: r.ids.subarray(0, 8 - 2 * k) }))
      g.old = plainDensities(run, g)
      g.reference = run.learner.asReference(() => plainDensities(run, g))
    }
    const spoiled = groups.map((g) => {
      const counts = g.task.mask(contextOf(run), g.rollouts)
      const spoil = (values: Float32Array) => values.map((v, i) => (counts[i] ? v : [Number.NaN, 1e4, -1e4][i % 3]!))
      return { ...g, old: spoil(g.old!), reference: spoil(g.reference!) }
    })
    assert.ok(
      spoiled.some((g) => g.old.some(Number.isNaN)),
      'there are masked columns',
    )
    const before = run.learner.params()
    const copies = new Map([...before].map(([name, t]) => [name, noGrad(() => t.detach().clone())]))
    const outcome = (some: readonly Group[]) => {
      const report = new StepReport()
      learn(run, some, 1e-3, report)
      const after = hashes(run.learner.params())
      noGrad(() => before.forEach((t, name) => void t.copy_(copies.get(name)!)))
      return { after, metrics: report.metrics(0) }
    }
    const emptied = run.learner.optim.state()
    for (const t of emptied.values()) if (t.ndim > 0) noGrad(() => void t.zero_())
    const clean = outcome(groups)
    run.learner.optim.load(new Map([...run.learner.optim.state()].map(([name, t]) => [name, t.mul(0)])))
    const dirty = outcome(spoiled)
    assert.deepEqual(dirty, clean)
    for (const t of copies.values()) t.dispose()
  }))
