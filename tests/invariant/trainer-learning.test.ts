// What learns, what stays, and what the switches of a run do to it.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { openWeights, readTensors } from '../../src/checkpoint/index.ts'
import { isEval, openLoader, openSource } from '../../src/data/index.ts'
import { tensorAt } from '../../src/nn/index.ts'
import { disposeModel, openModel, type RunInput, resolveRun, train } from '../../src/run/index.ts'
import { openRecords } from '../../src/run/records.ts'
import type { TaskState } from '../../src/run/state.ts'
import { tidy } from '../../src/tensor/index.ts'
import { eps } from '../support/rounding.ts'
import { changed, hashes, hostOf, makeToy, openRun, scratch, storedWeights, toyRun } from '../support/runs.ts'

const folder = scratch('learning')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

const small = { batchSize: 1, saveSteps: 0, rl: { numGenerations: 2, maxCompletionLength: 5 } }

interface Line {
  t: string
  step: number
  id?: string
  loop?: string
  metrics?: Record<string, number>
}

function lines(name: string, file: 'events' | 'samples'): Line[] {
  const text = readFileSync(join(at(name), `${file}.jsonl`), 'utf8').trim()
  return text.split('\n').map((line) => JSON.parse(line) as Line)
}

const decay = 0.9

/** Every trained tensor of a checkpoint. */
const trained = (step: number) => storedWeights(at('five'), step, ['trainables', 'adapter_model'])

