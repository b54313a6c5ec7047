import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { openSource } from '../../src/data/index.ts'
import { disposeModel, openModel } from '../../src/run/index.ts'
import { defineTask } from '../../src/tasks/define-task.ts'
import type { CommonSettings } from '../../src/tasks/kind.ts'
import { noGrad, tidy } from '../../src/tensor/index.ts'
import { makeToy, scratch, toyRun } from '../support/runs.ts'

const reward = { name: 'fixed', range: [0, 1], doc: 'one', score: () => 1 } as const
const kind = defineTask({
  name: 'own',
  doc: 'region -> words',
  rewards: [{ reward, weight: 2 }, { reward: { ...reward, name: 'second' } }],
  answer: (text) => ({ caption: `said ${text}` }),
  metrics: ({ caption }) => ({ said: Number(caption?.startsWith('said')) }),
})

test('defaults: the task samples, answers, scores itself again, is stored and evaluated', async (t) => {
  const folder = scratch('define')
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  makeToy(join(folder, 'toy'))
  const rl = { numGenerations: 3, maxCompletionLength: 4 }
  const config = toyRun(join(folder, 'toy'), join(folder, 'run'), { rl, train: ['mlp1', 'lora'] })
  const family = openModel(config)
  const source = await openSource('scenes:2')
  const examples = await Promise.all([0, 1].map((i) => source.get(i)))
  await source.close()
  const silent = <T>(fn: () => T): T => noGrad(() => tidy(fn as () => never)) as T
  const found = silent(() => {
    const features = family.encode(examples.map(({ image }) => family.prepare(image, {})))
    const items = examples.map((example, i) => ({ id: example.id, example, features: features[i]! }))
    const [task] = kind.build(family, config as CommonSettings)
    const groups = task!.sample(items, { seed: 1, step: 0 })
    const again = task!.sample(items, { seed: 1, step: 0 })
    const logps = task!.densities(items, groups).map((one) => one.logps.array() as Float32Array)
    const evaluator = kind.evaluator(family, config as CommonSettings)
    const summary = evaluator.summary(evaluator.score(items), 1)
    const replies = task!.answer(items, groups) as { answer: { caption: string; id: string } }[][]
    return { task: task!, groups, again, logps, summary, replies, probe: task!.probe(items[0]!) }
  })
  assert.deepEqual(found.groups.map((g) => g.length), [3, 3]) // biome-ignore format: one line
  assert.deepEqual(found.again, found.groups, 'the same draw gives the same samples')
  for (const [b, group] of found.groups.entries())
    for (const [k, { logps }] of group.entries())
      for (const [t, logp] of logps.entries())
        assert.ok(Math.abs(logp - found.logps[b]![k * (found.logps[b]!.length / 3) + t]!) < 1e-4)
  const stored = JSON.parse(JSON.stringify(found.task.store(found.groups[0]![0]!)))
  assert.deepEqual(found.task.restore(stored), found.groups[0]![0])
  assert.equal(found.replies[1]![2]!.answer.id, `${examples[1]!.id}#2`)
  assert.ok(found.replies[0]![0]!.answer.caption.startsWith('said'))
  assert.deepEqual([Object.keys(found.summary), found.summary['own/said']!.mean], [['own/said'], 1])
  assert.equal(found.probe[0]!.finished, true)
  assert.throws(() => kind.check({ ...config, train: ['lora', 'mask_decoder'] } as CommonSettings), /own: train: expected groups that its loss reaches, got mask_decoder. --train mlp1,lora/) // biome-ignore format: one line
  const { terms } = kind.rewards(config as CommonSettings).tasks['own']!.rewards
  assert.deepEqual(terms.map((term) => term.weight), [2, 1]) // biome-ignore format: one line
  const modules = [{ path: './mine.mjs', weight: 0.5 }]
  const added = kind.rewards({ ...config, rewards: { ...config.rewards, modules } } as CommonSettings).tasks['own']!
  assert.deepEqual(added.rewards.terms.at(-1), { type: 'module', path: './mine.mjs', weight: 0.5 }, '--reward')
  disposeModel(family)
})
