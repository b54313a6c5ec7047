// Switches of a run that keep state or read the rewards one by one: what they do to it, against closed forms.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { writeCheckpoint } from '../../src/checkpoint/index.ts'
import { openLoader, openSource } from '../../src/data/index.ts'
import type { ScoredRow } from '../../src/rewards/index.ts'
import { advantagesOf, groupAdvantages, resolveGrpo } from '../../src/rl/index.ts'
import { type RunInput, resolveRun, train } from '../../src/run/index.ts'
import { readState } from '../../src/run/state.ts'
import { readRun } from '../../src/tracking/index.ts'
import {
  hostOf,
  makeToy,
  runBytes,
  type Scores,
  scratch,
  stoppingAfter,
  storedWeights,
  toyRun,
} from '../support/runs.ts'

const folder = scratch('switches')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

const words = { train: ['mlp1', 'lora'], loop2: { weight: 0 } } satisfies Partial<RunInput>

async function ran(name: string, input: Partial<RunInput>): Promise<string> {
  await train(toyRun(toy, at(name), { saveTotalLimit: 9, ...input }), hostOf())
  return at(name)
}

const metricsOf = (run: string) => readRun(run).events.flatMap((e) => (e.t === 'step' ? [e.metrics] : []))
const samplesOf = (run: string) => [...readRun(run).samples()]

const moving = (refModelMixupAlpha: number, refModelSyncSteps: number) => ({
  rl: { syncRefModel: true, refModelMixupAlpha, refModelSyncSteps },
})

test('a reference that moves is its closed form, and a stopped run resumes with it bit for bit', async () => {
  const run = await ran('moving', moving(0.25, 2))
  const theta = [0, 2, 4].map((step) => storedWeights(run, step, ['trainables', 'adapter_model']))
  const reference = storedWeights(run, 4, ['reference'])
  assert.deepEqual([...reference.keys()].sort(), [...theta[0]!.keys()].sort())
  for (const [name, values] of reference) {
    const [a, b, c] = theta.map((t) => t.get(name)!) as [number[], number[], number[]]
    values.forEach((v, i) => {
      const expected = 0.75 * (0.75 * a[i]! + 0.25 * b[i]!) + 0.25 * c[i]!
      assert.ok(Math.abs(v - expected) < 1e-6 * Math.max(1, Math.abs(expected)), `${name} ${i}: ${v}, ${expected}`)
    })
  }
  const config = toyRun(toy, at('stopped'), { saveTotalLimit: 9, ...moving(0.25, 2) })
  assert.ok((await train(config, stoppingAfter(3))).stopped)
  await train(config, hostOf())
  assert.deepEqual(runBytes(at('stopped')), runBytes(run))
})

test('a reference that is the policy after every step has no divergence from it', async () => {
  const still = metricsOf(await ran('still', { ...words, saveSteps: 0 }))
  const follows = metricsOf(await ran('follows', { ...words, saveSteps: 0, ...moving(1, 1) }))
  assert.ok(still.slice(1).every((m) => m['loop1/kl']! > 1e-6))
  for (const m of follows) assert.ok(m['loop1/kl']! < 1e-9, `${m['loop1/kl']}`)
})

test('the entropy bonus grows while the entropy is low and acts from the second step on', async () => {
  const adaptive = (entropyTarget: number) => ({
    rl: { useAdaptiveEntropy: true, entropyTarget, entropyCoefDelta: 0.25 },
  })
  const plain = await ran('plain', words)
  const high = await ran('high', { ...words, ...adaptive(100) })
  const low = await ran('low', { ...words, ...adaptive(0) })
  const weights = (run: string, step: number) => runBytes(run).get(`checkpoint_step_${step}/adapter_model.safetensors`)
  assert.equal(weights(high, 1), weights(plain, 1))
  assert.notEqual(weights(high, 2), weights(plain, 2))
  assert.equal(weights(low, 4), weights(plain, 4))
  const state = (run: string, step: number) =>
    readState(join(run, `checkpoint_step_${step}`), toyRun(toy, at('none'))).entropy!
  for (let step = 1; step <= 4; step++) {
    assert.equal(state(high, step).coef, 0.25 * step)
    assert.equal(metricsOf(high)[step - 1]!.entropy_coef, 0.25 * step)
    assert.equal(state(low, step).coef, 0)
  }
  const last = [1, 2, 3, 4].map((step) => state(high, step).last)
  assert.equal(new Set(last).size, 4, `each step has another entropy: ${last}`)
  assert.ok(metricsOf(plain).every((m) => m.entropy_coef === undefined))
})

test('the entropy that steers is the mean over tokens, mask actions left out', async () => {
  const run = await ran('tokens', { batchSize: 1, maxSteps: 1, rl: { useAdaptiveEntropy: true } })
  const [metrics] = metricsOf(run)
  const rows = samplesOf(run)
  const tokens = (loop: string) => rows.filter((r) => r.loop === loop).reduce((n, r) => n + r.length, 0)
  assert.ok(rows.some((r) => r.loop === 'loop2' && r.made !== null))
  const sum = metrics!['loop1/entropy']! * tokens('loop1') + metrics!['loop2/entropy']! * tokens('loop2')
  const expected = sum / (tokens('loop1') + tokens('loop2'))
  const { last } = readState(join(run, 'checkpoint_step_1'), toyRun(toy, run)).entropy!
  assert.ok(Math.abs(last! - expected) < 1e-6 * expected, `${last} against ${expected}`)
})

