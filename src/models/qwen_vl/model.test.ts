// Values of the reference code on a miniature whose weights and images are formulas: nothing is read from a file.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { roundingBound } from '../../../tests/support/rounding.ts'
import { fillAdapters } from '../../../tests/support/sa2va.ts'
import { openWeights, readTensors, renamed, tensorSource, writeSafetensors } from '../../checkpoint/index.ts'
import type { RgbImage } from '../../image/index.ts'
import { generate, loraTargets, TrainingLayers, teacherForce } from '../../llm/index.ts'
import { addLora, replaceTensor, tensorAt } from '../../nn/index.ts'
import { memory, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { loadTokenizer } from '../../text/index.ts'
import { parseQwenVLConfig } from './config.ts'
import { isAdaptedPath } from './family.ts'
import { openQwenVL, questionPrompt, releasedName } from './load.ts'
import { gridPositions, lookTogether, type QwenPrompt, QwenVL } from './model.ts'
import { patchImage, readProcessorConfig, smartResize } from './processor.ts'
import { windowOrder } from './vision-2_5.ts'

const golden = fileURLToPath(new URL('../../../tests/fixtures/golden/qwen2_5_vl-tiny', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-qwen-'))
after(() => rmSync(folder, { recursive: true, force: true }))

const raw = {
  model_type: 'qwen2_5_vl',
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 128,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  rope_scaling: { type: 'mrope', mrope_section: [2, 3, 3] },
  tie_word_embeddings: false,
  max_position_embeddings: 512,
  vision_start_token_id: 120,
  vision_end_token_id: 121,
  image_token_id: 122,
  vision_config: {
    depth: 4,
    hidden_size: 32,
    num_heads: 2,
    intermediate_size: 48,
    in_chans: 3,
    window_size: 56,
    fullatt_block_indexes: [1, 3],
    out_hidden_size: 64,
  },
}

/** A number from -0.5 to 0.5 for element i of the k-th tensor. */
function formula(k: number, i: number): number {
  let x = (Math.imul(i, 2654435761) + Math.imul(k + 1, 40503) + 12345) >>> 0
  x = Math.imul(x ^ (x >>> 16), 2246822519)
  x = Math.imul(x ^ (x >>> 13), 3266489917)
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32 - 0.5
}

function weightValue(name: string, v: number): number {
  if (/norm|ln_q/.test(name)) return 1 + 0.2 * v
  if (name.endsWith('.bias') || name.includes('patch_embed')) return 0.1 * v
  return 0.5 * v
}

function formulaModel(): QwenVL {
  const model = new QwenVL(parseQwenVLConfig(raw))
  const slots = [...model.slots()].sort((a, b) => (a.name < b.name ? -1 : 1))
  assert.equal(slots.length, 81)
  slots.forEach((slot, k) => {
    const { shape, numel } = tensorAt(slot)
    const data = Float32Array.from({ length: numel }, (_, i) => weightValue(slot.name, formula(k, i)))
    replaceTensor(slot, tensor(data, shape))
  })
  return model
}

function formulaImage(height: number, width: number): RgbImage {
  const data = new Uint8Array(height * width * 3)
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      for (let c = 0; c < 3; c++) data[(y * width + x) * 3 + c] = (7 * y + 13 * x + 29 * c + ((x * y) % 11)) % 256
  return { width, height, data }
}

const model = formulaModel()
const [imageA, imageB] = [patchImage(formulaImage(84, 140)), patchImage(formulaImage(112, 112))]
after(() => {
  for (const t of model.parameters().values()) t.dispose()
})

// expected values have six decimals; a pixel is scaled, shifted and divided
const pixels = 5e-7 + roundingBound(3, 2)

function close(got: ArrayLike<number>, want: readonly number[], limit: number, what: string): void {
  want.forEach((v, i) => {
    assert.ok(Math.abs(got[i]! - v) <= limit, `${what} ${i}: ${got[i]} against ${v}`)
  })
}

const first = (t: Tensor, row: number, n: number) => t.select(0, row).numbers().slice(0, n)

test('sizes are rounded to 28 pixels, halves to even, and clamped between the limits', () => {
  const released = { ...readProcessorConfig(folder), maxPixels: 12845056 }
  const cases: [number, number, number, number][] = [
    [480, 640, 476, 644],
    [840, 840, 840, 840],
    [1080, 1920, 1092, 1932],
    [426, 640, 420, 644],
    [42, 42, 56, 56],
    [70, 70, 56, 56],
    [98, 126, 112, 112],
    [28, 56, 56, 84],
    [30, 30, 56, 56],
    [14, 1000, 28, 476],
    [6000, 4000, 4368, 2912],
  ]
  for (const [H, W, h, w] of cases) assert.deepEqual(smartResize(H, W, released), [h, w], `${H}x${W}`)
  assert.deepEqual(smartResize(1080, 1920), [728, 1316])
  assert.deepEqual(smartResize(6000, 4000), [1204, 812])
  assert.throws(() => smartResize(10, 2001), /aspect: expected at most 200 to 1, got 10x2001/)
})

test('patches are four by four, channel before frame', () => {
  assert.deepEqual([imageA.rows, imageA.columns, imageA.pixels.length], [6, 10, 60 * 1176])
  const at = (row: number, column: number) => imageA.pixels.subarray(row * 1176 + column, row * 1176 + column + 6)
  close(at(0, 0), [-1.792263, -1.602483, -1.412703, -1.222924, -1.033144, -0.843365], pixels, 'row 0')
  assert.deepEqual(at(0, 196), at(0, 0))
  close(at(0, 392), [-1.316872, -1.121771, -0.92667, -0.731569, -0.536468, -0.341367], pixels, 'green')
  close(at(1, 0), [0.864651, 1.054431, 1.24421, 1.43399, 1.623769, 1.813549], pixels, 'row 1')
  close(at(37, 0), [-1.062341, -0.945554, -0.668184, -0.551396, -0.274026, -0.157239], pixels, 'row 37')
  assert.ok(Math.abs(Array.from(imageA.pixels).reduce((a, b) => a + b, 0) - 13139.96094) < 1e-2)
})

test('units are put into windows; those at the edges are smaller', () => {
  const { vision } = parseQwenVLConfig(raw)
  const a = windowOrder(imageA, vision)
  assert.deepEqual(a.order, [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14])
  assert.deepEqual(a.lengths, [4, 4, 2, 2, 2, 1])
  const b = windowOrder(imageB, vision)
  assert.deepEqual(b.order, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15])
  assert.deepEqual(b.lengths, [4, 4, 4, 4])
})

test("the vision tower gives the reference's tokens", () => {
  tidy(() => {
    const a = model.encode(imageA).tokens
    assert.deepEqual(a.shape, [15, 64])
    close(first(a, 0, 5), [-1.878082, 1.643084, 1.726467, 0.831518, -1.985959], 2e-5, 'A 0')
    close(first(a, 7, 5), [-1.100583, -1.121118, 4.151422, -1.848398, -0.136675], 2e-5, 'A 7')
    close(first(a, 14, 5), [1.157956, -3.784811, -0.246116, -1.119275, -0.900135], 2e-5, 'A 14')
    close([a.abs().mean().item()], [1.489679], 1e-5, 'A mean')
    const b = model.encode(imageB).tokens
    close(first(b, 0, 5), [-1.890894, 1.737051, 1.800431, 0.979013, -2.10914], 2e-5, 'B 0')
    close(first(b, 7, 5), [-0.527611, 1.261732, 2.909041, 2.954159, -1.433791], 2e-5, 'B 7')
    close(first(b, 15, 5), [-1.227829, -1.446903, 3.808921, 1.439105, -0.746787], 2e-5, 'B 15')
  })
})

test('images of different sizes in one pass give the tokens of each alone', () => {
  tidy(() => {
    const images = [imageA, imageB, imageA]
    const together = noGrad(() => lookTogether(model.visual, images, model.placement))
    for (const [i, { tokens }] of together.entries()) {
      const alone = model.encode(images[i]!).tokens
      assert.deepEqual(tokens.shape, alone.shape)
      assert.ok(tokens.sub(alone).abs().max().item() < 2e-5, `image ${i}`)
    }
    assert.ok(together[1]!.tokens.narrow(0, 0, 15).sub(together[0]!.tokens).abs().max().item() > 0.1)
  })
})

const pads = (n: number) => Array.from({ length: n }, () => 122)
const idsA = Int32Array.from([1, 2, 3, 120, ...pads(15), 121, 10, 11, 12])

test('an image is at one time and counts rows and columns; the text continues after the largest', () => {
  const { axes, next } = gridPositions(idsA, [imageA], 122, 2)
  const rows = (of: (i: number) => number) => Array.from({ length: 15 }, (_, i) => 4 + of(i))
  assert.deepEqual([...axes[0]!], [0, 1, 2, 3, ...rows(() => 0), 9, 10, 11, 12])
  assert.deepEqual([...axes[1]!], [0, 1, 2, 3, ...rows((i) => Math.floor(i / 5)), 9, 10, 11, 12])
  assert.deepEqual([...axes[2]!], [0, 1, 2, 3, ...rows((i) => i % 5), 9, 10, 11, 12])
  assert.equal(next - idsA.length, -10)
  assert.throws(() => gridPositions(idsA, [], 122, 2), /images: expected one for each run/)
})

const promptA = (): QwenPrompt => ({ ids: idsA, images: [model.encode(imageA)] })

test("scores of a prompt, log-probs of its tokens and the greedy answer are the reference's", () => {
  const tokenizer = loadTokenizer(golden)
  noGrad(() =>
    tidy(() => {
      const prompt = promptA()
      const pass = teacherForce(model, prompt, [Int32Array.of(0)])
      const logits = model.decoder.logits(pass.hidden)
      close(first(logits, 0, 5), [0.971212, 1.510324, -2.041488, 0.062665, 0.399825], 2e-5, 'row 0')
      close(first(logits, 4, 5), [0.24502, -0.111385, -1.874587, -1.319472, -0.565709], 2e-5, 'row 4')
      const last = [0.88879, -1.259108, -1.016297, -0.575069, -0.17042, -0.357396, 0.425708, 1.984325]
      close(first(logits, 22, 8), last, 2e-5, 'last row')
      const logp = logits.logSoftmax(-1)
      const scores = Array.from(idsA.subarray(1), (id, i) => logp.select(0, i).select(0, id).item())
      close(scores.slice(18), [-6.258561, -2.389279, -5.322308, -6.778505], 2e-5, 'log-probs')
      close([scores.reduce((a, b) => a + b, 0)], [-132.382324], 5e-4, 'sum')
      const [row] = generate(model, tokenizer, [prompt], { maxNewTokens: 6, stopStrings: [] })
      assert.deepEqual([...row!.ids], [32, 14, 121, 60, 48, 7])
      const again = teacherForce(model, prompt, [Int32Array.from([...row!.ids, 0])])
      const after6 = model.decoder.logits(again.hidden.narrow(0, idsA.length + 5, 1))
      close(first(after6, 0, 5), [1.023762, -0.147483, -0.790319, -0.042487, 0.870398], 2e-5, 'after six tokens')
    }),
  )
})

test('prompts of different length and image answer together as they do alone, and packed completions score as alone', () => {
  const tokenizer = loadTokenizer(golden)
  noGrad(() =>
    tidy(() => {
      const b: QwenPrompt = { ids: Int32Array.from([5, 120, ...pads(16), 121, 7]), images: [model.encode(imageB)] }
      const none: QwenPrompt = { ids: Int32Array.from([9, 8, 7]), images: [] }
      const prompts = [promptA(), b, none]
      const options = { maxNewTokens: 8, stopStrings: [] }
      const together = generate(model, tokenizer, prompts, options)
      prompts.forEach((prompt, i) => {
        const [alone] = generate(model, tokenizer, [prompt], options)
        assert.deepEqual(together[i]!.ids, alone!.ids)
        close(together[i]!.logps, [...alone!.logps], 1e-4, `row ${i}`)
        const { ids } = alone!
        const two = teacherForce(model, prompt, [Int32Array.from([1, 2, 3]), ids])
          .logProbs()
          .logps.select(0, 1)
        close(two.numbers(), [...alone!.logps], 1e-4, `packed ${i}`)
      })
    }),
  )
})

test('the hand-written layers score a prompt with an image, adapters on q, k, v, o, as op by op', () => {
  const loaded = openQwenVL(golden)
  addLora(loaded.model, isAdaptedPath, { rank: 8, alpha: 16, dropout: 0, seed: 1 })
  fillAdapters(loaded.model, 10)
  noGrad(() =>
    tidy(() => {
      const features = loaded.model.encode(patchImage(formulaImage(84, 140), loaded.processor))
      const prompt = questionPrompt(loaded, 'Where?', [features])
      const answers = [Int32Array.from([1, 2, 3]), Int32Array.from([9, 8])]
      const logps = (packed: boolean) =>
        teacherForce(loaded.model, prompt, answers, { packed }).logProbs().logps.numbers()
      close(logps(true), logps(false), 1e-5, 'log-probs')
      assert.ok(TrainingLayers.of(loaded.model.decoder, true))
    }),
  )
  TrainingLayers.release(loaded.model.decoder)
  for (const t of loaded.model.parameters().values()) t.dispose()
})

test('names of newer files and of wrappers load the same weights; a name twice is refused', () => {
  const plain = readTensors(openWeights(join(golden, 'model.safetensors')))
  const newer = (name: string) =>
    name.replace(/^visual\./, 'model.visual.').replace(/^model\.(?!visual)/, 'model.language_model.')
  for (const rename of [newer, (name: string) => `model.${newer(name)}`]) {
    const dir = mkdtempSync(join(folder, 'named-'))
    for (const [name] of plain) assert.equal(releasedName(rename(name)), name)
    writeSafetensors(
      join(dir, 'model.safetensors'),
      Array.from(plain, ([name, t]) => tensorSource(rename(name), t)),
    )
    const seen = readTensors(renamed(openWeights(dir), releasedName))
    for (const [name, t] of plain) assert.deepEqual(seen.get(name)!.array(), t.array(), name)
    for (const t of seen.values()) t.dispose()
  }
  assert.throws(() => renamed(openWeights(golden), () => 'one'), /one: expected one tensor/)
  for (const t of plain.values()) t.dispose()
})

test('a question becomes a prompt whose image tokens are counted, and adapters stay out of the tower', () => {
  const loaded = openQwenVL(golden)
  tidy(() => {
    const features = loaded.model.encode(patchImage(formulaImage(84, 140), loaded.processor))
    const prompt = questionPrompt(loaded, 'Where?', [features])
    assert.equal(prompt.ids.filter((id) => id === loaded.cfg.image_token_id).length, 15)
    assert.throws(() => questionPrompt(loaded, '<|image_pad|>', [features]), /expected 15 tokens <\|image_pad\|>/)
    const more = { ids: Int32Array.from([...prompt.ids, loaded.cfg.image_token_id]), images: prompt.images }
    assert.throws(() => loaded.model.promptEmbeddings(more), /image tokens: expected 15, got 16/)
  })
  addLora(loaded.model, loraTargets('Qwen2ForCausalLM'), { rank: 2, alpha: 4, dropout: 0, seed: 1 })
  const adapted = loaded.model.names().filter((name) => name.includes('lora_'))
  assert.equal(adapted.length, 3 * 7 * 2)
  assert.ok(adapted.every((name) => name.startsWith('model.layers.')))
  for (const t of loaded.model.parameters().values()) t.dispose()
})

test('a folder that is not a Qwen-VL, or misses what it needs, is refused by field', () => {
  const bad = (change: object, reason: RegExp) => {
    assert.throws(() => parseQwenVLConfig({ ...raw, ...change }), reason)
  }
  bad({ model_type: 'qwen2_vl' }, /model_type: expected qwen2_5_vl or qwen3_vl, got qwen2_vl/)
  bad({ rope_scaling: null }, /mrope_section: expected three numbers whose sum is half the head, 8, got nothing/)
  bad({ rope_scaling: { type: 'mrope', mrope_section: [2, 2, 2] } }, /mrope_section: .*got \[2,2,2\]/)
  bad({ rope_scaling: { type: 'mrope', mrope_section: 'NaN' } }, /mrope_section: .*got "NaN"/)
  bad({ rope_parameters: { mrope_section: 'NaN' } }, /rope_parameters.mrope_section: .*got "NaN"/)
  bad({ hidden_size: undefined }, /hidden_size: expected a whole number from 1, got nothing/)
  bad({ vision_config: { ...raw.vision_config, out_hidden_size: 32 } }, /out_hidden_size: expected the hidden size 64/)
  bad(
    { vision_config: { ...raw.vision_config, depth: 'deep' } },
    /vision_config.depth: expected a whole number, got deep/,
  )
  bad({ image_token_id: undefined }, /image_token_id: expected a whole number, got nothing/)
  const { hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, vocab_size, ...rest } = raw
  const text_config = { hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, vocab_size }
  assert.equal(parseQwenVLConfig({ ...rest, text_config }).llm.hidden_size, 64)
  const dir = mkdtempSync(join(folder, 'pixels-'))
  writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify({ min_pixels: 784, max_pixels: 7840 }))
  assert.deepEqual(smartResize(280, 280, readProcessorConfig(dir)), [84, 84])
  writeFileSync(join(dir, 'preprocessor_config.json'), '{')
  assert.throws(() => readProcessorConfig(dir), /preprocessor_config.json: expected a file of JSON/)
})

test('encoding and scoring leave no tensor behind', () => {
  const once = () =>
    noGrad(() =>
      tidy(() =>
        teacherForce(model, promptA(), [Int32Array.of(1, 2)])
          .logProbs()
          .logps.sum()
          .item(),
      ),
    )
  once()
  const before = memory().tensors
  once()
  assert.equal(memory().tensors, before)
})
