import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { box, encode, freeFeatures, picture, tinyConfig, tinyModel } from '../../../tests/support/sa2va.ts'
import { openWeights, readTensors } from '../../checkpoint/index.ts'
import { generate, teacherForce } from '../../llm/index.ts'
import { replaceTensor } from '../../nn/index.ts'
import { noGrad, type Tensor, tidy } from '../../tensor/index.ts'
import { compareTensor } from '../../verify/compare.ts'
import { prepareImage } from './inputs.ts'

const tiny = tinyModel()
const { model, prompter, cfg } = tiny
after(() => tiny.dispose())
const grid = prompter.grid

for (const version of ['v1', 'v2']) {
  test(`pixel shuffle ${version} orders cells as the released folding does, from the last or the layer before`, () => {
    const path = fileURLToPath(new URL('../../../tests/parity/vit-layer-norm.safetensors', import.meta.url))
    const want = readTensors(openWeights(path))
    const sizes = { hidden_size: 24, num_attention_heads: 3, intermediate_size: 32, image_size: 16, patch_size: 4 }
    const raw = tinyConfig({ ps_version: version, force_image_size: 16 }, {}, sizes)
    const own = tinyModel(raw)
    const before = tinyModel({ ...raw, select_layer: -2 })
    for (const each of [own, before])
      for (const slot of each.model.vision_model.slots()) replaceTensor(slot, want.get(slot.name)!.clone())
    noGrad(() =>
      tidy(() => {
        const pixels = want.get('in.pixels')!
        const row = compareTensor(version, own.model.visionFeatures(pixels), want.get(`out.shuffle.${version}`)!)
        assert.ok(row.pass, JSON.stringify(row))
        const got = before.model.visionFeatures(pixels).numbers()
        folded(want.get('out.before')!, version).forEach((v, i) => {
          assert.ok(Math.abs(v - got[i]!) < 1e-5, `element ${i}: ${got[i]} against ${v}`)
        })
      }),
    )
    for (const t of want.values()) t.dispose()
    own.dispose()
    before.dispose()
  })
}

/** Stored state of the layer before, folded cell by cell in plain loops. */
function folded(state: Tensor, version: string): number[] {
  const [T, N, h] = state.shape as [number, number, number]
  const side = Math.sqrt(N - 1)
  const values = state.numbers()
  const out: number[] = []
  for (let t = 0; t < T; t++)
    for (let p = 0; p < side / 2; p++)
      for (let q = 0; q < side / 2; q++)
        for (let a = 0; a < 2; a++)
          for (let b = 0; b < 2; b++) {
            const [row, column] = version === 'v2' ? [2 * p + a, 2 * q + b] : [2 * q + a, 2 * p + b]
            const start = (t * N + 1 + row * side + column) * h
            out.push(...values.slice(start, start + h))
          }
  return out
}

test('two regions in one prompt take their rows of the last tile in order, after those of all tiles', () => {
  const features = encode(tiny, 224, 112) // 2 x 1 tiles and a thumbnail
  assert.equal(features.tiles, 3)
  const masks = [box(224, 112, 0, 0, 112, 56), box(224, 112, 150, 60, 224, 112)]
  const prompt = prompter.describe(features, masks)
  assert.equal(prompt.thin, false)
  const text = prompter.tokenizer.decode(prompt.ids)
  assert.match(text, /There are 2 part regions in the picture: region1<vp>.*<\/vp>, region2<vp>.*<\/vp>\.\n/s)
  noGrad(() =>
    tidy(() => {
      const tokens = model.imageTokens(features.vision) // [3, n, S]
      const S = tokens.size(2)
      const flat = tokens.numbers()
      const embedded = model.promptEmbeddings(prompt).numbers()
      const n = grid * grid
      const cells = prompt.regions.flatMap((r) => [...r.keys()].filter((i) => r[i]))
      const sources = [...Array.from({ length: 3 * n }, (_, i) => i), ...cells.map((i) => 2 * n + i)]
      assert.equal(prompt.imagePositions.length, sources.length)
      sources.forEach((source, i) => {
        const at = prompt.imagePositions[i]! * S
        assert.deepEqual(embedded.slice(at, at + S), flat.slice(source * S, (source + 1) * S), `row ${i}`)
      })
      const plain = prompt.ids.findIndex((_, i) => !prompt.imagePositions.includes(i))
      const table = model.decoder.module.parts.embedding.weight
      const own = table.select(0, prompt.ids[plain]!).numbers()
      assert.deepEqual(embedded.slice(plain * S, (plain + 1) * S), own)
    }),
  )
  freeFeatures(features)
})

