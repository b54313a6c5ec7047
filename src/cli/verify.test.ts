import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { readAll, writeSafetensors } from '../checkpoint/index.ts'
import { kernelsOff } from '../kernels/index.ts'
import { findGolden } from '../verify/golden.ts'
import { verifyOne } from './verify.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')

function scratch(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'verify-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

test('golden sets are recognized by content, under any name', (t) => {
  const dir = scratch(t)
  cpSync(join(golden, 'grpo.json'), join(dir, 'a.json'))
  cpSync(join(golden, 'meteor.jsonl'), join(dir, 'b.txt'))
  cpSync(join(golden, 'porter.jsonl'), join(dir, 'c.jsonl'))
  for (const [from, to] of [
    ['sa2va-tiny', 'd'],
    ['lora-tiny', 'e'],
    ['misc', 'f'],
    ['qwen2_5_vl-tiny', 'g'],
    ['qwen3_vl-tiny', 'h'],
  ] as const)
    cpSync(join(golden, from), join(dir, to), { recursive: true })
  writeFileSync(join(dir, 'notes.md'), 'text')
  const { found, others } = findGolden(dir)
  assert.deepEqual(
    found.map((g) => [g.path.slice(dir.length + 1), g.kind]),
    [
      ['a.json', 'grpo'],
      ['b.txt', 'meteor'],
      ['c.jsonl', 'porter'],
      ['d', 'sa2va'],
      ['e', 'lora'],
      ['f', 'misc'],
      ['g', 'qwen2_5_vl'],
      ['h', 'qwen3_vl'],
    ],
  )
  assert.deepEqual(others, [join(dir, 'notes.md')])
  assert.throws(() => findGolden(join(dir, 'notes.md')), /expected grpo-golden JSON/)
  assert.throws(() => findGolden(join(dir, 'nowhere')), /got nothing there/)
})

for (const [name, kind, rows] of [
  ['sa2va-tiny', 'sa2va', 250],
  ['lora-tiny', 'lora', 90],
  ['misc', 'misc', 20],
  ['qwen2_5_vl-tiny', 'qwen2_5_vl', 100],
  ['qwen3_vl-tiny', 'qwen3_vl', 390],
] as const) {
  test(`${name} is recomputed and every quantity is inside its limit`, async () => {
    const result = await verifyOne({ path: join(golden, name), kind })
    assert.deepEqual(
      result.rows.filter((r) => !r.pass),
      [],
    )
    assert.ok(result.rows.length >= rows, `${result.rows.length} rows`)
    assert.equal(result.pass, true)
  })
}

/** Other sides of a picture, a coordinate on the other side of the edge, another printed number. */
function changeRules(path: string): void {
  const stored = JSON.parse(readFileSync(path, 'utf8'))
  if (!stored.coordinate_cases) return
  stored.smart_resize_cases[0].resized_hw[1] += 32
  stored.coordinate_cases[2].inside = false
  stored.coordinate_cases[3].printed[1] += 1
  writeFileSync(path, JSON.stringify(stored))
}

test("a value that is not the reference's fails by its name, in every kind of folder", async (t) => {
  const changed = async (set: string, kind: 'sa2va' | 'lora' | 'misc' | 'qwen2_5_vl' | 'qwen3_vl', name: string) => {
    const dir = join(scratch(t), 'x')
    cpSync(join(golden, set), dir, { recursive: true })
    const path = join(dir, 'golden.safetensors')
    const all = readAll(path)
    const bytes = all.get(name)!.data
    for (let i = 3; i < bytes.length; i += 4) bytes[i] = bytes[i]! ^ 0x02
    writeSafetensors(
      path,
      Array.from(all, ([n, e]) => ({ name: n, ...e })),
    )
    changeRules(join(dir, 'golden.json'))
    const { rows, pass } = await verifyOne({ path: dir, kind })
    assert.equal(pass, false)
    const failed = rows.filter((r) => !r.pass).map((r) => r.name)
    assert.ok(failed.includes(name), name)
    const rules = kind === 'qwen3_vl' ? ['smart_resize 640x480', 'coordinate_cases.2', 'coordinate_cases.3'] : []
    assert.deepEqual(failed.filter((one) => /^(smart_resize|coordinate)/.test(one)), rules) // biome-ignore format: one line
  }
  await changed('sa2va-tiny', 'sa2va', 'sam.fpn1')
  await changed('lora-tiny', 'lora', 'after.base_model.model.model.layers.0.mlp.up_proj.lora_B.default.weight')
  await changed('misc', 'misc', 'resize.bilinear.64x48')
  await changed('qwen2_5_vl-tiny', 'qwen2_5_vl', 'image_embeds')
  await changed('qwen3_vl-tiny', 'qwen3_vl', 'deepstack1')
})

test('small gradients of the other sign fail the updated weights: only gradients near 0 are excused', async (t) => {
  const dir = join(scratch(t), 'x')
  cpSync(join(golden, 'lora-tiny'), dir, { recursive: true })
  const path = join(dir, 'golden.safetensors')
  const { lr } = JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as { lr: number }
  const all = readAll(path)
  const floats = (name: string) => {
    const { data } = all.get(name)!
    return new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4)
  }
  const name = 'base_model.model.model.layers.0.mlp.up_proj.lora_B.default.weight'
  const [grad, after] = [floats(`grad.${name}`), floats(`after.${name}`)]
  const largest = grad.reduce((most, g) => Math.max(most, Math.abs(g)), 0)
  let flipped = 0
  grad.forEach((g, i) => {
    if (Math.abs(g) < 1e-6 || Math.abs(g) > 5e-4 * largest) return // what the limit on gradients lets pass
    flipped++
    grad[i] = -g
    after[i]! += (2 * lr * g) / (Math.abs(g) + 1e-8)
  })
  assert.ok(flipped > 0, 'gradients that are small and not near 0')
  writeSafetensors(
    path,
    Array.from(all, ([n, e]) => ({ name: n, ...e })),
  )
  const { rows } = await verifyOne({ path: dir, kind: 'lora' })
  const failed = rows.filter((r) => !r.pass).map((r) => r.name)
  assert.deepEqual(failed, [`after.${name}`])
})

test('a set that cannot be read is a failure with its reason', async (t) => {
  const dir = scratch(t)
  cpSync(join(golden, 'sa2va-tiny'), dir, { recursive: true })
  writeFileSync(join(dir, 'model.safetensors'), readFileSync(join(dir, 'model.safetensors')).subarray(0, 1000))
  const broken = await verifyOne({ path: dir, kind: 'sa2va' })
  assert.equal(broken.pass, false)
  assert.match(broken.rows[0]!.detail!, /model\.safetensors: header length/)
})

test('a device that is not there is refused with a clear message, and golden tensors are loaded to their device', async () => {
  const set = { path: join(golden, 'misc'), kind: 'misc' as const }
  await assert.rejects(verifyOne({ ...set, device: 'gpu' }), /--device: expected cpu, cuda or cuda:N, got gpu/)
  await assert.rejects(
    verifyOne({ ...set, device: 'cuda:64' }),
    /device: expected .*CUDA device.*, got cuda:64\. .*--device cpu/,
  )
  assert.ok((await verifyOne({ ...set, device: 'cpu' })).pass, 'cpu after a refusal')
})

test('our kernels are used or not, as requested', async () => {
  const set = { path: join(golden, 'misc'), kind: 'misc' as const }
  await verifyOne({ ...set, kernels: 'off' })
  assert.match(kernelsOff()!, /is off/)
  await verifyOne(set)
  assert.equal(kernelsOff(), null)
})