test('a checkpoint from before the entropy was kept resumes to the same weights', async () => {
  const whole = await ran('whole', words)
  const old = await ran('old', { ...words, maxSteps: 2 })
  const path = join(old, 'checkpoint_step_2')
  const files = readdirSync(path).filter((name) => name !== 'manifest.json')
  const { entropy: _, ...state } = readState(path, toyRun(toy, old))
  const content = files.map((name) => [name, readFileSync(join(path, name))] as const)
  rmSync(path, { recursive: true })
  writeCheckpoint(old, 2, { ...Object.fromEntries(content), 'state.json': JSON.stringify(state) })
  await ran('old', words)
  assert.deepEqual(
    storedWeights(old, 4, ['trainables', 'adapter_model', 'ema']),
    storedWeights(whole, 4, ['trainables', 'adapter_model', 'ema']),
  )
})

const row = (values: Record<string, number | null>): ScoredRow => {
  const counted = Object.entries(values).map(([name, value]) => ({ name, weight: name === 'judge' ? 3 : 1, value }))
  const sum = counted.reduce((n, t) => n + t.weight * (t.value ?? 0), 0)
  const total = counted.some((t) => t.value === null) ? null : sum / counted.reduce((n, t) => n + t.weight, 0)
  return { total, parts: values, counted, dropped: [] }
}

test('rewards are normalised one by one when asked; a group that lost one is normalised over the other', () => {
  const rows = [
    row({ judge: 0.9, meteor: 0.1 }),
    row({ judge: 0.1, meteor: 0.2 }),
    row({ judge: null, meteor: null }),
    row({ meteor: 0.5 }),
    row({ meteor: 0.7 }),
    row({ meteor: 0.9 }),
  ]
  const one = resolveGrpo({ numGenerations: 3, multiObjectiveAggregation: 'normalize_then_sum' })
  const found = advantagesOf(rows, one)
  const table = [
    [0.9, 0.1],
    [0.1, 0.2],
    [null, null],
    [null, 0.5],
    [null, 0.7],
    [null, 0.9],
  ]
  assert.deepEqual(found.advantages, groupAdvantages(table, { ...one, weights: [3, 1] }).advantages)
  assert.equal(found.advantages[2], 0)
  assert.ok(found.advantages[0]! > 0 && found.advantages[1]! < 0 && found.advantages[5]! > found.advantages[3]!)
  const all = advantagesOf(rows, resolveGrpo({ numGenerations: 3 }))
  assert.notDeepEqual(found.advantages, all.advantages)
})

test('a run with rewards normalised one by one learns from them', async () => {
  const score = (name: string, id: string, k: number) => (name === 'a' ? k / 10 : (id.length * 7 + k * 5) % 3) / 3
  const host = hostOf(undefined, {
    score: async (_, groups) => ({
      rows: groups.map((g) => g.map((a, k) => row({ a: score('a', a.id, k), b: score('b', a.id, k) }))),
      metrics: {},
    }),
  })
  const rl = { multiObjectiveAggregation: 'normalize_then_sum' as const }
  await train(toyRun(toy, at('gdpo'), { maxSteps: 1, ...words, rl }), host)
  await train(toyRun(toy, at('sums'), { maxSteps: 1, ...words }), host)
  const samples = samplesOf(at('gdpo'))
  const mean = samples.reduce((n, s) => n + s.advantage, 0) / samples.length
  assert.ok(Math.abs(mean) < 1e-9 && samples.some((s) => s.advantage > 0.5))
  const weights = (run: string) => runBytes(run).get('checkpoint_step_1/adapter_model.safetensors')
  assert.notEqual(weights(at('gdpo')), weights(at('sums')))
})

test('a truncated sampler is corrected by the ratio of what the loss scores to what was drawn from', async () => {
  const rl = { topP: 0.7, rolloutCorrection: 'token_truncate', rolloutMax: 0.9 } as const
  const run = await ran('corrected', { ...words, maxSteps: 1, rl })
  const plain = await ran('uncorrected', { ...words, maxSteps: 1, rl: { topP: 0.7 } })
  const [m] = metricsOf(run)
  const ratio = (name: string) => m![`loop1/sampling/importance_sampling_ratio/${name}`]!
  // what is drawn from the top 70 % has at least that share of mass less in the policy: every weight is at most 1
  assert.ok(ratio('mean') > 0.3 && ratio('mean') < 1 && ratio('max') <= 1, `${ratio('mean')}`)
  assert.notDeepEqual(storedWeights(run, 1, ['adapter_model']), storedWeights(plain, 1, ['adapter_model']))
  assert.deepEqual(
    samplesOf(run).map((s) => s.text),
    samplesOf(plain).map((s) => s.text),
  )
})

