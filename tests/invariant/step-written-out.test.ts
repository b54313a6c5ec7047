// What the step hands to the loss and to the optimizer, against the same step written out in the test: which weights answer, which
// numbers weigh, divide, clip and steer. Each of these was once free to be wrong without a test that noticed. K samples, T columns.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { teacherForce } from '../../src/llm/index.ts'
import { toDense } from '../../src/mask/index.ts'
import { columnsOf, type Group, plainDensities } from '../../src/rl/index.ts'
import { type RunInput, train } from '../../src/run/index.ts'
import type { WorkItem } from '../../src/tasks/index.ts'
import { backward, cat, clearTape, noGrad, type Tensor, tensor, tidy, zeros } from '../../src/tensor/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { largest, roundingBound } from '../support/rounding.ts'
import {
  hashes,
  hostOf,
  makeToy,
  type Opened,
  openRun,
  samplesIn,
  scratch,
  storedWeights,
  toyRun,
} from '../support/runs.ts'

const folder = scratch('written-out')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

async function opened<R>(input: Partial<RunInput>, use: (o: Opened) => Promise<R>, count = 2): Promise<R> {
  const o = await openRun(toyRun(toy, at('none'), input), count)
  try {
    return await use(o)
  } finally {
    o.dispose()
  }
}

type Gradients = Map<string, number[]>

function gradientsOf({ learner }: Opened): Gradients {
  return new Map(
    [...learner.params()].map(([name, t]) => {
      return [name, tidy(() => t.grad()?.numbers() ?? new Array<number>(t.numel).fill(0))]
    }),
  )
}

/** The gradients as the optimizer gets them, clipped and all; no weight moves. */
async function handedOver(o: Opened, groups: readonly Group[]): Promise<Gradients> {
  const { optim } = o.learner
  const step = optim.step.bind(optim)
  let taken: Gradients = new Map()
  optim.step = () => {
    taken = gradientsOf(o)
  }
  try {
    await o.learn(groups, 1e-3)
  } finally {
    optim.step = step
  }
  return taken
}

interface Numbers {
  weight: Record<string, number>
  beta: Record<string, number>
  epsilon: number
  temperature: number
  maskLoss: number
}

/** Log-probs of the captions of a group, each read alone, padded with 0. [K, T] */
function captionLogps(
  { cycle: { family, config } }: Opened,
  item: WorkItem,
  group: Group,
  temperature: number,
): Tensor {
  const prompt = family.describe(item.features, item.example.mask, config.loop1.question)
  const rows = group.samples.map(({ ids }) => {
    const { logps } = teacherForce(family.model, prompt, [ids]).logProbs(temperature)
    return cat([logps, zeros([1, group.columns.all - ids.length])], { dim: 1 })
  })
  return cat(rows)
}

/** BCE + Dice of the mask that the first answer's [SEG] draws, over all pixels of the logits. */
function maskTerm({ cycle: { family } }: Opened, { features, example }: WorkItem, ids: Int32Array): Tensor {
  const pass = teacherForce(family.model, family.segment(features, example.caption), [ids])
  const state = pass.stateAt(0, ids.indexOf(family.segId))
  const { logits } = family.drawMasks(features, family.segPrompts(state)) // [1, h, w]
  const [, h, w] = logits.shape as [number, number, number]
  const dense = toDense(example.mask)
  const { width, height } = example.mask
  const cells = Float32Array.from({ length: h * w }, (_, i) => {
    const y = Math.floor((Math.floor(i / w) * height) / h)
    return dense[y * width + Math.floor(((i % w) * width) / w)]!
  })
  const [x, t] = [logits.view([h * w]), tensor(cells)]
  const p = x.sigmoid()
  const bce = t
    .mul(p.log())
    .add(t.neg().add(1).mul(p.neg().add(1).log()))
    .mean()
    .neg()
  const dice = p.mul(t).sum().mul(2).add(1).div(p.sum().add(t.sum()).add(1)).neg().add(1)
  return bce.add(dice)
}

