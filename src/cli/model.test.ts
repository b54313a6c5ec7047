import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { saveAdapter } from '../../tests/support/adapter.ts'
import { writeCheckpoint, writeSafetensors } from '../checkpoint/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { decodeImage, encodePng } from '../image/index.ts'
import { loraTargets } from '../llm/index.ts'
import { maskArea, maskFromPng } from '../mask/index.ts'
import { inspectFolder, openSa2VA } from '../models/index.ts'
import { addLora } from '../nn/index.ts'
import { tidy } from '../tensor/index.ts'
import { captionWork } from './caption.ts'
import { exportWork } from './export.ts'
import { segmentWork } from './segment.ts'

const model = join(import.meta.dirname, '../../tests/fixtures/golden/sa2va-tiny')
const base = { model, image: join(model, 'image.png'), device: 'cpu', maxNewTokens: 6 }
const port: EnginePort = {
  send() {},
  ask: () => Promise.reject(new Error('unused')),
  onControl() {},
  breathe: () => Promise.resolve(),
}

function scratch(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'model-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

test('caption answers with the golden tokens, and the length limit holds', async () => {
  const golden = JSON.parse(readFileSync(join(model, 'golden.json'), 'utf8'))
  const options = {
    ...base,
    mask: join(model, 'mask.png'),
    question: golden.cap_question,
    maxNewTokens: golden.max_new_tokens,
  }
  const result = await captionWork(options, port)
  assert.equal(result.text.trim(), golden.cap_text.trim())
  const short = await captionWork({ ...options, maxNewTokens: 3 }, port)
  assert.deepEqual([short.tokens, short.finished], [3, false])
})

test('caption refuses a mask of another size than the picture', async (t) => {
  const other = join(scratch(t), 'picture.png')
  writeFileSync(other, await encodePng({ width: 20, height: 10, data: new Uint8Array(600) }))
  await assert.rejects(captionWork({ ...base, image: other, mask: join(model, 'mask.png') }, port), /expected .*, got/)
  await assert.rejects(
    captionWork({ ...base, image: join(model, 'none.png'), mask: join(model, 'mask.png') }, port),
    /none\.png: expected a readable file/,
  )
})

test("segment writes a mask and an overlay of the picture's size for each [SEG] of the answer", async (t) => {
  const out = join(scratch(t), 'cup.png')
  const result = await segmentWork({ ...base, phrase: 'the red circle', out, answer: 'It is [SEG] and [SEG].' }, port)
  assert.deepEqual(
    result.masks.map((m) => basename(m.file)),
    ['cup.png', 'cup-2.png'],
  )
  const picture = await decodeImage(readFileSync(base.image))
  for (const { file, overlay, area } of result.masks) {
    const mask = await maskFromPng(readFileSync(file))
    assert.deepEqual([mask.width, mask.height, maskArea(mask)], [picture.width, picture.height, area])
    const tinted = await decodeImage(readFileSync(overlay))
    assert.deepEqual([tinted.width, tinted.height], [picture.width, picture.height])
  }
})

test('segment says so when the answer has no [SEG], and writes nothing', async (t) => {
  const out = join(scratch(t), 'cup.png')
  await assert.rejects(
    segmentWork({ ...base, phrase: 'a cup', out, answer: 'There is none.' }, port),
    /answer: expected a \[SEG\] in it, got There is none/,
  )
  assert.ok(!existsSync(out))
})

test('inspect counts every tensor of the folder by group from headers alone', async () => {
  const { groups, lora, files } = inspectFolder(model, 4)
  const total = groups.reduce((n, g) => n + g.tensors, 0)
  assert.equal(total, 346 + 70)
  const of = (name: string) => groups.find((g) => g.name === name)!
  assert.equal(of('mlp1').trainable, of('mlp1').elements)
  assert.equal(of('vision_model').trainable, 0)
  assert.equal(of('sam2 video (unused)').tensors, 70)
  assert.equal(
    groups.some((g) => g.name === 'other'),
    false,
  )
  // 3 layers: q 64, k 32, v 32, o 64 out of 64; gate and up 176 out of 64; down 64 out of 176
  assert.equal(lora.elements, 4 * 3 * (128 + 96 + 96 + 128 + 3 * 240))
  assert.equal(
    files.bytes,
    groups.reduce((n, g) => n + g.bytes, 0),
  )
})

test('export merges a checkpoint of a run: adapters, other trained weights, or their EMA copy', async (t) => {
  const loaded = openSa2VA(model)
  addLora(loaded.model.language_model, loraTargets('Qwen2ForCausalLM'), { rank: 2, alpha: 4, seed: 1 })
  const layer = loaded.model.parameters().get('language_model.model.layers.0.mlp.up_proj.lora_B.weight')!
  tidy(() => void layer.fill_(0.25) as never)
  const run = scratch(t)
  const adapter = join(scratch(t), 'adapter')
  saveAdapter(adapter, loaded.model, 'language_model.')
  const bias = 'mlp1.1.bias'
  const weights = (value: number) => (path: string) =>
    writeSafetensors(path, [
      { name: bias, dtype: 'F32', shape: [64], data: new Uint8Array(new Float32Array(64).fill(value).buffer) },
    ])
  writeCheckpoint(run, 3, {
    'adapter_model.safetensors': readFileSync(join(adapter, 'adapter_model.safetensors')),
    'adapter_config.json': readFileSync(join(adapter, 'adapter_config.json')),
    'trainables.safetensors': weights(1.5),
    'ema.safetensors': weights(2.5),
  })
  for (const p of loaded.model.parameters().values()) p.dispose()
  for (const [ema, value] of [
    [false, 1.5],
    [true, 2.5],
  ] as const) {
    const out = join(scratch(t), 'full')
    assert.deepEqual(await exportWork({ model, out, checkpoint: run, ema }, port), ['model.safetensors'])
    const [merged, plain] = [openSa2VA(out), openSa2VA(model)]
    const [a, b] = [merged.model.parameters(), plain.model.parameters()]
    assert.deepEqual(a.get(bias)!.numbers(), new Array(64).fill(value))
    const up = 'language_model.model.layers.0.mlp.up_proj.weight'
    assert.notDeepEqual(a.get(up)!.numbers(), b.get(up)!.numbers())
    const down = 'language_model.model.layers.0.mlp.down_proj.weight'
    assert.deepEqual(a.get(down)!.numbers(), b.get(down)!.numbers())
    for (const p of [...a.values(), ...b.values()]) p.dispose()
  }
  await assert.rejects(
    exportWork({ model, out: join(scratch(t), 'x'), checkpoint: scratch(t) }, port),
    /expected a checkpoint, a run folder or a PEFT adapter/,
  )
})
