// What is Qwen3-VL's own: its folder, its head, its prompts, and features that go to the first layers of the language model.
import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { openWeights, readTensors, tensorSource, toFileName, writeSafetensors } from '../../checkpoint/index.ts'
import type { JsonObject } from '../../core/index.ts'
import { decodeImage } from '../../image/index.ts'
import { generate, teacherForce } from '../../llm/index.ts'
import { addLora, tensorAt } from '../../nn/index.ts'
import { memory, noGrad, type Tensor, tidy } from '../../tensor/index.ts'
import { openFamily } from '../open.ts'
import { parseQwenVLConfig, type QwenVLConfig } from './config.ts'
import type { QwenVLFamily } from './family.ts'
import { generations } from './generations.ts'
import { openQwenVL, questionPrompt } from './load.ts'
import { lookTogether, type QwenPrompt } from './model.ts'
import { smartResize } from './processor.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden/qwen3_vl-tiny')
const raw = JSON.parse(readFileSync(join(golden, 'config.json'), 'utf8'))
const picture = await decodeImage(readFileSync(join(golden, 'image.png')))

const open = (dir = golden) => openFamily(dir, { dtype: 'float32' }) as QwenVLFamily

function dispose(family: QwenVLFamily): void {
  for (const t of family.module.parameters().values()) t.dispose()
}

/** A copy of the golden folder with other settings and tensors. */
function copy(
  t: TestContext,
  change: { config?: JsonObject; files?: Record<string, string>; head?: (e: Tensor) => Tensor },
) {
  const dir = mkdtempSync(join(tmpdir(), 'qwen3-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  for (const file of ['tokenizer.json', 'tokenizer_config.json', 'preprocessor_config.json', 'model.safetensors'])
    cpSync(join(golden, file), join(dir, file))
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...raw, ...change.config }))
  for (const [name, text] of Object.entries(change.files ?? {})) writeFileSync(join(dir, name), text)
  if (!change.head) return dir
  tidy(() => {
    const all = readTensors(openWeights(golden))
    all.set('lm_head.weight', change.head!(all.get('model.language_model.embed_tokens.weight')!))
    const entries = Array.from(all, ([name, tensor]) => tensorSource(name, tensor))
    writeSafetensors(join(dir, 'model.safetensors'), entries)
  })
  return dir
}

const untied = { tie_word_embeddings: false, text_config: { ...raw.text_config, tie_word_embeddings: undefined } }

test('a head is its own, the embedding, or refused if versions of transformers would disagree', (t) => {
  const twice = (embedding: Tensor) => embedding.mul(2)
  const own = open(copy(t, { config: untied, head: twice }))
  assert.ok(own.model.lm_head)
  dispose(own)
  for (const config of [{ ...untied, tie_word_embeddings: true }, { tie_word_embeddings: false }]) {
    const tied = open(copy(t, { config, head: (embedding) => embedding.clone() }))
    assert.equal(tied.model.lm_head, undefined)
    dispose(tied)
    assert.throws(
      () => open(copy(t, { config, head: twice })),
      /lm_head\.weight: expected none, .*differs from the emb/,
    )
  }
  assert.throws(() => open(copy(t, { config: untied })), /tie_word_embeddings: expected true without lm_head\.weight/)
})

test('config.json is refused where it fits no release', () => {
  const bad = (part: 'text_config' | 'vision_config', change: object, reason: RegExp) =>
    assert.throws(() => parseQwenVLConfig({ ...raw, [part]: { ...raw[part], ...change } }), reason)
  bad('text_config', { num_key_value_heads: undefined }, /text_config\.num_key_value_heads: expected a number/)
  bad('text_config', { rope_theta: undefined }, /text_config\.rope_theta: expected a number/)
  bad('vision_config', { rope_parameters: { rope_type: 'axial', rope_theta: 100 } }, /rope_parameters: .*10000/)
  bad('vision_config', { deepstack_visual_indexes: [0, 1, 2, 3, 4] }, /at most one for each of 4 decoder layers, got 5/)
  bad('vision_config', { deepstack_visual_indexes: [7] }, /a list of layers below 5/)
  assert.throws(() => parseQwenVLConfig({ ...raw, text_config: undefined }), /text_config: expected an object/)
  const { vision } = parseQwenVLConfig({
    ...raw,
    vision_config: { ...raw.vision_config, deepstack_visual_indexes: [] },
  })
  assert.deepEqual(vision.deepstack_visual_indexes, [])
})

test('config.json as transformers 5 writes it gives the same model', () => {
  const path = join(golden, 'config.transformers-5.json')
  const [{ raw: _, ...own }, { raw: __, ...newer }] = [raw, JSON.parse(readFileSync(path, 'utf8'))].map((text) =>
    parseQwenVLConfig(text),
  ) as [QwenVLConfig, QwenVLConfig]
  assert.deepEqual(newer, own)
})

test('sides of pictures are those the reference processor gives at the released limits', () => {
  const { smart_resize_cases } = JSON.parse(readFileSync(join(golden, 'golden.json'), 'utf8'))
  assert.equal(smart_resize_cases.length, 15)
  for (const { height, width, resized_hw } of smart_resize_cases)
    assert.deepEqual(smartResize(height, width, generations.qwen3_vl.processor), resized_hw)
})