/** The grpo loss of every group, written out: mean over tokens of a row, over rows, over records; each loop with its weight and its beta. */
function writtenOut(o: Opened, groups: readonly Group[], n: Numbers): Gradients {
  for (const group of groups) {
    const { task, item, samples, columns } = group
    const records = groups.filter((g) => g.task === task).length
    tidy(() => {
      const captions = task.name === 'loop1'
      const scored = captions
        ? captionLogps(o, item as WorkItem, group, n.temperature)
        : task.densities([item], [samples])[0]!.logps
      const mask = tensor(columns.mask, [...scored.shape])
      const like = (data: Float32Array) => tensor(data, [...scored.shape]).maskedFill(mask.eq(0), 0)
      const logps = scored.maskedFill(mask.eq(0), 0) // padding
      const rowMean = (t: Tensor) => t.mul(mask).sum(-1).div(mask.sum(-1))
      const A = tensor([...group.advantages])
        .to('float32')
        .unsqueeze(-1)
      const ratio = logps.sub(group.old ? like(group.old) : logps.detach()).exp()
      const held = ratio.clamp({ min: 1 - n.epsilon, max: 1 + n.epsilon })
      const gain = ratio.mul(A).minimum(held.mul(A))
      const greedy = task.name === 'loop2' // its words were not sampled: only the columns after them act
      const acts = greedy ? like(columns.mask.map((_, i) => (i % columns.all >= columns.tokens ? 1 : 0))) : mask
      const u = like(group.reference!).sub(logps)
      const kl = u.exp().sub(u).sub(1)
      const policy = rowMean(gain.mul(acts).neg().add(kl.mul(n.beta[task.name]!))).mean()
      const supervised = captions ? null : maskTerm(o, item as WorkItem, samples[0]!.ids).mul(n.maskLoss)
      const loss = (supervised ? policy.add(supervised) : policy).div(records).mul(n.weight[task.name]!)
      backward(loss)
    })
    clearTape()
  }
  const found = gradientsOf(o)
  o.learner.optim.zeroGrad()
  return found
}

function assertNear(got: Gradients, want: Gradients, limit = 2e-4): void {
  // rounding is relative to the gradients that flow through, not to what is left of them in a tensor
  const rounding = roundingBound(16, Math.max(...[...want.values()].map(largest)))
  for (const [name, values] of want) {
    const size = Math.max(largest(values), rounding / limit)
    const far = Math.max(...values.map((v, i) => Math.abs(v - got.get(name)![i]!)))
    assert.ok(far < limit * size, `${name}: off by ${far} of ${size}`)
  }
}

const unclipped = { optim: { maxGradNorm: 0 } }

/** SamplingTime captions cut to different lengths: rows of a group are padded. Greedy answers stay the one they are. */
function ofSeveralLengths(o: Opened, groups: readonly Group[]): Group[] {
  return groups.map((g) => {
    if (g.task.name !== 'loop1') return g
    const cut = <T extends Int32Array | Float32Array>(a: T, k: number) => a.slice(0, Math.min(a.length, 3 + k)) as T
    const samples = g.samples.map((s, k) => ({ ...s, ids: cut(s.ids, k), logps: cut(s.logps, k) }))
    return { ...g, samples, columns: columnsOf(g.task, samples, o.config.rl) }
  })
}

/** Groups of a second pass: the weights have moved since they were sampled, so that ratios, clips and the KL are not trivial. */
async function secondPass(o: Opened): Promise<Group[]> {
  const groups = ofSeveralLengths(o, await o.sample())
  assert.ok(
    groups.some((g) => g.columns.mask.includes(0)),
    'some row is shorter than another',
  )
  for (const g of groups) g.old = plainDensities(g)
  await o.learn(groups, 2e-4) // a larger step makes the KL of a mask action drown everything else
  for (const g of groups) g.reference = null
  return groups
}

test('the gradient of a second pass is the one written out: weights, betas, clips, temperature, mask loss, records', () =>
  opened(
    {
      ...unclipped,
      loop1: { weight: 0.5 },
      loop2: { weight: 2, beta: 0.3, maskLoss: 0.2 },
      rl: { beta: 0.05, temperature: 0.7, epsilon: 0.02, numIterations: 2 },
    },
    async (o) => {
      const groups = await secondPass(o)
      const got = await handedOver(o, groups)
      const clips = groups.map((g) => plainDensities(g).some((v, i) => Math.abs(v - g.old![i]!) > 0.025))
      assert.ok(clips.some(Boolean), 'some ratio lies beyond the clip')
      const want = writtenOut(o, groups, {
        weight: { loop1: 0.5, loop2: 2 },
        beta: { loop1: 0.05, loop2: 0.3 },
        ...{ epsilon: 0.02, temperature: 0.7, maskLoss: 0.2 },
      })
      const largest = Math.max(...[...want.values()].flat().map(Math.abs))
      assert.ok(largest < 100, `a gradient of ${largest} hides the others`)
      assertNear(got, want)
    },
    3,
  ))