test('a region too thin for the grid takes its nearest cell and says so; an empty one is refused', () => {
  const features = encode(tiny, 96, 96)
  const thin = prompter.describe(features, box(96, 96, 7, 1, 8, 95))
  assert.equal(thin.thin, true)
  assert.equal(
    thin.regions[0]!.reduce((a, b) => a + b, 0),
    1,
  )
  assert.throws(
    () => prompter.describe(features, box(96, 96, 5, 5, 5, 5)),
    /region prompt: mask: expected at least one pixel/,
  )
  assert.throws(() => prompter.describe(features, []), /got no mask/)
  freeFeatures(features)
})

test('pictures of 2 x 1 and 4 x 1 become that many tiles and a thumbnail, and their prompts have room for all', () => {
  for (const [width, tiles] of [
    [224, 3],
    [448, 5],
  ] as const) {
    const input = prepareImage(picture(width, 112), cfg)
    assert.equal(input.tiles, tiles)
    const features = model.encode(input)
    const prompt = prompter.segment(features, 'the cup')
    assert.equal(prompt.imagePositions.length, tiles * grid * grid)
    const rows = tidy(() =>
      generate(model, prompter.tokenizer, [prompt], { maxNewTokens: 2, stopStrings: [], segId: prompter.segId }),
    )
    assert.equal(rows[0]!.ids.length, 2)
    freeFeatures(features)
  }
  assert.equal(prepareImage(picture(448, 112), cfg, { maxTiles: 1 }).tiles, 1)
})

test('image tokens and prompt must agree in number', () => {
  const features = encode(tiny, 96, 96)
  const prompt = prompter.segment(features, 'a cup')
  const short = { ...prompt, imagePositions: prompt.imagePositions.slice(1) }
  tidy(() => assert.throws(() => model.promptEmbeddings(short), /<IMG_CONTEXT>: expected 64 tokens for 1 tiles/))
  freeFeatures(features)
})

test('a whole model with InternLM2, Qwen3 or Phi-3 inside answers, and its vision may be the 6B variant', () => {
  const llms: Record<string, unknown>[] = [
    { architectures: ['InternLM2ForCausalLM'] },
    { architectures: ['Qwen3ForCausalLM'], head_dim: 32 },
    { architectures: ['Phi3ForCausalLM'], tie_word_embeddings: true },
  ]
  for (const llm of llms) {
    const own = tinyModel(tinyConfig({}, llm, { norm_type: 'rms_norm', qk_normalization: true, qkv_bias: false }))
    const features = encode(own, 96, 96)
    const prompt = own.prompter.describe(features, box(96, 96, 10, 10, 50, 50))
    const [row] = tidy(() =>
      generate(own.model, own.prompter.tokenizer, [prompt], {
        maxNewTokens: 3,
        stopStrings: [],
        segId: prompter.segId,
      }),
    )
    assert.ok(row!.ids.length >= 1)
    freeFeatures(features)
    own.dispose()
  }
})

test('in bfloat16 the model answers, scores and draws masks near those of float32', () => {
  const half = tinyModel(tinyConfig(), { dtype: 'bfloat16' })
  const whole = tinyModel(tinyConfig())
  const answer = prompter.tokenizer.encode('It is [SEG].')
  const at = answer.indexOf(prompter.segId)
  const run = (own: typeof half) =>
    noGrad(() =>
      tidy(() => {
        const features = encode(own, 96, 96)
        const prompt = own.prompter.segment(features, 'a cup')
        const pass = teacherForce(own.model, prompt, [answer])
        const logits = own.model.drawMasks(features, own.model.segPrompts(pass.stateAt(0, at)), [0]).logits
        const [row] = generate(own.model, prompter.tokenizer, [prompt], {
          maxNewTokens: 3,
          stopStrings: [],
          segId: prompter.segId,
        })
        const masks = own.model.finishMasks(features, logits)
        return {
          logps: pass.logProbs().logps.numbers(),
          logits: logits.to('float32').numbers(),
          tokens: row!.ids.length,
          masks,
        }
      }),
    )
  const [a, b] = [run(half), run(whole)]
  assert.equal(a.tokens, 3)
  const scale = Math.max(...b.logits.map(Math.abs))
  const mean = b.logits.reduce((sum, v, i) => sum + Math.abs(v - a.logits[i]!), 0) / b.logits.length
  assert.ok(mean < 0.05 * scale, `mean difference ${mean} of ${scale}`)
  for (const [i, v] of b.logps.entries())
    assert.ok(Math.abs(v - a.logps[i]!) < 1, `token ${i}: ${a.logps[i]} against ${v}`)
  assert.deepEqual([a.masks[0]!.width, a.masks[0]!.height], [96, 96])
  half.dispose()
  whole.dispose()
})