test('the processor is that of preprocessor_config.json, of processor_config.json, or the released one', (t) => {
  const sides = (dir: string) => {
    const family = open(dir)
    const { rows, columns } = family.prepare(picture)
    dispose(family)
    return [rows, columns]
  }
  assert.deepEqual(sides(golden), [10, 12])
  const dir = copy(t, {})
  const own = JSON.parse(readFileSync(join(dir, 'preprocessor_config.json'), 'utf8'))
  rmSync(join(dir, 'preprocessor_config.json'))
  assert.deepEqual(sides(dir), [14, 20]) // no file: at least 65536 pixels
  writeFileSync(join(dir, 'processor_config.json'), JSON.stringify({ image_processor: own }))
  assert.deepEqual(sides(dir), [10, 12])
  writeFileSync(join(dir, 'processor_config.json'), JSON.stringify({ image_processor: { ...own, patch_size: 14 } }))
  assert.throws(() => open(dir), /patch_size: expected 16 as in vision_config, got 14/)
})

test('a prompt has no system turn unless the template has one; Thinking editions are refused', (t) => {
  const begins = (dir: string) => {
    const loaded = openQwenVL(dir, { dtype: 'float32' })
    const ids = questionPrompt(loaded, 'Where?', []).ids
    for (const tensor of loaded.model.parameters().values()) tensor.dispose()
    return loaded.tokenizer.decode(ids).split('\n')[0]
  }
  assert.equal(begins(golden), '<|im_start|>user')
  const jinja = (text: string) => copy(t, { files: { 'chat_template.jinja': text } })
  assert.equal(begins(jinja("{{ 'You are a helpful assistant.' }}")), '<|im_start|>system')
  const thinking = jinja("{{- '<|im_start|>assistant\\n<think>\\n' }}")
  assert.throws(() => open(thinking), /chat_template\.jinja: chat_template: .*Thinking editions are not supported/)
})

test('answers never contain vision tokens or rows of the padded vocabulary', () => {
  const family = open()
  const { tokenizer, imageIds } = family
  const vision = ['image_pad', 'vision_start', 'vision_end', 'vision_pad', 'video_pad']
  const padded = Array.from({ length: 10 }, (_, i) => 486 + i)
  assert.deepEqual(imageIds, [...vision.map((name) => tokenizer.requireId(`<|${name}|>`)), ...padded])
  assert.equal(family.coords, 'thousand')
  dispose(family)
})

test('features are stored with what goes to the first layers, and images together are images alone', () => {
  const family = open()
  tidy(() => {
    const input = family.prepare(picture)
    const [features] = family.encode([input])
    const stored = family.tensorsOf(features!)
    assert.deepEqual(Object.keys(stored), ['tokens', 'deepstack0', 'deepstack1', 'deepstack2'])
    const again = family.featuresOf(stored, picture)
    const logps = (images: QwenPrompt['images']) =>
      teacherForce(family.model, { ...family.ask(features!, 'Where?'), images }, [Int32Array.of(1, 2, 3)])
        .logProbs()
        .logps.numbers()
    assert.deepEqual(logps([again]), logps([features!]))
    const { rows } = noGrad(() => family.encodeTogether([input, input]))
    assert.deepEqual(logps([rows[1]!]), logps([features!]))
    const small = family.prepare({ width: 64, height: 96, data: picture.data.slice(0, 64 * 96 * 3) })
    const [, second] = noGrad(() => lookTogether(family.model.visual, [small, input], family.model.placement))
    for (const [name, one] of Object.entries(family.tensorsOf({ ...features!, ...second! })))
      assert.ok(one.sub(stored[name]!).abs().max().item() < 2e-5, name)
    const blind = { ...features!, deepstack: features!.deepstack.map((one) => one.mul(0)) }
    assert.notDeepEqual(logps([blind]), logps([features!]))
  })
  dispose(family)
})

test('prompts with and without an image answer together as they do alone, and leave no tensor', () => {
  const family = open()
  const { model, tokenizer } = family
  const answers = () =>
    noGrad(() =>
      tidy(() => {
        const [features] = family.encode([family.prepare(picture)])
        const prompts = [family.ask(features!, 'Find the red circle.'), { ids: Int32Array.of(9, 8, 7), images: [] }]
        const ask = (some: QwenPrompt[]) => generate(model, tokenizer, some, { maxNewTokens: 6, stopStrings: [] })
        return [ask(prompts), prompts.flatMap((one) => ask([one]))].map((rows) => rows.map((row) => [...row.ids]))
      }),
    )
  const [together, alone] = answers()
  assert.deepEqual(together, alone)
  const before = memory().tensors
  answers()
  assert.equal(memory().tensors, before)
  dispose(family)
})

test('adapters have the names that PEFT writes, and a merged export has the released names', (t) => {
  const family = open()
  addLora(family.adapter.on, family.adapter.targets, { rank: 2, alpha: 4, seed: 1 })
  const slots = family.module.slots().filter((slot) => slot.name.includes('.lora_'))
  assert.equal(slots.length, 2 * 4 * 4)
  assert.equal(
    toFileName(slots[0]!.name, family.adapter.names),
    'base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight',
  )
  noGrad(() => tidy(() => tensorAt(slots[1]!).fill_(0.01)))
  const out = mkdtempSync(join(tmpdir(), 'qwen3-'))
  t.after(() => rmSync(out, { recursive: true, force: true }))
  family.export(join(out, 'merged'))
  dispose(family)
  tidy(() => {
    const [before, after] = [golden, join(out, 'merged')].map((dir) => readTensors(openWeights(dir))) as [
      Map<string, Tensor>,
      Map<string, Tensor>,
    ]
    const changed = [...before.keys()].filter((name) => !after.get(name)!.equal(before.get(name)!))
    assert.deepEqual(changed, ['model.language_model.layers.0.self_attn.q_proj.weight'])
  })
})