test('dapo divides by the tokens and actions of the whole batch, truncated rows left out of both sides', () =>
  opened(
    { ...unclipped, rl: { lossType: 'dapo', beta: 0, maskTruncatedCompletions: true, numGenerations: 4 } },
    async (o) => {
      const groups = (await o.sample()).map((g) => {
        const samples = g.samples.map((sample, k) => ({
          ...sample,
          ids: sample.ids.subarray(0, 3 + k),
          logps: sample.logps.subarray(0, 3 + k),
          finished: k !== 1,
        }))
        return { ...g, samples, columns: columnsOf(g.task, samples, o.config.rl) }
      })
      const report = await o.learn(groups, 0)
      for (const task of ['loop1', 'loop2']) {
        const own = groups.filter((g) => g.task.name === task)
        let [sum, count] = [0, 0]
        for (const g of own)
          samplesIn(g).forEach((s, k) => {
            if (!s.finished) return
            const actions = s.action ? g.columns.all - g.columns.tokens : 0
            count += s.ids.length + actions
            // on policy every ratio is 1; greedy words count in the divisor and have no gain
            sum -= g.advantages[k]! * ((task === 'loop2' ? 0 : s.ids.length) + actions)
          })
        assert.ok(count > 0 && Math.abs(sum) > 1e-3, `${task}: ${sum} of ${count}`)
        const loss = report.metrics(0)[`${task}/loss`]!
        assert.ok(Math.abs(loss - sum / count) < 1e-5, `${task}: ${loss} against ${sum / count}`)
      }
    },
  ))

test('half of the rows truncated: dapo counts what the loss sees (TRL: 0.2013)', () =>
  opened(
    {
      ...unclipped,
      loop2: { weight: 0 },
      train: ['mlp1', 'lora'],
      rl: { lossType: 'dapo', beta: 0, numGenerations: 4, maskTruncatedCompletions: true },
    },
    async (o) => {
      const [group] = await o.sample()
      const samples = group!.samples.map((s, k) => ({
        ...s,
        ids: s.ids.subarray(0, [3, 5, 4, 6][k]!),
        logps: new Float32Array(0),
        finished: k < 2,
      }))
      const advantages = Float64Array.of(0.7, -0.9, 1.3, -1.1)
      const g = { ...group!, samples, advantages, columns: columnsOf(group!.task, samples, o.config.rl) }
      const report = await o.learn([g], 0)
      assert.ok(Math.abs(report.metrics(0)['loop1/loss']! - -(3 * 0.7 - 5 * 0.9) / 8) < 1e-6)
    },
    1,
  ))

test('the EMA copy answers: with other weights its replies are its own, not those of the policy', () =>
  opened({}, async (o) => {
    const before = await o.sample()
    noGrad(() => void o.learner.ema.weights.get('text_hidden_fcs.0.weight')!.mul_(-1))
    const turned = await o.sample()
    const masks = (groups: readonly Group[]) =>
      groups.filter((g) => g.task.name === 'loop1').flatMap((g) => g.replies.map((r) => (r as { mask: object }).mask))
    assert.deepEqual(
      turned.map((g) => g.samples),
      before.map((g) => g.samples),
      'the policy writes and draws the same',
    )
    assert.notDeepEqual(masks(turned), masks(before))
    noGrad(() => void o.learner.params().get('text_hidden_fcs.0.weight')!.mul_(-1))
    assert.deepEqual(masks(await o.sample()), masks(turned), 'the policy has no part in the replies')
  }))

test('gradients are scaled to maxGradNorm before the update, and never up', async () => {
  const norm = (g: Gradients) => Math.sqrt([...g.values()].flat().reduce((n, v) => n + v * v, 0))
  const free = await opened(unclipped, async (o) => norm(await handedOver(o, await o.sample())))
  assert.ok(free > 0.02, `${free}`)
  for (const [limit, want] of [
    [free / 4, free / 4],
    [free * 4, free],
  ] as const) {
    const found = await opened({ optim: { maxGradNorm: limit } }, async (o) =>
      norm(await handedOver(o, await o.sample())),
    )
    assert.ok(Math.abs(found - want) < 1e-4 * want, `${found} against ${want}`)
  }
})