test('settings that could have no effect are refused with what to do', async () => {
  const refused = (input: RunInput, reason: RegExp) => assert.throws(() => resolveRun(input), reason)
  refused({ rl: { offPolicyMaskThreshold: 1 } }, /offPolicyMaskThreshold: expected null.*numIterations/)
  const twice = toyRun(toy, at('split'), { evalRecords: 2, data: { split: 'train' } })
  await assert.rejects(train(twice, hostOf()), /data\.split: expected all.*evalPath or evalRecords 0/)
  resolveRun({ rl: { offPolicyMaskThreshold: 1, numIterations: 2 } })
  const moves = { beta: 0, syncRefModel: true }
  refused({ rl: moves }, /syncRefModel: expected false/)
  refused({ rl: moves, train: ['mlp1', 'lora'], loop2: { weight: 0, beta: 0.1 } }, /syncRefModel: .*loop2.beta/)
  refused({ rl: { syncRefModel: true }, loop1: { weight: 0 }, loop2: { beta: 0 } }, /syncRefModel: .*rl.beta/)
  resolveRun({ rl: moves, loop2: { beta: 0.1 } })
})

test('no record is lost where an epoch ends inside a batch', async () => {
  const input = { ...words, dataPath: 'scenes:7', batchSize: 4, maxSteps: 9, saveSteps: 0, data: { evalFraction: 0 } }
  const run = await ran('epochs', input)
  const used = samplesOf(run).map((s) => `${s.step} ${s.id}`)
  const ids = [...new Set(used)].map((name) => name.split(' ')[1]!)
  const config = toyRun(toy, run, input)
  const source = await openSource(config.dataPath, config.data)
  const loader = openLoader(source, { ...config.data, seed: config.seed })
  const expected: string[] = []
  while (expected.length < ids.length) expected.push((await loader.next()).id)
  await loader.close()
  await source.close()
  assert.deepEqual(ids, expected)
  assert.ok(ids.length > 4 * 7 && ids.length < 9 * 4, `${ids.length} records: some batch met an id it had`)
})

test('groups without spread are replaced by those of the next records, for each loop until it has enough', async () => {
  const rl = { groupFilter: true, maxResampleTimes: 4, scaleRewards: 'batch', numGenerations: 3 } as const
  const input = { dataPath: 'scenes:8', batchSize: 2, maxSteps: 2, saveSteps: 0, data: { evalFraction: 0 }, rl }
  const flat = (id: string) => ['0', '2', '4', '6'].includes(id.split('#')[0]!.at(-1)!)
  const scores: Scores = (answer, k, task) =>
    flat(answer.id) && task === 'loop2' ? 0.5 : (k * (1 + Number(answer.id.split('#')[0]!.at(-1)!))) / 20
  await train(toyRun(toy, at('filter'), input), hostOf(scores))
  const total = (s: { total: number | null }) => s.total!
  for (const m of metricsOf(at('filter'))) {
    assert.equal(m['loop1/frac_reward_zero_std'], 0)
    assert.equal(m['loop2/frac_reward_zero_std'], 0)
  }
  for (const step of [1, 2])
    for (const loop of ['loop1', 'loop2']) {
      const samples = samplesOf(at('filter')).filter((s) => s.step === step && s.loop === loop)
      const ids = [...new Set(samples.map((s) => s.id))]
      assert.equal(ids.length, 2, `${loop} of step ${step} learned from ${ids.join(', ')}`)
      assert.ok(loop === 'loop1' || !ids.some(flat), `loop2 learned from ${ids.join(', ')}`)
      // scaled by the deviation of the groups that were kept, not of all that were sampled
      const rewards = samples.map((s) => total(s))
      const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length
      const std = Math.sqrt(rewards.reduce((n, r) => n + (r - mean) ** 2, 0) / (rewards.length - 1))
      for (const s of samples) {
        const own = samples.filter((other) => other.id === s.id).map((other) => total(other))
        const expected = (total(s) - own.reduce((a, b) => a + b, 0) / own.length) / (std + 1e-4)
        assert.ok(Math.abs(s.advantage - expected) < 1e-6, `${loop} ${s.id}: ${s.advantage}, not ${expected}`)
      }
    }
})

test('a record met again in a step is sampled anew', async () => {
  const input = { ...words, dataPath: 'scenes:2', batchSize: 2, maxSteps: 1, saveSteps: 0, data: { evalFraction: 0 } }
  const config = toyRun(toy, at('anew'), { ...input, rl: { groupFilter: true, maxResampleTimes: 1 } })
  const texts = new Map<string, string[]>()
  const flat = hostOf((answer) => {
    texts.set(answer.id, [...(texts.get(answer.id) ?? []), answer.text!])
    return 0.5
  })
  await train(config, flat)
  assert.deepEqual(
    [...texts.values()].map((said) => said.length),
    new Array(6).fill(2),
  )
  assert.ok(
    [...texts.values()].some(([first, second]) => first !== second),
    'other texts the second time',
  )
})
