// Generation batches that outlive an optimizer step: what later steps learn from does not depend on stops or on the end of an epoch.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { type RunInput, train } from '../../src/run/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { hostOf, makeToy, runBytes, type Scores, scratch, stoppingAfter, toyRun } from '../support/runs.ts'

const folder = scratch('generations')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const small: Partial<RunInput> = {
  evalRecords: 0,
  train: ['mlp1', 'lora'],
  loop2: { weight: 0 },
  data: { workers: 0, evalFraction: 0 },
}

const stepsOf = (output: string) =>
  readRun(output)
    .events.filter((e) => e.t === 'step')
    .map((e) => (e as { metrics: Record<string, number> }).metrics)

test('a run with groupFilter that stops inside a generation with a record drawn twice resumes bit for bit', async () => {
  const input: Partial<RunInput> = {
    ...small,
    dataPath: 'scenes:4',
    batchSize: 1,
    maxSteps: 3,
    rl: { numGenerations: 3, maxCompletionLength: 6, groupFilter: true, maxResampleTimes: 6, stepsPerGeneration: 3 },
  }
  const firstId = join(folder, 'ids')
  await train(toyRun(toy, firstId, { ...input, maxSteps: 1, rl: { ...input.rl, groupFilter: false } }), hostOf())
  const [sample] = readRun(firstId).samples()
  // one record alone has rewards that differ: every generation is filled with draws of it
  const scores: Scores = (answer, k) => (answer.id.split('#')[0] === sample!.id ? [0.1, 0.9, 0.4][k]! : 0.5)
  await train(toyRun(toy, join(folder, 'whole'), input), hostOf(scores))
  const { stopped } = await train(toyRun(toy, join(folder, 'cut'), input), stoppingAfter(1, scores))
  assert.ok(stopped)
  await train(toyRun(toy, join(folder, 'cut'), input), hostOf(scores))
  const [whole, cut] = ['whole', 'cut'].map((name) => runBytes(join(folder, name)))
  const weights = [...whole!.keys()].filter((name) => /step_3.*safetensors$/.test(name))
  assert.ok(weights.length > 2, `${[...whole!.keys()]}`)
  for (const name of weights) assert.equal(cut!.get(name), whole!.get(name), name)
  const losses = stepsOf(join(folder, 'whole')).map((m) => m['loop1/loss'])
  assert.deepEqual(
    stepsOf(join(folder, 'cut')).map((m) => m['loop1/loss']),
    losses,
  )
})

test('the later pass over a short batch at the end of an epoch has the old log-probs of the sampling weights', async () => {
  const output = join(folder, 'short')
  const rl = { numGenerations: 3, maxCompletionLength: 8, gradientAccumulationSteps: 2, stepsPerGeneration: 1 }
  await train(
    toyRun(toy, output, {
      ...small,
      dataPath: 'scenes:5',
      batchSize: 4,
      maxSteps: 4,
      saveSteps: 0,
      rl: { ...rl, numIterations: 2, beta: 0 },
      optim: { learningRate: 1e-2 },
    }),
    hostOf(),
  )
  const sampledIn = new Set([...readRun(output).samples()].map((s) => s.step))
  const steps = stepsOf(output)
  const passes = [...steps.keys()].filter((i) => !sampledIn.has(i + 1))
  assert.ok(passes.length > 0, 'an epoch of 5 records ends inside a batch of 4')
  // without old log-probs a group is taken as on policy, and its distance from the sampler is logged
  const difference = 'loop1/sampling/sampling_logp_difference/max'
  for (const i of passes) assert.equal(steps[i]![difference], undefined, `step ${i + 1}`)
  for (const i of passes) assert.notEqual(steps[i]!['loop1/policy_loss'], 0)
  const [whole] = steps
  assert.ok(whole![difference]! < 1e-3, 'both passes over a complete batch are one step: the ratio is 1')
})

test('tokens_per_second counts sampled tokens of every row, greedy ones once a record, and none in later passes', async () => {
  const [records, rows] = [2, 3]
  const { loop2: _, train: __, ...both } = small
  const rl = { numGenerations: rows, maxCompletionLength: 6, numIterations: 2 }
  const output = join(folder, 'tokens')
  await train(toyRun(toy, output, { ...both, batchSize: records, maxSteps: 2, checkGroups: false, rl }), hostOf())
  const decoded = readRun(output).timing.flatMap(({ t, metrics }) =>
    t === 'step' ? [metrics!.tokens_per_second! * metrics!.step_time!] : [],
  )
  const metrics = stepsOf(output)[0]!
  const [sampled, greedy] = [1, 2].map((n) => records * metrics[`loop${n}/completions/mean_length`]!)
  assert.equal(metrics['loop2/completions/unique'], 1 / rows, 'an answer of loop 2 is decoded once')
  assert.deepEqual(
    decoded.map((n) => Number(n.toFixed(6))),
    [rows * sampled! + greedy!, 0],
  )
})