test('the schedule decides every update: the first step of a warm-up moves nothing, the next ones do', async () => {
  const optim = { learningRate: 1e-2, lrSchedulerType: 'linear' as const, warmupSteps: 2 }
  const config = toyRun(toy, at('warm-up'), { optim, maxSteps: 4, saveSteps: 1, saveTotalLimit: 9 })
  const states: string[] = []
  await train(config, hostOf(), ({ learner }) => void states.push(...hashes(learner.params()).values()))
  const rates = readRun(config.output).events.flatMap((e) => (e.t === 'step' ? [e.metrics.learning_rate!] : []))
  assert.deepEqual(rates, [0, 0.5e-2, 1e-2, 0.5e-2])
  const moved = [0, 1, 2, 3].map((n) => {
    const [a, b] = [n, n + 1].map((s) => storedWeights(config.output, s, ['trainables']))
    return Math.max(...[...a!].flatMap(([name, values]) => values.map((v, i) => Math.abs(v - b!.get(name)![i]!))))
  })
  assert.equal(moved[0], 0)
  // Adam's first updates have about the size of the learning rate
  for (const n of [1, 2, 3]) assert.ok(moved[n]! > 0.3 * rates[n]! && moved[n]! < 3 * rates[n]!, `${n}: ${moved[n]}`)
})

test('the second pass over a generation batch knows the weights that sampled it', async () => {
  const config = toyRun(toy, at('passes'), {
    maxSteps: 2,
    saveSteps: 0,
    optim: { learningRate: 2e-2 },
    rl: { numIterations: 2 },
  })
  await train(config, hostOf())
  const steps = readRun(config.output).events.flatMap((e) => (e.t === 'step' ? [e.metrics] : []))
  assert.equal(steps[0]!['loop1/clip_ratio/region_mean'], 0)
  assert.ok(steps[1]!['loop1/clip_ratio/region_mean']! > 0, 'ratios have moved beyond the clip')
})

test('total_loss is the weighted sum that is minimised', () =>
  opened({ loop1: { weight: 0.5 }, loop2: { weight: 2, maskLoss: 0.5 } }, async (o) => {
    const m = (await o.learn(await o.sample(), 0)).metrics(0)
    assert.ok(Math.abs(m.total_loss! - (0.5 * m['loop1/loss']! + 2 * m['loop2/loss']!)) < 1e-9)
    assert.ok(Math.abs(m['loop2/loss']!) > 1e-3)
  }))

test('an entropy filter leaves every action in: loop 2 still reaches the mask decoder', () =>
  opened({ ...unclipped, rl: { topEntropyQuantile: 0.5, beta: 0 } }, async (o) => {
    const report = await o.learn(await o.sample(), 0)
    for (const group of ['text_hidden_fcs', 'mask_decoder', 'prompt_encoder'])
      assert.ok(report.groupNorms[group]! > 1e-3, `${group}: ${report.groupNorms[group]}`)
  }))

test("adaptive weights see each loop's own gradient, also where the loops pull against each other", () =>
  opened({ ...unclipped, adaptiveLoops: true, loop1: { weight: 3 }, rl: { beta: 0 } }, async (o) => {
    const groups = await o.sample()
    const both = await o.learn(groups, 0)
    const own = async (name: string) => {
      const task = o.run.tasks.find((t) => t.name === name)!
      const report = await o.learn(
        groups.filter((g) => g.task === task),
        0,
        [task],
      )
      return report.gradNorm / task.weight
    }
    for (const name of ['loop1', 'loop2']) {
      const alone = await own(name)
      assert.ok(
        Math.abs(both.taskNorms.get(name)! - alone) < 1e-4 * alone,
        `${name}: ${both.taskNorms.get(name)}, ${alone}`,
      )
    }
  }))

test("the sampler's log-probs are those of the loss at any temperature", () =>
  opened({ rl: { temperature: 0.6 } }, async (o) => {
    for (const g of (await o.sample()).filter((group) => group.task.name === 'loop1')) {
      const scored = plainDensities(g)
      g.samples.forEach((s, k) => {
        s.logps.forEach((v, t) => {
          assert.ok(Math.abs(v - scored[k * g.columns.all + t]!) < 1e-4)
        })
      })
    }
  }))