test('five steps of the default recipe: all five groups get a gradient, no frozen bit changes, the EMA is its closed form', async () => {
  const config = toyRun(toy, at('five'), {
    batchSize: 2,
    maxSteps: 5,
    saveSteps: 1,
    saveTotalLimit: 9,
    optim: { emaDecay: decay },
  })
  assert.deepEqual(config.train, ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder'])
  const start = openModel(config)
  await train(config, hostOf(), ({ learner }) => {
    const trains = new Set(learner.slots.map((s) => s.name))
    const frozen = (module: typeof start.module) =>
      hashes(
        module
          .slots()
          .filter((s) => !trains.has(s.name))
          .map((s) => [s.name.replace('.base_layer.', '.'), tensorAt(s)]),
      )
    const before = frozen(start.module)
    const after = frozen(learner.family.module)
    assert.ok(after.size > 100)
    assert.deepEqual(changed(after, before), [])
  })
  disposeModel(start)
  for (const { metrics } of lines('five', 'events').filter((e) => e.t === 'step')) {
    for (const group of config.train) assert.ok(metrics![`grad_norm/${group}`]! > 0, group)
    assert.equal(metrics!['iou/nan'], 0)
  }

  const states = [0, 1, 2, 3, 4, 5].map(trained)
  const sam = 'grounding_encoder.sam2_model'
  for (const name of [
    `${sam}.sam_prompt_encoder.not_a_point_embed.weight`,
    `${sam}.sam_prompt_encoder.no_mask_embed.weight`,
  ])
    assert.notDeepEqual(states[1]!.get(name), states[0]!.get(name), name)
  const ema = tidy(
    () =>
      new Map(
        [...readTensors(openWeights(join(at('five'), 'checkpoint_step_5', 'ema.safetensors')), 'cpu')].map(
          ([name, t]) => [name, t.numbers()],
        ),
      ),
  )
  assert.deepEqual([...ema.keys()].sort(), [...states[0]!.keys()].sort())
  let moved = 0
  for (const [name, values] of ema) {
    values.forEach((value, i) => {
      // e_5 = d^5 p_0 + (1 - d) sum d^(5 - n) p_n
      let expected = decay ** 5 * states[0]!.get(name)![i]!
      for (let n = 1; n <= 5; n++) expected += (1 - decay) * decay ** (5 - n) * states[n]!.get(name)![i]!
      assert.ok(
        Math.abs(value - expected) < 15 * eps.float32 * Math.max(1, Math.abs(expected)), // 5 steps of 3 roundings
        `${name} ${i}: ${value}, ${expected}`,
      )
      if (Math.abs(value - states[0]!.get(name)![i]!) > 1e-5) moved++
    })
  }
  assert.ok(moved > 1000, `${moved} values moved`)
})

const refused: [string, Partial<RunInput>, RegExp][] = [
  [
    'an embedding action',
    { loop2: { action: 'embedding' } },
    /train: expected groups that the enabled losses reach, got mask_decoder, prompt_encoder/,
  ],
  [
    'a text action',
    { loop2: { action: 'text', sampleText: true } },
    /got text_hidden_fcs, mask_decoder, prompt_encoder/,
  ],
  ['loop 1 alone', { loop2: { weight: 0 } }, /got text_hidden_fcs, mask_decoder, prompt_encoder/],
  ['a greedy text action', { loop2: { action: 'text' } }, /sampleText: expected true/],
  ['no loop', { loop1: { weight: 0 }, loop2: { weight: 0 } }, /at least one loop/],
]
for (const [what, input, reason] of refused) {
  test(`a recipe with ${what} is refused with the names`, () => {
    assert.throws(() => resolveRun(input as RunInput), reason)
  })
}

test('the supervised mask term gives the mask decoder a gradient that an embedding action alone cannot', async () => {
  const loop2 = { action: 'embedding', maskLoss: 0.1 } as const
  await train(
    toyRun(toy, at('supervised'), { ...small, maxSteps: 1, saveSteps: 1, loop2 }),
    hostOf(() => 0.5), // rewards without spread: the policy term has no gradient
  )
  const step = lines('supervised', 'events').find((e) => e.t === 'step')!
  for (const group of ['text_hidden_fcs', 'mask_decoder', 'prompt_encoder'])
    assert.ok(step.metrics![`grad_norm/${group}`]! > 0, group)
  const [before, after] = [0, 1].map((n) => storedWeights(at('supervised'), n, ['trainables']))
  const moved = [...after!].filter(([name, values]) => values.some((v, i) => v !== before!.get(name)![i]))
  assert.ok(
    moved.some(([name]) => name.includes('sam_mask_decoder')),
    'its weights move',
  )
})

test('a group that gets no gradient in the second step ends the run with its name', async () => {
  // tokens too few for a [SEG] that is read back: no mask is drawn and nothing after the language model is reached
  const config = toyRun(toy, at('dead'), { ...small, rl: { numGenerations: 2, maxCompletionLength: 1 } })
  await assert.rejects(
    train(config, hostOf()),
    /text_hidden_fcs, mask_decoder, prompt_encoder: expected a gradient.*exactly 0 in step 2/,
  )
})

test('rewards without spread do not end a run whose groups are reachable; after three steps they are reported', async () => {
  await train(
    toyRun(toy, at('flat'), { ...small, maxSteps: 3 }),
    hostOf(() => 0.5),
  )
  const warning = lines('flat', 'events').find((e) => e.t === 'warning') as Line & { kind: string; text: string }
  assert.equal(warning.kind, 'no-spread')
  assert.match(warning.text, /loop1 and loop2/)
})

test('a learning rate of 0 changes no weight and no digit of the evaluation', async () => {
  const config = toyRun(toy, at('zero'), { ...small, maxSteps: 2, evalRecords: 4, optim: { learningRate: 0 } })
  const { before, after } = await train(config, hostOf())
  assert.ok(before && after)
  assert.deepEqual(after, before)
  assert.ok(before['mask/giou']!.mean > 0 && before['answer/seg_rate']!.mean === 1)
})

test('a learning rate that is not 0 changes the evaluation', async () => {
  const config = toyRun(toy, at('nonzero'), { ...small, maxSteps: 2, evalRecords: 4, optim: { learningRate: 1e-2 } })
  const { before, after } = await train(config, hostOf())
  assert.notDeepEqual(after, before)
})

test('shuffled rewards are permuted inside their groups alone', async () => {
  const sorted = (values: Iterable<number | null>) => [...values].map(Number).sort((a, b) => a - b)
  const of = async (shuffleRewards: boolean) => {
    const o = await openRun(toyRun(toy, at('none'), { shuffleRewards, rl: { numGenerations: 4 } }), 3)
    const groups = await o.sample()
    o.dispose()
    return groups
  }
  const [plain, shuffledOnes] = [await of(false), await of(true)]
  let moved = 0
  plain.forEach((group, i) => {
    const other = shuffledOnes[i]!
    assert.deepEqual(other.scores, group.scores, 'what is logged is the true reward')
    assert.deepEqual(
      other.samples.map((r) => r.ids),
      group.samples.map((r) => r.ids),
    )
    const near = sorted(other.advantages).map((v, k) => Math.abs(v - sorted(group.advantages)[k]!))
    assert.ok(Math.max(...near) < 1e-9)
    if (other.advantages.some((v, k) => v !== group.advantages[k])) moved++
  })
  assert.ok(moved >= 4, `${moved} of 6 groups were permuted`)
})

test('batch scaling divides by the deviation of the whole generation batch, group scaling by each own', async () => {
  const of = async (scaleRewards: 'group' | 'batch') => {
    const o = await openRun(toyRun(toy, at('none'), { rl: { scaleRewards } }), 3)
    const groups = (await o.sample()).filter((g) => g.task.name === 'loop1')
    o.dispose()
    return groups
  }
  const batch = await of('batch')
  const totals = batch.flatMap((g) => g.scores.map((s) => s.total!))
  const mean = totals.reduce((a, b) => a + b) / totals.length
  const std = Math.sqrt(totals.reduce((s, v) => s + (v - mean) ** 2, 0) / (totals.length - 1))
  for (const g of batch) {
    const own = g.scores.reduce((s, r) => s + r.total!, 0) / g.scores.length
    const far = g.scores.map((s, k) => Math.abs(g.advantages[k]! - (s.total! - own) / (std + 1e-4)))
    assert.ok(Math.max(...far) < 1e-9)
  }
  assert.notDeepEqual(
    (await of('group')).map((g) => [...g.advantages]),
    batch.map((g) => [...g.advantages]),
  )
})

test('adaptive loops: the loop with the larger gradient weighs less, within 0.2 and 5; a loop alone keeps its weight', async () => {
  const balanceOf = async (name: string, more: Partial<RunInput>) => {
    const config = toyRun(toy, at(name), { ...small, maxSteps: 3, adaptiveLoops: true, ...more })
    await train(config, hostOf())
    const { tasks } = JSON.parse(readFileSync(join(at(name), 'checkpoint_step_3', 'state.json'), 'utf8'))
    return Object.fromEntries(Object.entries(tasks as Record<string, TaskState>).map(([t, s]) => [t, s.balance]))
  }
  const { loop1, loop2 } = (await balanceOf('both', {})) as { loop1: number; loop2: number }
  const last = lines('both', 'events')
    .filter((e) => e.t === 'step')
    .at(-1)!.metrics!
  assert.ok(loop1 !== 1 && loop2 !== 1)
  assert.ok(loop1 < 1 === loop2 > 1, `${loop1} and ${loop2}`)
  assert.ok([loop1, loop2].every((w) => w >= 0.2 && w <= 5))
  assert.ok(last['loop1/loss'] !== undefined)
  const alone = await balanceOf('alone', { loop2: { weight: 0 }, train: ['mlp1', 'lora'] })
  assert.deepEqual(alone, { loop1: 1 })
})

test('records that are held out are those of the split by id, and never trained on', async () => {
  const config = toyRun(toy, at('held'), { dataPath: 'scenes:12', evalRecords: 9 })
  const { heldOut, source, loader, close } = await openRecords(config)
  const held = heldOut.map((e) => e.id)
  const ids = Array.from({ length: source.length }, (_, i) => source.id(i))
  assert.deepEqual(
    held,
    ids.filter((id) => isEval(id, 0.25)),
  )
  const seen = new Set<string>()
  for (let i = 0; i < 2 * loader.epochLength; i++) seen.add((await loader.next()).id)
  await close()
  assert.deepEqual([...seen, ...held].sort(), [...ids].sort())
})

test('a curriculum reaches the loader: records come in its order', async () => {
  const data = { curriculum: 'large-first' as const, curriculumBuckets: 18, workers: 0, evalFraction: 0.25 }
  const config = toyRun(toy, at('curriculum'), { ...small, maxSteps: 4, data })
  await train(config, hostOf())
  const source = await openSource(config.dataPath, config.data)
  const loader = openLoader(source, { ...config.data, seed: config.seed })
  const expected = []
  for (let i = 0; i < 4; i++) expected.push((await loader.next()).id)
  await loader.close()
  await source.close()
  const seen = lines('curriculum', 'samples').filter((s) => s.loop === 'loop1')
  assert.deepEqual([...new Set(seen.map((s) => s.id))], expected)
})

test('several steps from one generation batch learn from its parts in turn, and every sample is kept', async () => {
  const rl = { ...small.rl, stepsPerGeneration: 2, numIterations: 2 }
  await train(toyRun(toy, at('parts'), { ...small, maxSteps: 8, rl }), hostOf())
  const samples = lines('parts', 'samples')
  assert.deepEqual([...new Set(samples.map((s) => s.step))], [1, 5])
  for (const step of [1, 5]) assert.equal(samples.filter((s) => s.step === step).length, 2 * 2 * 2)
})
