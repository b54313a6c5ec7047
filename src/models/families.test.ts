import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { writeSafetensors } from '../checkpoint/index.ts'
import { Mismatch } from '../core/index.ts'
import { bfloat16 } from '../image/index.ts'
import { makeScene, sceneExample } from '../scenes/index.ts'
import { tidyNoGrad } from '../tensor/index.ts'
import { familyOf, familyOfConfig } from './families.ts'
import { openFamily } from './open.ts'
import { openSa2VA } from './sa2va/index.ts'
import { parseSa2VAQwenConfig } from './sa2va-qwen/index.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')

const configOf = (set: string) => JSON.parse(readFileSync(join(golden, set, 'config.json'), 'utf8'))

function folder(t: TestContext, config: unknown, tensors: readonly string[] = []): string {
  const dir = mkdtempSync(join(tmpdir(), 'family-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  const data = new Uint8Array(4)
  if (tensors.length > 0)
    writeSafetensors(
      join(dir, 'model.safetensors'),
      tensors.map((name) => ({ name, dtype: 'F32' as const, shape: [1], data })),
    )
  return dir
}

test('the released folders are told apart by architectures[0] and the parts of their config', () => {
  assert.equal(familyOf(join(golden, 'sa2va-tiny')), 'sa2va-internvl')
  assert.equal(familyOf(join(golden, 'sa2va-qwen2_5_vl-tiny')), 'sa2va-qwen2_5_vl')
  assert.equal(familyOf(join(golden, 'sa2va-qwen3vl-tiny')), 'sa2va-qwen3_vl')
  assert.equal(familyOf(join(golden, 'qwen2_5_vl-tiny')), 'qwen2_5_vl')
  assert.equal(familyOf(join(golden, 'qwen3_vl-tiny')), 'qwen3_vl')
})

test('without architectures, llm_config and text_config decide; text_config.architectures does not count', () => {
  const { architectures: _, ...internvl } = configOf('sa2va-tiny')
  assert.equal(familyOfConfig(internvl), 'sa2va-internvl')
  const { architectures: __, ...qwen } = configOf('sa2va-qwen3vl-tiny')
  assert.equal(familyOfConfig(qwen), 'sa2va-qwen3_vl')
  const plain = configOf('qwen2_5_vl-tiny')
  assert.equal(familyOfConfig({ ...plain, text_config: { architectures: ['Sa2VAChatModelQwen'] } }), 'qwen2_5_vl')
})

test("a converted folder that has the base's name and model type is a Sa2VA when it has a mask decoder", (t) => {
  const { grounding_encoder_config: _, ...raw } = configOf('sa2va-qwen2_5_vl-tiny')
  const config = { ...raw, architectures: ['Qwen2_5_VLForConditionalGeneration'], model_type: 'qwen2_5_vl' }
  assert.equal(familyOf(folder(t, config, ['model.lm_head.weight'])), 'qwen2_5_vl')
  const grounded = folder(t, config, ['model.lm_head.weight', 'grounding_encoder.sam2_model.no_mem_embed'])
  assert.equal(familyOf(grounded), 'sa2va-qwen2_5_vl')
})

test('variants and architectures that are not supported are refused by name with the reason, before a weight is read', (t) => {
  const refused = (config: object, tensors: string[], ...texts: RegExp[]) =>
    assert.throws(
      () => familyOf(folder(t, config, tensors)),
      (error: Error) => error instanceof Mismatch && texts.every((text) => text.test(error.message)),
      String(texts),
    )
  const qwen3 = configOf('sa2va-qwen3vl-tiny')
  refused({ architectures: ['Sa2VAChatModelLlava'] }, [], /architectures\[0\]/, /Sa2VAChatModelLlava/, /CLIP tower/)
  const trunk = 'grounding_encoder.sam2_model.backbone.vision_backbone.trunk.pos_embed'
  refused(qwen3, [trunk], /SAM3 tower/, /trunk\.pos_embed/)
  refused({ ...qwen3, auto_map: { AutoModel: 'modeling_sam3.Sa2VAChatModelQwen' } }, [], /SAM3 tower/)
  refused({ architectures: ['SomethingElse'] }, [], /expected Sa2VAChatModel .*got SomethingElse/)
  refused({ model_type: 'llama' }, [], /got nothing/)
  refused({ architectures: ['Qwen3VLMoeForConditionalGeneration'] }, [], /got Qwen3VLMoe/, /mixture of experts/)
  refused({ architectures: ['Qwen3_5ForConditionalGeneration'] }, [], /got Qwen3_5For/, /attention is not built/)
  refused({ model_type: 'qwen3_5', text_config: { model_type: 'qwen3_5_text' } }, [], /got qwen3_5_text/)
  refused(
    { ...qwen3, text_config: { model_type: 'qwen3_vl_moe_text' }, vision_config: {} },
    [],
    /text_config\.model_type: expected qwen2_5_vl_text or qwen3_vl_text, got qwen3_vl_moe_text/,
  )
  refused({ ...qwen3, text_config: { model_type: 'qwen3_vl_moe_text' } }, [], /got qwen3_vl_moe_text/)
  refused({ ...qwen3, text_config: { model_type: 'qwen2_5_vl_text' } }, [], /got qwen2_5_vl_text, qwen3_vl, /)
  refused({ ...qwen3, quantization_config: { quant_method: 'awq' } }, [], /quantization_config: .* got awq/)
})

test('axes that take turns where the base has them follow each other are refused, and so the other way round', () => {
  for (const [set, said] of [
    ['sa2va-qwen3vl-tiny', false],
    ['sa2va-qwen2_5_vl-tiny', true],
  ] as const) {
    // biome-ignore format: a table
    const raw = JSON.parse(readFileSync(join(golden, set, 'config.json'), 'utf8'))
    raw.text_config.rope_scaling.mrope_interleaved = said
    assert.throws(() => parseSa2VAQwenConfig(raw), /rope_scaling\.mrope_interleaved: expected (true|false), got/)
  }
})

test('the folder of a run is not taken for a model: the message says what it is', () => {
  const config = { task: 'cycle', output: 'runs/first', dataPath: 'scenes:8', model: 'assets/miniature' }
  assert.throws(() => familyOfConfig(config), /got nothing\. .*it is a run; --model names what it trained$/)
})

test('a Qwen variant opened as an InternVL one is told apart by architectures[0], not by model_type', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'family-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  cpSync(join(golden, 'sa2va-qwen3vl-tiny', 'config.json'), join(dir, 'config.json'))
  assert.throws(() => openSa2VA(dir), /architectures\[0\]: expected Sa2VAChatModel, .*got Sa2VAChatModelQwen/)
})

/** Typed arrays of an object, by their paths. */
function arraysIn(of: object, at = ''): Map<string, ArrayBufferView> {
  const own = Object.entries(of).flatMap(([name, value]): [string, ArrayBufferView][] => {
    if (ArrayBuffer.isView(value)) return [[`${at}${name}`, value]]
    return typeof value === 'object' && value ? [...arraysIn(value, `${at}${name}.`)] : []
  })
  return new Map(own)
}

for (const set of ['sa2va-tiny', 'sa2va-qwen2_5_vl-tiny', 'sa2va-qwen3vl-tiny', 'qwen2_5_vl-tiny', 'qwen3_vl-tiny'])
  test(`a picture for a bfloat16 model has the bits of its rounded numbers, and gives the same features: ${set}`, async () => {
    const family = openFamily(join(golden, set), { device: 'cpu', dtype: 'bfloat16' })
    const image = sceneExample(makeScene(3, 1, { size: 90 })).image
    const { module, settings } = family.preparation!() as { module: string; settings: object }
    const { prepare } = (await import(module)) as Record<'prepare', (image: object, settings: object) => object>
    const [own, wide] = [prepare(image, settings), prepare(image, { ...settings, type: 'float32' })] as never[]
    const [halves, floats] = [arraysIn(own!), arraysIn(wide!)]
    const rounded = [...floats].filter(([, array]) => array instanceof Float32Array)
    assert.ok(rounded.length > 0)
    for (const [path, array] of rounded) {
      const bits = Uint16Array.from(array as Float32Array, (v) => new Uint32Array(Float32Array.of(bfloat16(v)).buffer)[0]! >>> 16) // biome-ignore format: one line
      assert.deepEqual(halves.get(path), bits, path)
    }
    assert.deepEqual(arraysIn(family.prepare(image)), halves)
    const featuresOf = (input: never) =>
      tidyNoGrad(() =>
        Object.entries(family.tensorsOf(family.encode([input])[0]!)).map(([name, t]) => [name, t.numbers()]),
      )
    assert.deepEqual(featuresOf(own!), featuresOf(wide!))
    for (const t of family.module.parameters().values()) t.dispose()
  })
