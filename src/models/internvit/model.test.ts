// Against the definitions written down once more in tests/parity/generate.py.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { loadWeights, openWeights, readHeader, readTensors } from '../../checkpoint/index.ts'
import { tensorAt } from '../../nn/index.ts'
import { backward, expectNoLeak, noGrad, tidy } from '../../tensor/index.ts'
import { compareTensor } from '../../verify/compare.ts'
import { InternVisionModel, readVisionConfig } from './model.ts'

function open(name: string) {
  const path = fileURLToPath(new URL(`../../../tests/parity/vit-${name}.safetensors`, import.meta.url))
  const model = new InternVisionModel(readVisionConfig(JSON.parse(readHeader(path).metadata['config']!), path))
  loadWeights(model, openWeights(path), { unused: [/^(in|out|grad)\./] })
  return { model, want: readTensors(openWeights(path)) }
}

const limit = { rel: 2e-6, words: '2e-6' }

for (const name of ['layer-norm', 'rms-qk']) {
  test(`${name}: hidden states, the layer before the last and gradients equal the written-out transformer`, () => {
    const { model, want } = open(name)
    for (const slot of model.slots()) tensorAt(slot).requiresGrad_(true)
    tidy(() => {
      const last = model.forward(want.get('in.pixels')!)
      const before = model.forward(want.get('in.pixels')!, -2)
      for (const row of [
        compareTensor('last', last, want.get('out.last')!, limit),
        compareTensor('before', before, want.get('out.before')!, limit),
      ])
        assert.ok(row.pass, JSON.stringify(row))
      backward(last.square().mean())
      for (const slot of model.slots()) {
        const expected = want.get(`grad.${slot.name}`)
        if (!expected) continue
        const row = compareTensor(slot.name, tensorAt(slot).grad()!, expected, { rel: 1e-5, abs: 1e-8, words: '1e-5' })
        assert.ok(row.pass, JSON.stringify(row))
      }
    })
    noGrad(() => expectNoLeak(() => tidy(() => model.forward(want.get('in.pixels')!).sum().item())))
    for (const t of [...want.values(), ...model.parameters().values()]) t.dispose()
  })
}

test('the class defaults are those of the 6B variant, and other classes are refused', () => {
  const sizes = {
    hidden_size: 8,
    num_attention_heads: 2,
    intermediate_size: 8,
    num_hidden_layers: 1,
    image_size: 8,
    patch_size: 4,
  }
  const cfg = readVisionConfig({ architectures: ['InternVisionModel'], ...sizes }, 'config.json')
  assert.deepEqual([cfg.norm_type, cfg.qk_normalization, cfg.qkv_bias], ['rms_norm', true, false])
  assert.throws(
    () => readVisionConfig({ architectures: ['CLIPVisionModel'], ...sizes }, 'c'),
    /vision_config.architectures/,
  )
  assert.throws(
    () => readVisionConfig({ architectures: ['InternVisionModel'], ...sizes, patch_size: 'x' }, 'c'),
    /patch_size/,
  )
})
