// What reaches a step besides the loss itself: streams, prompts, lengths, roles and references, each once free to be another.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { alone } from '../../src/distributed/index.ts'
import {
  type Item,
  NonFinite,
  plainDensities,
  type Sample,
  step,
  type Task,
  withAdvantages,
} from '../../src/rl/index.ts'
import type { RunInput } from '../../src/run/index.ts'
import { tensor, tidy } from '../../src/tensor/index.ts'
import { regionQuestions } from '../../src/text/index.ts'
import { hashes, makeToy, type Opened, openRun, samplesIn, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('step-fed')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

async function opened<R>(input: Partial<RunInput>, use: (o: Opened) => Promise<R> | R, count = 2): Promise<R> {
  const o = await openRun(toyRun(toy, join(folder, 'none'), input), count)
  try {
    return await use(o)
  } finally {
    o.dispose()
  }
}

test('shuffled rewards are shuffled anew in every step and in each loop', () =>
  opened({ shuffleRewards: true, rl: { numGenerations: 4 } }, async (o) => {
    const group = (await o.sample())[0]!
    const order = (number: number, task: Task) =>
      withAdvantages(o.run, [{ ...group, task }], { seed: o.config.seed, step: number })[0]!.advantages.join()
    const [loop1, loop2] = o.run.tasks as [Task, Task]
    const steps = Array.from({ length: 8 }, (_, number) => number)
    assert.ok(new Set(steps.map((number) => order(number, loop1))).size > 2, 'orders of eight steps')
    assert.ok(
      steps.some((number) => order(number, loop1) !== order(number, loop2)),
      'orders of both loops',
    )
  }))

test('densities under the reference are kept with their group, also when the reference has moved on', () =>
  opened({ rl: { syncRefModel: true, refModelMixupAlpha: 1, refModelSyncSteps: 1, beta: 0.1 } }, async (o) => {
    const groups = await o.sample()
    await o.learn(groups, 1e-2)
    const kept = groups.map((g) => Float32Array.from(g.reference!))
    await o.learn(groups, 1e-2)
    groups.forEach((g, i) => void assert.deepEqual(g.reference, kept[i]))
  }))

test('a gradient that is not finite ends the step as such, and no weight moves', () =>
  opened({}, async (o) => {
    const groups = await o.sample()
    const before = hashes(o.learner.params())
    const world = {
      ...alone,
      sumGradients: async () => {
        const [first] = o.learner.params().values()
        tidy(() => first!.setGrad(tensor(new Float32Array(first!.numel).fill(Number.NaN), [...first!.shape])))
      },
    }
    const batch = { draw: { seed: 1, step: 0 }, pieces: [o.items], groups }
    await assert.rejects(step({ ...o.run, world }, batch, 1e-3), NonFinite)
    assert.deepEqual(hashes(o.learner.params()), before)
  }))

for (const [action, more] of [
  ['field', { train: ['mlp1', 'lora', 'mask_decoder'] }],
  ['embedding', { train: ['mlp1', 'lora', 'text_hidden_fcs'] }],
] as const) {
  test(`every mask of a record has its own noise: ${action}`, () =>
    opened({ loop2: { action }, train: [...more.train], rl: { numGenerations: 4 } }, async (o) => {
      for (const group of (await o.sample()).filter((g) => g.task.name === 'loop2')) {
        const values = samplesIn(group).map((s) => s.action!.value.join())
        assert.equal(new Set(values).size, 4)
      }
    }))
}

test('each noise has the scale of its setting', async () => {
  const scales = (loop2: RunInput['loop2'], more: Partial<RunInput> = {}) =>
    opened({ loop2, rl: { maxCompletionLength: 5 }, ...more }, (o) => {
      const task = o.run.tasks.find((t) => t.name === 'loop2')!
      return o.encoder.inWork(o.items, () => task.open(o.items)) as { field: number; prompt: number }
    })
  const one = await scales({ action: 'both', actionStd: 1, promptStd: 1 })
  const other = await scales({ action: 'both', actionStd: 2, promptStd: 3 })
  assert.ok(one.field > 1e-4 && one.prompt > 1e-4 && one.field !== one.prompt, JSON.stringify(one))
  assert.ok(Math.abs(other.field / one.field - 2) < 1e-9, `field ${other.field} of ${one.field}`)
  assert.ok(Math.abs(other.prompt / one.prompt - 3) < 1e-9, `prompt ${other.prompt} of ${one.prompt}`)
  const embedding = { train: ['mlp1', 'lora', 'text_hidden_fcs'] } satisfies Partial<RunInput>
  const alone = await scales({ action: 'embedding', actionStd: 2, promptStd: 3 }, embedding)
  assert.ok(Math.abs(alone.prompt / one.prompt - 2) < 1e-9, `prompt alone ${alone.prompt} of ${one.prompt}`)
})

test('the mask loss weighs what its setting says', async () => {
  const extra = (maskLoss: number) =>
    opened({ loop2: { maskLoss } }, async (o) => {
      const group = (await o.sample()).find((g) => g.task.name === 'loop2')!
      return o.encoder.inWork(o.items, () =>
        tidy(() => group.task.extraLoss!([group.item], [group.samples])![0]!.item()),
      )
    })
  const [whole, part] = [await extra(1), await extra(0.25)]
  assert.ok(whole > 0 && Math.abs(part / whole - 0.25) < 1e-6, `${part} of ${whole}`)
})

test('a record whose answer has no [SEG] takes no mask loss, and the others keep their own', () =>
  opened({ loop2: { maskLoss: 1 } }, async (o) => {
    const [first, second] = (await o.sample()).filter((g) => g.task.name === 'loop2')
    const silent = first!.samples.map((s) => ({ ...s, ids: s.ids.filter((id) => id !== o.cycle.family.segId) }))
    const extra = (items: readonly Item[], groups: readonly (readonly Sample[])[]) =>
      tidy(() => second!.task.extraLoss!(items, groups)!.map((t) => t?.item() ?? null))
    o.encoder.inWork(o.items, () => {
      const [alone] = extra([second!.item], [second!.samples])
      const [none, own] = extra([first!.item, second!.item], [silent, second!.samples])
      assert.equal(none, null)
      assert.ok(Math.abs(own! - alone!) < 1e-5, `${own} beside a silent record, ${alone} alone`)
    })
  }))

test('each sampled answer has its own prompt: its actions are scored against what it said', () =>
  opened({ loop2: { sampleText: true }, rl: { numGenerations: 6 } }, async (o) => {
    const group = (await o.sample()).filter((g) => g.task.name === 'loop2')
    o.encoder.inWork(o.items, () => {
      let compared = 0
      for (const g of group) {
        const together = plainDensities(g)
        const { all } = g.columns
        g.samples.forEach((s, k) => {
          if (!samplesIn(g)[k]!.action) return
          const alone = plainDensities({ ...g, samples: [s] })
          const [mine, own] = [together.slice((k + 1) * all - 2, (k + 1) * all), alone.slice(-2)]
          for (const i of [0, 1]) assert.ok(Math.abs(mine[i]! - own[i]!) < 1e-4, `sample ${k}: ${mine}, alone ${own}`)
          compared++
        })
      }
      assert.ok(compared > 2, `${compared} answers with an action`)
    })
  }))

test("sampled answers are scored at the sampler's temperature, each as it was said", () =>
  opened({ loop2: { sampleText: true }, rl: { temperature: 0.6, numGenerations: 4 } }, async (o) => {
    const said = new Set<string>()
    for (const g of (await o.sample()).filter((group) => group.task.name === 'loop2')) {
      const scored = o.encoder.inWork(o.items, () => plainDensities(g))
      g.samples.forEach((s, k) => {
        said.add(s.text)
        s.logps.forEach((v, t) => {
          const own = scored[k * g.columns.all + t]!
          assert.ok(Math.abs(v - own) < 1e-4, `sample ${k}, token ${t}: ${v}, scored ${own}`)
        })
      })
    }
    assert.ok(said.size > 1, `${said.size} different answers`)
  }))

test('regions are asked about in the words of the settings, by the policy and by the EMA copy', () =>
  opened({ loop1: { question: regionQuestions[2]! } }, async (o) => {
    const { family } = o.cycle
    const describe = family.describe.bind(family)
    const asked: unknown[] = []
    family.describe = (features, mask, question) => {
      asked.push(question)
      return describe(features, mask, question)
    }
    const [group] = await o.sample()
    const sampled = asked.length
    o.encoder.inWork(o.items, () => plainDensities(group!))
    assert.ok(asked.length > sampled, 'scored with a prompt too')
    assert.deepEqual([...new Set(asked)], [regionQuestions[2]])
  }))

test('a sample that does not end by itself has exactly as many tokens as the settings allow', () =>
  opened({ rl: { maxCompletionLength: 7, numGenerations: 6 } }, async (o) => {
    const samples = (await o.sample()).filter((g) => g.task.name === 'loop1').flatMap((g) => g.samples)
    const cut = samples.filter((s) => !s.finished)
    assert.ok(cut.length > 0, 'some are cut')
    for (const s of samples) assert.ok(s.ids.length <= 7 && s.ids.length === s.logps.length, `${s.ids.length} tokens`)
    for (const s of cut) assert.equal(s.ids.length, 7)
  }))

test('how far the sampler is from the loss is reported in the step that sampled, and not in later passes', () =>
  opened({ rl: { numIterations: 2 } }, async (o) => {
    const groups = await o.sample()
    const name = 'loop1/sampling/sampling_logp_difference/max'
    const first = (await o.learn(groups, 1e-3)).metrics(0)
    assert.ok(first[name]! >= 0 && first[name]! < 1e-3, `${first[name]}`)
    for (const g of groups) g.old = o.encoder.inWork(o.items, () => plainDensities(g))
    assert.equal((await o.learn(groups, 1e-3)).metrics(0)[name], undefined)
  }))

test('norms of the groups are those of their gradients: together they make the norm of the step', () =>
  opened({}, async (o) => {
    const report = await o.learn(await o.sample(), 0)
    const norms = Object.values(report.groupNorms)
    assert.equal(norms.length, 5)
    const whole = Math.hypot(...norms)
    assert.ok(Math.abs(whole / report.gradNorm - 1) < 1e-5, `${whole}, ${report.gradNorm}`)
  }))

test('adapters act with alpha over rank', () =>
  opened({ lora: { rank: 4, alpha: 10 } }, (o) => {
    assert.equal(o.learner.adapter!.scale, 2.5)
  }))
