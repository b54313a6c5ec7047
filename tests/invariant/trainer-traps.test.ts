// Mistakes that train something else than was meant, each shown not to occur here. K samples, T columns.
import assert from 'node:assert/strict'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { stream, streamId } from '../../src/core/index.ts'
import { selectSlots } from '../../src/nn/index.ts'
import { defineReward, scoreGroup, type Term } from '../../src/rewards/index.ts'
import { columnsOf, type Group, klOf, plainDensities } from '../../src/rl/index.ts'
import { restoreGroup, storeGroup } from '../../src/run/stored-group.ts'
import { type CycleSample, describeAll, segmentAll } from '../../src/tasks/index.ts'
import { noGrad, Tensor, tensor, tensorsIn, tidy } from '../../src/tensor/index.ts'
import { hashes, hostOf, makeToy, type Opened, openRun, samplesIn, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('traps')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

type Input = Parameters<typeof toyRun>[2]

async function opened<R>(input: Input, use: (o: Opened) => Promise<R> | R, model = toy, host = hostOf()): Promise<R> {
  const o = await openRun(toyRun(model, join(folder, 'none'), input), 2, host)
  try {
    return await use(o)
  } finally {
    o.dispose()
  }
}

const loop = (groups: readonly Group[], name: string) => groups.filter((g) => g.task.name === name)

function isPlain(value: unknown): boolean {
  if (value instanceof Tensor) return false
  if (value === null || typeof value !== 'object') return typeof value !== 'function'
  if (ArrayBuffer.isView(value)) return true
  return Object.values(value).every(isPlain)
}

test('samples are plain data: numbers and strings, no tensor and no function, and they survive JSON with the same bits', () =>
  opened({}, async ({ config, run, items, sample }) => {
    for (const group of await sample()) {
      assert.ok(group.samples.every(isPlain))
      assert.equal(tensorsIn(group.samples).length, 0)
      const stored = JSON.parse(JSON.stringify(storeGroup(group, items.indexOf(group.item as never))))
      const back = restoreGroup(stored, run.tasks, items[stored.item]!, config.rl)
      assert.deepEqual(back.samples, group.samples)
      assert.deepEqual(back.columns, group.columns)
      assert.deepEqual(back.advantages, group.advantages)
      assert.deepEqual(plainDensities(back), plainDensities(group))
    }
  }))

test("the sampler's log-probs are near those of the loss, and only the latter have a gradient", () =>
  opened({}, async ({ sample }) => {
    for (const group of loop(await sample(), 'loop1')) {
      const { logps, needs } = tidy(() => {
        const pass = group.task.densities([group.item], [group.samples])[0]!
        return { logps: pass.logps.detach().numbers(), needs: pass.logps.requiresGrad }
      })
      assert.ok(needs)
      const T = logps.length / group.samples.length
      group.samples.forEach((r, k) => {
        r.logps.forEach((v, t) => {
          assert.ok(Math.abs(v - logps[k * T + t]!) < 1e-4)
        })
      })
    }
  }))

test('a pattern that matches no weight is an error', () =>
  opened({}, ({ learner }) => {
    assert.throws(
      () => selectSlots(learner.family.module, [/^mlp1\./, /^sam_mask_decoder\./]),
      /sam_mask_decoder.*no match/,
    )
  }))

test("SAM2's parts are found under grounding_encoder.sam2_model", () =>
  opened({}, ({ learner }) => {
    const { module, groups } = learner.family
    for (const group of ['mask_decoder', 'prompt_encoder'] as const) {
      const names = selectSlots(module, groups[group]!).map((s) => s.name)
      assert.ok(names.length > 0 && names.every((n) => n.startsWith('grounding_encoder.sam2_model.sam_')))
    }
    assert.deepEqual([...learner.namesOf('prompt_encoder')].sort(), [
      'grounding_encoder.sam2_model.sam_prompt_encoder.no_mask_embed.weight',
      'grounding_encoder.sam2_model.sam_prompt_encoder.not_a_point_embed.weight',
    ])
  }))

/** Mean k3 of a group under the reference, and the same as learn() reports it. */
function klOfGroup(learner: Opened['learner'], group: Group): number {
  const now = plainDensities(group)
  const reference = learner.asReference(() => plainDensities(group))
  const counts = group.columns.mask
  const each = [...now].map((v, i) => Math.exp(reference[i]! - v) - (reference[i]! - v) - 1)
  return each.reduce((sum, v, i) => sum + v * counts[i]!, 0) / counts.reduce((a, b) => a + b)
}

test('the KL is k3 against the start, mlp1 included: with the adapters off a changed mlp1 still counts', () =>
  opened({ rl: { beta: 0.1 } }, async ({ run, learner, learn, sample }) => {
    const groups = await sample()
    for (const g of groups) assert.equal(klOfGroup(learner, g), 0, 'at the start policy and reference are one')
    const start = hashes(learner.start)
    const weight = learner.params().get('mlp1.1.weight')!
    noGrad(() => tidy(() => void weight.add_(weight.mul(0.5))))
    noGrad(() => void learner.ema.weights.get('mlp1.1.weight')!.mul_(-1)) // another role, which has no say here
    learner.adapter!.enabled = false
    for (const g of groups) assert.ok(klOfGroup(learner, g) > 1e-6, `${g.task.name}: ${klOfGroup(learner, g)}`)
    learner.adapter!.enabled = true
    const expected = klOfGroup(learner, groups[0]!)
    const report = await learn([groups[0]!], 1e-3, [run.tasks[0]!])
    assert.ok(Math.abs(report.metrics(0)['loop1/kl']! - expected) < 1e-5 * Math.max(1, expected))
    assert.deepEqual(hashes(learner.start), start, 'the reference does not learn')
  }))

test('k3 is e^u - u - 1: 0 at 0, never negative', () => {
  const u = [-2, -0.1, 0, 0.1, 2]
  const found = tidy(() => klOf(tensor(u, { dtype: 'float64' })).numbers())
  found.forEach((v, i) => {
    assert.ok(Math.abs(v - (Math.exp(u[i]!) - u[i]! - 1)) < 1e-12 && v >= 0)
  })
})

test('the reference has its own start: swapped in and out, the policy keeps every bit', () =>
  opened({}, async ({ learner, learn, sample }) => {
    const groups = await sample()
    const start = plainDensities(groups[0]!)
    await learn(groups, 1e-2)
    const moved = plainDensities(groups[0]!)
    const before = hashes(learner.params())
    const held = learner.asReference(() => plainDensities(groups[0]!))
    const apart = (other: Float32Array) => Math.max(...start.map((v, i) => Math.abs(v - other[i]!)))
    assert.ok(apart(held) < 1e-5 && apart(moved) > 1e-3, `${apart(held)} and ${apart(moved)}: adapters are off`)
    learner.asEma(() => undefined)
    assert.throws(() => learner.asEma(() => assert.fail('inside')), /inside/)
    assert.throws(() => learner.asReference(() => assert.fail('inside')), /inside/)
    assert.deepEqual(hashes(learner.params()), before)
    assert.equal(learner.adapter!.enabled, true)
  }))

test('the end token is part of the loss, and nothing after it', () =>
  opened({ rl: { numGenerations: 4, maxCompletionLength: 64 } }, async ({ cycle, sample }) => {
    const { eosIds } = cycle.family.tokenizer
    const rollouts: CycleSample[] = []
    for (let step = 0; step < 3; step++) {
      for (const group of loop(await sample(step), 'loop1')) {
        rollouts.push(...samplesIn(group))
        const counts = group.columns.mask
        const T = counts.length / group.samples.length
        group.samples.forEach((r, k) => {
          const row = [...counts.subarray(k * T, (k + 1) * T)]
          assert.deepEqual(
            row,
            row.map((_, t) => (t < r.ids.length ? 1 : 0)),
          )
        })
      }
    }
    const ended = rollouts.filter((r) => r.finished)
    assert.ok(ended.length > 0 && ended.length < rollouts.length, `${ended.length} of ${rollouts.length} ended`)
    for (const r of rollouts) {
      const at = r.ids.findIndex((id) => eosIds.has(id))
      assert.equal(at, r.finished ? r.ids.length - 1 : -1)
      assert.equal(r.logps.length, r.ids.length)
    }
  }))

test('truncated rows stay out of the loss only when asked', () =>
  opened({ rl: { maskTruncatedCompletions: true, beta: 0 } }, async ({ config, run, learn, sample }) => {
    const groups = loop(await sample(), 'loop1')
    const cut = groups.map((g) => {
      const samples = g.samples.map((r) => ({ ...r, finished: false }))
      return { ...g, samples, columns: columnsOf(g.task, samples, config.rl) }
    })
    const report = await learn(cut, 1e-3, [run.tasks[0]!])
    assert.equal(report.gradNorm, 0)
  }))

test("the sampler does not take top-k or temperature from the folder's generation_config.json", async () => {
  const other = makeToy(join(folder, 'defaults'))
  writeFileSync(
    join(other, 'generation_config.json'),
    JSON.stringify({ do_sample: true, top_k: 1, top_p: 0.1, temperature: 0.01, repetition_penalty: 2 }),
  )
  const drawn = (model: string) =>
    opened({ rl: { numGenerations: 4 } }, async ({ sample }) => (await sample()).map((g) => g.samples), model)
  assert.deepEqual(await drawn(other), await drawn(toy))
})

test('LoRA dropout is off in reinforcement learning whatever lora.dropout says: two passes agree bit for bit', () =>
  opened({ lora: { dropout: 0.5 } }, async ({ learner, learn, sample }) => {
    assert.equal(learner.adapter!.dropout, 0)
    await learn(await sample(), 1e-2)
    for (const group of await sample(1)) assert.deepEqual(plainDensities(group), plainDensities(group))
  }))

test('the EMA copy answers greedily with its own weights: the same input, the same answer, also after the policy moved', () =>
  opened({ optim: { emaDecay: 0.999 } }, async ({ cycle, learner, items, sample }) => {
    const groups = await sample()
    const captions = loop(groups, 'loop1').map((g) => samplesIn(g)[0]!.caption!)
    const asked = () =>
      learner.asEma(() => ({
        masks: segmentAll(
          cycle,
          items.map(({ features }, i) => ({ features, caption: captions[i]! })),
        ),
        texts: describeAll(
          cycle,
          items.map(({ features, example }) => ({ features, mask: example.mask })),
        ),
      }))
    const first = asked()
    assert.deepEqual(asked(), first)
    const weights = learner.params().get('text_hidden_fcs.0.weight')!
    noGrad(() => void weights.mul_(-1)) // the policy alone
    assert.deepEqual(asked(), first)
    assert.ok(first.masks.every((f) => f.mask && f.segs === 1))
  }))

for (const action of ['field', 'embedding'] as const) {
  test(`the ${action} action is scored as it was drawn: the same values, the same mask output, a density at its noise`, () => {
    const last = action === 'embedding' ? 'text_hidden_fcs' : 'mask_decoder'
    const more: Input = { train: ['mlp1', 'lora', last] }
    return opened({ loop2: { action }, ...more, rl: { numGenerations: 3 } }, async ({ config, sample }) => {
      for (const group of loop(await sample(), 'loop2')) {
        const samples = samplesIn(group)
        const found = plainDensities(group)
        const T = found.length / group.samples.length
        samples.forEach((r, k) => {
          // -|u - m|^2 / (2 s^2 n) of u = m + s e: the noise alone decides it
          const n = r.action!.value.length
          const random = stream(config.seed, streamId.maskAction, 0, group.item.id, k)
          let squares = 0
          for (let i = 0; i < n; i++) squares += random.normalAt(i) ** 2
          assert.ok(Math.abs(found[k * T + T - 1]! + squares / (2 * n)) < 1e-4, `${found[k * T + T - 1]}`)
        })
        const choices = samples.map((r) => r.action!.choice)
        assert.ok(choices.every((c) => c >= 0 && c < 3))
        if (action === 'field') {
          const other = samples.map((r) => ({
            ...r,
            action: { ...r.action!, choice: (r.action!.choice + 1) % 3 },
          }))
          assert.notDeepEqual(plainDensities({ ...group, samples: other }), found)
        }
      }
    })
  })
}

test('the both action is scored as it was drawn: the prompt against the answer, the mask against the prompt that was drawn', () =>
  opened({ loop2: { action: 'both' }, rl: { numGenerations: 3 } }, async ({ config, learner, sample }) => {
    const groups = loop(await sample(), 'loop2')
    const noise = (id: string, k: number, n: number, ...more: string[]) => {
      const random = stream(config.seed, streamId.maskAction, 0, id, k, ...more)
      let squares = 0
      for (let i = 0; i < n; i++) squares += random.normalAt(i) ** 2
      return -squares / (2 * n)
    }
    const check = (group: Group, columns: readonly number[]) => {
      const found = plainDensities(group)
      const T = group.columns.all
      samplesIn(group).forEach(({ action }, k) => {
        const expected = [
          noise(group.item.id, k, action!.prompt!.length, 'prompt'),
          noise(group.item.id, k, action!.value.length),
        ]
        for (const column of columns)
          assert.ok(Math.abs(found[k * T + T - 2 + column]! - expected[column]!) < 1e-4, `${k} ${column}`)
      })
    }
    for (const group of groups) {
      assert.equal(group.columns.all - group.columns.tokens, 2)
      check(group, [0, 1])
    }
    // another answer moves the density of the prompt; the mask was drawn from the prompt that is kept
    const weight = learner.params().get('text_hidden_fcs.2.bias')!
    noGrad(() => void weight.add_(0.5))
    for (const group of groups) {
      check(group, [1])
      assert.throws(() => check(group, [0]))
    }
  }))

test('under the field action alone the words get no gradient from the mask, unless a mask loss is on', async () => {
  const reached = (maskLoss: number) =>
    opened(
      {
        loop1: { weight: 0 },
        loop2: { action: 'field', maskLoss },
        train: ['mlp1', 'lora', 'mask_decoder'],
        rl: { beta: 0 },
      },
      async ({ learn, sample }) => (await learn(await sample(), 0)).groupNorms,
    )
  const alone = await reached(0)
  assert.deepEqual([alone.mlp1, alone.lora], [0, 0])
  assert.ok(alone.mask_decoder! > 0)
  assert.ok((await reached(0.1)).mlp1! > 0)
})

test('captions hold no [SEG]: the token the model says most is never drawn where a region is described', () =>
  opened({ rl: { numGenerations: 4, maxCompletionLength: 12 } }, async ({ cycle, sample }) => {
    for (let step = 0; step < 2; step++)
      for (const group of loop(await sample(step), 'loop1'))
        for (const s of group.samples) assert.ok(!s.ids.includes(cycle.family.segId), s.text)
    for (const group of loop(await sample(), 'loop2')) assert.ok(group.samples[0]!.ids.includes(cycle.family.segId))
  }))

test('the mask output of the sample is kept in the recompute, even when the weights would choose another', () =>
  opened({ loop2: { action: 'field' }, train: ['mlp1', 'lora', 'mask_decoder'] }, async ({ learner, sample }) => {
    const [group] = loop(await sample(), 'loop2')
    const before = plainDensities(group!)
    // the head that rates the outputs: it decides the choice and has no part in a mask's values
    const { module } = learner.family
    const rating = selectSlots(module, [/iou_prediction_head\.layers\.2\.(weight|bias)$/])
    const params = module.parameters()
    noGrad(() => {
      for (const { name } of rating) params.get(name)!.mul_(-1)
    })
    const [again] = loop(await sample(), 'loop2')
    assert.notEqual(samplesIn(again!)[0]!.action!.choice, samplesIn(group!)[0]!.action!.choice)
    assert.deepEqual(plainDensities(group!), before)
  }))

test('the noise of loop 2 does not depend on what was said: sampled and greedy answers get the same', async () => {
  const noise = (sampleText: boolean) =>
    opened(
      { loop2: { sampleText, action: 'embedding' }, train: ['mlp1', 'lora', 'text_hidden_fcs'] },
      async ({ sample }) =>
        loop(await sample(), 'loop2').map((g) => {
          const densities = plainDensities(g)
          const T = g.columns.all
          return samplesIn(g).map((s, k) => (s.action ? densities[k * T + T - 1]! : null))
        }),
    )
  const [greedy, sampled] = [await noise(false), await noise(true)]
  let compared = 0
  greedy.forEach((rows, i) => {
    rows.forEach((v, k) => {
      const other = sampled[i]![k]
      if (v === null || other === null || other === undefined) return
      compared++
      assert.ok(Math.abs(v - other) < 1e-4, `${v} and ${other}`)
    })
  })
  assert.ok(compared > 0)
})

const answers = [0, 1, 2].map((k) => ({
  id: `r#${k}`,
  reference: 'a cat',
  given: null as never,
  caption: 'a cat',
  text: '',
}))

test('a judge that fails for one sample is not a zero: its term leaves the whole group, so that scales are never mixed', async () => {
  const judge = defineReward({
    name: 'judge',
    range: [0, 1],
    doc: 'test',
    nullMeans: 'group',
    score: ({ id }) => (id === 'r#1' ? null : 0.9),
  })
  const other = defineReward({ name: 'other', range: [0, 1], doc: 'test', score: ({ id }) => Number(id.at(-1)) / 10 })
  const terms: Term[] = [
    { reward: judge, weight: 3 },
    { reward: other, weight: 1 },
  ]
  const rows = await scoreGroup(terms, answers)
  assert.deepEqual(
    rows.map((r) => r.total),
    [0, 0.1, 0.2],
  )
  assert.deepEqual(
    rows.map((r) => r.dropped),
    [['judge'], ['judge'], ['judge']],
  )
})

test('a sample that could not be scored has advantage 0 and no part in the others', () =>
  opened(
    {},
    async ({ sample }) => {
      for (const g of await sample()) {
        assert.equal(g.scores[1]!.total, null)
        assert.equal(g.advantages[1], 0)
        assert.ok(Math.abs(g.advantages[0]! + g.advantages[2]!) < 1e-9)
      }
    },
    toy,
    hostOf((_, k) => (k === 1 ? null : k)),
  ))
