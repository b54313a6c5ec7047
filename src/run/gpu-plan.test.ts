import assert from 'node:assert/strict'
import { test } from 'node:test'
import { modelSizes, releasedConfig } from '../models/index.ts'
import { resolveRun } from './config.ts'
import { memoryShare } from './gpu-plan.ts'
import { chooseSampling, planMemory } from './memory-plan.ts'

const gib = 2 ** 30
const card = { bytes: 139.8 * gib, kernels: true }

test('a process plans with its part of a GPU that several share, and with what its allocator may take', () => {
  const shares = (gpus: number, local: number, settings?: string) => memoryShare(120, gpus, local, settings)
  assert.deepEqual([shares(1, 1), shares(8, 8), shares(8, 4)], [120, 120, 120])
  assert.deepEqual([shares(1, 2), shares(2, 3), shares(2, 8)], [60, 60, 30])
  const settings = 'expandable_segments:True,per_process_memory_fraction:0.25,max_split_size_mb:64'
  assert.deepEqual([shares(1, 1, settings), shares(1, 8, settings)], [30, 15])
})

test('auto merges quantized weights from the GPU on that has room for the copies, and is planned as what it chooses', () => {
  for (const name of ['internvl3-8b', '8b'] as const)
    for (const frozenWeights of ['int8', 'nf4'] as const) {
      const sizes = modelSizes(releasedConfig(name))
      const rl = { numGenerations: 4, maxCompletionLength: 128 }
      const plain = { frozenWeights, checkpointing: true, batchSize: 1, maxTiles: 1, rl, lora: { rank: 32 } }
      const settings = (weights: 'auto' | 'merged' | 'exact') => resolveRun({ ...plain, sampling: { weights } })
      const of = (weights: 'auto' | 'merged' | 'exact', on = card) => planMemory(sizes, settings(weights), on)
      const choice = (on: typeof card) => chooseSampling(sizes, settings('auto'), on).weights
      const ours = name === 'internvl3-8b' // no kernel decodes InternLM2
      const enough = 1.05 * of('merged').peak + 0.6 * gib
      for (const [bytes, expected] of [
        [enough + 1, 'merged'],
        [enough - 1, 'exact'],
      ] as const) {
        const on = { bytes, kernels: true }
        const chosen = ours ? expected : 'exact'
        assert.equal(choice(on), chosen, `${name} in ${frozenWeights} on ${bytes / gib} GiB`)
        assert.deepEqual(of('auto', on), of(chosen, on))
        assert.equal(choice({ ...on, kernels: false }), 'exact')
        assert.equal(chooseSampling(sizes, settings('merged'), on).weights, 'merged')
      }
      const values = sizes.matrices.reduce((sum, [out, input]) => sum + out * input, 0)
      const { vocab_size, hidden_size } = sizes.llm
      const head = vocab_size % 64 === 0 ? 0 : vocab_size * hidden_size
      for (const targets of [null, 'attention', '.*q_proj|mlp1.*']) {
        const own = modelSizes(releasedConfig(name), targets)
        const others = own.adapted.filter((size) => !own.matrices.includes(size)).map(([out, input]) => out * input)
        assert.equal(others.length, targets?.includes('mlp1') ? 2 : Number(!ours && !targets)) // InternLM2's head by default
        const { merged } = planMemory(own, settings('merged'), card)
        assert.equal(merged, 2 * (values + head + others.reduce((a, b) => a + b, 0)), `adapters on ${targets}`)
      }
    }
})

test('merged weights hold gate and up while the model learns, and the head is copied if our kernels do not multiply it', () => {
  const sizes = modelSizes(releasedConfig('4b'))
  const rl = { numGenerations: 4, maxCompletionLength: 128 }
  const plan = (batchSize: number, on: object = card, checkpointing = false) => {
    const settings = resolveRun({ batchSize, maxTiles: 1, rl, checkpointing, sampling: { weights: 'merged' } })
    return planMemory(sizes, settings, { ...card, ...on })
  }
  const { num_hidden_layers: layers, intermediate_size: inner, vocab_size: V, hidden_size: S } = sizes.llm
  const gateUp = 2 * layers * (sizes.imageTokens(1) + 4 * 128) * 2 * inner
  assert.ok(plan(1).learning > plan(1, card, true).learning)
  assert.ok(plan(1).learning - plan(1, card, true).learning < gateUp / 2)
  const copied = (batchSize: number, on = {}) => plan(batchSize, on).merged - plan(4).merged
  assert.deepEqual([copied(1), copied(5), copied(4, { clusters: false })], [0, 2 * V * S, 2 * V * S])
})
