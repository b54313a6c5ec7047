import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { largest, roundingBound } from '../../../tests/support/rounding.ts'
import { goldenFolder } from '../../../tests/support/sa2va.ts'
import {
  openWeights,
  placeTrainingCheckpoint,
  readAll,
  type TensorSource,
  writeSafetensors,
} from '../../checkpoint/index.ts'
import { openSa2VAQwen } from '../sa2va-qwen/index.ts'
import { exportSa2VA, isVideoOnly, openSa2VA } from './load.ts'

const qwenFolder = join(goldenFolder, '../sa2va-qwen2_5_vl-tiny')
const trainingFile = join(import.meta.dirname, '../../checkpoint/fixtures/training.pth')

function scratch(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'unmerged-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

const floats = (data: Uint8Array) =>
  new Float32Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength))
const bytes = (values: Float32Array) => new Uint8Array(values.buffer)
const ramp = (n: number, of: (i: number) => number) => Float32Array.from({ length: n }, (_, i) => of(i) / 8)

interface Names {
  /** Before every name of the language model and its wrapper. */
  prefix: (name: string) => string
  /** The layer whose adapter is left unmerged, and the embedding that PEFT keeps twice. */
  layer: string
  embedding: string
}

/** The golden folder as a trainer that does not merge would write it. */
function unmergedFolder(t: TestContext, from: string, { prefix, layer, embedding }: Names): string {
  const dir = scratch(t)
  for (const file of readdirSync(from))
    if (!/golden|model\.safetensors/.test(file)) cpSync(join(from, file), join(dir, file))
  const entries: TensorSource[] = []
  for (const [name, { dtype, shape, data }] of readAll(join(from, 'model.safetensors'))) {
    const stored = prefix(name)
    if (name === `${layer}.weight`) {
      const path = stored.replace(/\.weight$/, '')
      const [out, inner] = shape as [number, number]
      entries.push({ name: `${path}.base_layer.weight`, dtype, shape, data })
      entries.push({
        name: `${path}.lora_A.default.weight`,
        dtype,
        shape: [2, inner],
        data: bytes(ramp(2 * inner, Math.sin)),
      })
      entries.push({
        name: `${path}.lora_B.default.weight`,
        dtype,
        shape: [out, 2],
        data: bytes(ramp(2 * out, Math.cos)),
      })
    } else if (name === embedding) {
      const path = stored.replace(/\.weight$/, '')
      entries.push({ name: `${path}.original_module.weight`, dtype, shape, data: new Uint8Array(data.length) })
      entries.push({ name: `${path}.modules_to_save.default.weight`, dtype, shape, data })
    } else entries.push({ name: stored, dtype, shape, data })
  }
  writeSafetensors(join(dir, 'model.safetensors'), entries)
  return dir
}

/** W + 2 B A, written out. */
function expectedMerge(weight: Float32Array, out: number, inner: number): Float32Array {
  const [a, b] = [ramp(2 * inner, Math.sin), ramp(2 * out, Math.cos)]
  return weight.map((w, at) => {
    const [row, column] = [Math.floor(at / inner), at % inner]
    return w + 2 * (b[2 * row]! * a[column]! + b[2 * row + 1]! * a[inner + column]!)
  })
}

function close(got: readonly number[], want: ArrayLike<number>): void {
  assert.equal(got.length, want.length)
  const worst = got.reduce((most, v, i) => Math.max(most, Math.abs(v - want[i]!)), 0)
  // two products, their sum, the scale, the weight
  assert.ok(worst < roundingBound(5, largest(got)), `${worst} apart`)
}

