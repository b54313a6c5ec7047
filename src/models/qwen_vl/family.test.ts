import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { writeAdapter } from '../../../tests/support/adapter.ts'
import { loadAdapter, openWeights, readTensors, tensorSource, toFileName } from '../../checkpoint/index.ts'
import { addLora, tensorAt } from '../../nn/index.ts'
import { manualSeed, noGrad, randn, tidy } from '../../tensor/index.ts'
import { openFamily } from '../open.ts'
import type { QwenVLFamily } from './family.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden/qwen2_5_vl-tiny')
const folder = mkdtempSync(join(tmpdir(), 'qwen-'))
after(() => rmSync(folder, { recursive: true }))

/** The golden model with adapters that are not nothing. */
function adapted(): QwenVLFamily {
  const family = openFamily(golden, { dtype: 'float32' }) as QwenVLFamily
  addLora(family.adapter.on, family.adapter.targets, { rank: 4, alpha: 8, seed: 1 })
  manualSeed(3)
  for (const slot of adapterSlots(family)) {
    const t = tensorAt(slot)
    noGrad(() => tidy(() => t.copy_(randn(t.shape).mul(0.05))))
  }
  return family
}

const adapterSlots = (family: QwenVLFamily) => family.module.slots().filter((s) => /\.lora_[AB]\./.test(s.name))

test('a folder with model_type qwen2_5_vl is opened as that family; q, k, v, o of the language model get adapters', () => {
  const family = adapted()
  assert.equal(family.name, 'qwen2_5_vl')
  const slots = adapterSlots(family)
  assert.equal(slots.length, 2 * 4 * 3)
  assert.equal(
    toFileName(slots.find((s) => s.name.includes('layers.0.self_attn.q_proj.lora_A'))!.name, family.adapter.names),
    'base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight',
  )
})

test('adapters with the names before and since transformers 4.52 are read alike', () => {
  const family = adapted()
  const settings = { r: 4, lora_alpha: 8, target_modules: ['q_proj', 'k_proj', 'v_proj', 'o_proj'] }
  const entries = adapterSlots(family).map((s) => tensorSource(s.name, tensorAt(s)))
  for (const [layout, prefix] of [
    ['old', 'base_model.model.model.'],
    ['new', 'base_model.model.model.language_model.'],
  ] as const) {
    const dir = join(folder, layout)
    writeAdapter(dir, settings, entries, { ...family.adapter.names, file: prefix })
    const again = openFamily(golden, { dtype: 'float32' }) as QwenVLFamily
    loadAdapter(again.module, dir)
    const got = new Map(adapterSlots(again).map((s) => [s.name, tensorAt(s)]))
    for (const slot of adapterSlots(family))
      assert.deepEqual(got.get(slot.name)!.numbers(), tensorAt(slot).numbers(), `${layout} ${slot.name}`)
  }
})

test('a merged export has the base weight plus the scaled product of the factors, and opens again', () => {
  const family = adapted()
  const out = join(folder, 'merged')
  family.export(out)
  const [before, merged] = [golden, out].map((dir) => readTensors(openWeights(dir)))
  const path = 'model.layers.1.self_attn.v_proj'
  const slot = (part: string) => tensorAt(adapterSlots(family).find((s) => s.name === `${path}.lora_${part}.weight`)!)
  tidy(() => {
    const want = before!.get(`${path}.weight`)!.add(slot('B').matmul(slot('A')).mul(2))
    assert.ok(merged!.get(`${path}.weight`)!.sub(want).abs().max().item() < 1e-6)
    for (const name of before!.keys())
      if (!/self_attn\.[qkvo]_proj\.weight$/.test(name))
        assert.equal(merged!.get(name)!.sub(before!.get(name)!).abs().max().item(), 0, name)
  })
  assert.equal(openFamily(out).name, 'qwen2_5_vl')
})
