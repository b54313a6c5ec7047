// The commands on Sa2VA around Qwen2.5-VL and Qwen3-VL: the miniatures of the golden sets.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { hostOf, toyRun } from '../../tests/support/runs.ts'
import { openWeights, readAll } from '../checkpoint/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { decodeImage } from '../image/index.ts'
import { maskFromPng } from '../mask/index.ts'
import { inspectFolder, openFamily, openSa2VAQwen } from '../models/index.ts'
import { doctor, loadTrained, sft, train } from '../run/index.ts'
import { captionWork } from './caption.ts'
import { exportWork } from './export.ts'
import { segmentWork } from './segment.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')
const port: EnginePort = {
  send() {},
  ask: () => Promise.reject(new Error('unused')),
  onControl() {},
  breathe: () => Promise.resolve(),
}

function scratch(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'qwen-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

for (const [name, set, layers] of [
  ['Qwen2.5-VL', 'sa2va-qwen2_5_vl-tiny', 3],
  ['Qwen3-VL', 'sa2va-qwen3vl-tiny', 4],
] as const) {
  const model = join(golden, set)
  const base = { model, image: join(model, 'image.png'), device: 'cpu', maxNewTokens: 4, dtype: 'float32' as const }
  const mask = join(model, 'mask.png')
  const small = { dataPath: 'scenes:8', batchSize: 1, maxSteps: 1, rl: { numGenerations: 2, maxCompletionLength: 6 } }

  test(`${name}: inspect names the parts, counts every tensor and the layers of the adapters`, () => {
    const { groups, lora, architecture } = inspectFolder(model, 4)
    assert.match(architecture.vision!, new RegExp(`^${name}`))
    const counted = groups.reduce((n, g) => n + g.tensors, 0)
    assert.equal(counted, openWeights(model).names.length)
    assert.ok(!groups.some((g) => g.name === 'other'))
    assert.equal(lora.layers, 7 * layers)
  })

  test(`${name}: caption describes an outlined region, and one whose cells are copied`, async () => {
    const drawn = await captionWork({ ...base, mask }, port)
    const copied = await captionWork({ ...base, mask, region: 'cells' }, port)
    assert.deepEqual([drawn.tokens, copied.tokens], [4, 4])
  })

  test(`${name}: segment draws the mask of the golden set for the golden answer`, async (t) => {
    const { question } = JSON.parse(readFileSync(join(model, 'golden.json'), 'utf8'))
    const out = join(scratch(t), 'mask.png')
    const answer = 'Sure, it is [SEG].'
    await segmentWork({ ...base, phrase: '', question, out, answer }, port)
    const got = await maskFromPng(readFileSync(out))
    const stored = readAll(join(model, 'golden.safetensors')).get('seg.final_mask')!.data
    const area = got.counts.reduce((n, run, i) => n + (i % 2 === 1 ? run : 0), 0)
    assert.equal(
      area,
      stored.reduce((n, v) => n + v, 0),
    )
    const picture = await decodeImage(readFileSync(base.image))
    assert.deepEqual([got.width, got.height], [picture.width, picture.height])
  })

  test(`${name}: the doctor finds nothing wrong`, async (t) => {
    const findings = await doctor(toyRun(model, scratch(t), small), hostOf())
    assert.deepEqual(
      findings.filter((f) => f.pass === false),
      [],
    )
  })

  test(`${name}: one step trains, its checkpoint goes onto the model again, and the export keeps names, dtypes and files`, async (t) => {
    const dir = scratch(t)
    const run = join(dir, 'run')
    await train(toyRun(model, run, { ...small, maxTiles: 1 }), hostOf())
    const file = join(run, 'checkpoint_step_1', 'adapter_model.safetensors')
    const stored = openWeights(file)
    const first = 'base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight'
    assert.ok(stored.has(first), stored.names[0])
    assert.equal(stored.names.length, 2 * 7 * layers)
    const { target_modules } = JSON.parse(readFileSync(join(run, 'checkpoint_step_1', 'adapter_config.json'), 'utf8'))
    const isTarget = (path: string) => target_modules.some((m: string) => path === m || path.endsWith(`.${m}`))
    // PEFT would adapt whatever the list selects in the whole Qwen-VL: its vision tower has layers of the same names
    const layersOf = openWeights(model).names.filter((n) => n.startsWith('model.model.') && n.endsWith('.weight'))
    const targets = layersOf.map((n) => n.slice('model.'.length, -'.weight'.length)).filter(isTarget)
    assert.equal(targets.length, 7 * layers)
    assert.ok(targets.every((path) => path.startsWith('model.language_model.layers.')))
    const family = openFamily(model, { dtype: 'float32' })
    loadTrained(family, run)
    const weights = family.module.parameters()
    const bytes = readAll(file).get(first)!.data
    const values = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength))
    assert.deepEqual(weights.get('model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight')!.numbers(), [
      ...values,
    ])
    for (const w of weights.values()) w.dispose()
    const out = join(dir, 'model')
    await exportWork({ model, out, checkpoint: run }, port)
    const [before, after] = [openWeights(model), openWeights(out)]
    assert.deepEqual([...after.names].sort(), [...before.names].sort())
    for (const tensor of before.names) assert.equal(after.entry(tensor).dtype, before.entry(tensor).dtype)
    assert.deepEqual(readdirSync(out).sort(), readdirSync(model).sort())
    const trained = 'model.model.language_model.layers.0.self_attn.q_proj.weight'
    assert.notDeepEqual(after.read(trained), before.read(trained))
    const frozen = 'model.model.visual.patch_embed.proj.weight'
    assert.deepEqual(after.read(frozen), before.read(frozen))
    const again = openSa2VAQwen(out, { dtype: 'float32' })
    for (const w of again.model.parameters().values()) w.dispose()
  })

  test(`${name}: supervised steps with copied cells teach the region tokens`, async (t) => {
    const config = toyRun(model, scratch(t), { ...small, region: 'cells', maxSteps: 2, batchSize: 2, maxTiles: 1 })
    const { step } = await sft(config, { everything: false, maskWeight: 1, exportTo: null }, hostOf())
    assert.equal(step, 2)
  })
}

test('a region drawn on the picture is refused for Sa2VA on InternVL, which has tokens for regions', async () => {
  const model = join(golden, 'sa2va-tiny')
  const options = {
    model,
    image: join(model, 'image.png'),
    mask: join(model, 'mask.png'),
    device: 'cpu',
    maxNewTokens: 2,
  }
  await assert.rejects(captionWork({ ...options, region: 'overlay' }, port), /region: expected cells/)
})