for (const [what, folder, names, open] of [
  [
    'Sa2VA on InternVL, wrapped by PEFT and below mllm.model.',
    goldenFolder,
    {
      prefix: (name: string) =>
        /^(vision_model|mlp1|language_model)\./.test(name)
          ? `mllm.model.${name.replace(/^language_model\./, 'language_model.base_model.model.')}`
          : name,
      layer: 'language_model.model.layers.1.mlp.down_proj',
      embedding: 'language_model.model.embed_tokens.weight',
    },
    openSa2VA,
  ],
  [
    'Sa2VA on Qwen2.5-VL, wrapped by PEFT and below mllm.',
    qwenFolder,
    {
      prefix: (name: string) =>
        name.startsWith('model.') ? `mllm.${name.replace(/^model\./, 'model.base_model.model.')}` : name,
      layer: 'model.model.language_model.layers.1.mlp.down_proj',
      embedding: 'model.model.language_model.embed_tokens.weight',
    },
    openSa2VAQwen,
  ],
] as const) {
  test(`${what}: opens with its adapter merged, and its export has released names`, (t) => {
    const dir = unmergedFolder(t, folder, names)
    const loaded = open(dir, { dtype: 'float32' })
    const weights = loaded.model.parameters()
    const stored = readAll(join(folder, 'model.safetensors'))
    const { shape, data } = stored.get(`${names.layer}.weight`)!
    close(weights.get(`${names.layer}.weight`)!.numbers(), expectedMerge(floats(data), shape[0]!, shape[1]!))
    close(weights.get(names.embedding)!.numbers(), floats(stored.get(names.embedding)!.data))
    const out = join(scratch(t), 'released')
    exportSa2VA(loaded, out)
    for (const w of weights.values()) w.dispose()
    assert.deepEqual([...openWeights(out).names].sort(), [...stored.keys()].sort())
    close(
      Array.from(floats(openWeights(out).read(`${names.layer}.weight`))),
      expectedMerge(floats(data), shape[0]!, shape[1]!),
    )
  })
}

test('a .pth file of the Python trainer is loaded on top of its model: weights in place, adapters merged, its log skipped', () => {
  const loaded = openSa2VA(goldenFolder, { dtype: 'float32' })
  const layer = 'language_model.model.layers.0.self_attn.q_proj.weight'
  const before = Float32Array.from(loaded.model.parameters().get(layer)!.numbers())
  assert.deepEqual(placeTrainingCheckpoint(loaded.model, trainingFile, isVideoOnly), { weights: 2, adapters: 1 })
  const after = loaded.model.parameters()
  const want = before.map((w, at) => {
    const [row, column] = [Math.floor(at / 64), at % 64]
    const product = Math.cos(2 * row) * Math.sin(column) + Math.cos(2 * row + 1) * Math.sin(64 + column)
    return w + 2 * product
  })
  close(after.get(layer)!.numbers(), want)
  close(
    after.get('mlp1.1.bias')!.numbers(),
    Float32Array.from({ length: 64 }, (_, i) => i / 64),
  )
  close(
    after.get('text_hidden_fcs.0.bias')!.numbers(),
    Float32Array.from({ length: 64 }, (_, i) => i / 32),
  )
  for (const w of after.values()) w.dispose()
})

test('a .pth file alone in a folder that needs more, one half of an adapter, and a foreign name are refused', (t) => {
  const dir = scratch(t)
  for (const file of ['config.json', 'tokenizer.json']) cpSync(join(goldenFolder, file), join(dir, file))
  cpSync(trainingFile, join(dir, 'iter_100.pth'))
  assert.throws(() => openSa2VA(dir), /expected the weight its adapter belongs to.*is loaded on top of its model/)
  const half = join(scratch(t), 'half.safetensors')
  const data = new Uint8Array(4 * 128)
  const name = 'mllm.model.language_model.base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight'
  writeSafetensors(half, [{ name, dtype: 'F32', shape: [2, 64], data }])
  const loaded = openSa2VA(goldenFolder, { dtype: 'float32' })
  assert.throws(() => placeTrainingCheckpoint(loaded.model, half), /expected lora_A and lora_B/)
  const foreign = join(scratch(t), 'foreign.safetensors')
  writeSafetensors(foreign, [{ name: 'mllm.model.other.weight', dtype: 'F32', shape: [2, 64], data }])
  assert.throws(() => placeTrainingCheckpoint(loaded.model, foreign), /other\.weight: expected a weight of the model/)
  for (const w of loaded.model.parameters().values()) w.dispose()
})
