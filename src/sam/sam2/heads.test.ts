import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { roundingBound } from '../../../tests/support/rounding.ts'
import { disposeModel, goldenTensor, relativeError, tinyModel } from '../../../tests/support/sam2.ts'
import { Mismatch } from '../../core/index.ts'
import { maskFromDense } from '../../mask/index.ts'
import { replaceTensor, tensorAt } from '../../nn/index.ts'
import { backward, cat, expectNoLeak, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { sam2Config } from './config.ts'
import { type Sam2Features, Sam2Model } from './model.ts'
import type { Sam2Prompt } from './prompt.ts'
import { chooseMask, maskLogits, maskRuns, stability, takeMask, toMask, upsampleMask } from './selection.ts'

/** Element i of tensor k: an integer hash, in [-0.5, 0.5). */
function hashed(k: number, i: number): number {
  let x = (Math.imul(i, 2654435761) + Math.imul(k + 1, 40503) + 12345) >>> 0
  x = Math.imul(x ^ (x >>> 16), 2246822519) >>> 0
  x = Math.imul(x ^ (x >>> 13), 3266489917) >>> 0
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32 - 0.5
}

function hashedTensor(k: number, shape: readonly number[], rule = (v: number) => v): Tensor {
  const size = shape.reduce((a, b) => a * b, 1)
  return tensor(
    Float32Array.from({ length: size }, (_, i) => rule(hashed(k, i))),
    shape,
  )
}

function ruleOf(name: string): (v: number) => number {
  if (/norm.*\.weight$|output_upscaling\.1\.weight|mask_downscaling\.[14]\.weight/.test(name)) return (v) => 1 + 0.2 * v
  if (name.endsWith('.bias')) return (v) => 0.1 * v
  return name.endsWith('gaussian_matrix') ? (v) => 2 * v : (v) => 0.8 * v
}

/** Prompt encoder and decoder with hashed weights; no_mem_embed is zero, the trunk stays without memory. */
function hashedHeads(): Sam2Model {
  const model = new Sam2Model(
    sam2Config({ image_size: 128, d_model: 32, decoder_heads: 4, decoder_mlp_dim: 64, iou_head_hidden_dim: 32 }),
  )
  const heads = model.slots().filter((s) => /^sam_/.test(s.name))
  assert.equal(heads.length, 148)
  heads.sort((a, b) => (a.name < b.name ? -1 : 1))
  heads.forEach((slot, k) => {
    replaceTensor(slot, hashedTensor(k, tensorAt(slot).shape, ruleOf(slot.name)))
  })
  const noMem = model.slots().find((s) => s.name === 'no_mem_embed')!
  replaceTensor(noMem, tensor(new Float32Array(32), [1, 1, 32]))
  return model
}

function hashedFeatures(k = 1000): Sam2Features {
  return {
    level2: hashedTensor(k, [1, 32, 8, 8]),
    level0: hashedTensor(k + 1, [1, 32, 32, 32]),
    level1: hashedTensor(k + 2, [1, 32, 16, 16]),
  }
}

let model: Sam2Model
before(() => {
  model = hashedHeads()
})
after(() => disposeModel(model))

/** A 40 x 30 image in the 128 x 128 frame. */
const scaled = (x: number, y: number): number[] => [(x / 40) * 128, (y / 30) * 128]
const box = [[...scaled(4, 5), ...scaled(30, 25)]]
const baseline: Sam2Prompt = { box, points: [[scaled(12, 10)]], labels: [[1]] }
const withNegatives: Sam2Prompt = {
  box,
  points: [[scaled(12, 10), scaled(20, 18), scaled(33, 4)]],
  labels: [[1, 0, 0]],
}

/** Sums of up to 256 products may be added in another order. */
function near(got: readonly number[], want: readonly number[]): void {
  assert.equal(got.length, want.length)
  got.forEach((v, i) => {
    assert.ok(Math.abs(v - want[i]!) < roundingBound(256), `${i}: ${v}, not ${want[i]}`)
  })
}

function quietly(fn: () => void): void {
  noGrad(() => tidy(fn))
}

test('cells and points have their known position codes', () => {
  quietly(() => {
    const dense = model.sam_prompt_encoder.densePositions() // [1, 32, 8, 8]
    const corner = [-0.013529, -0.277965, -0.680692, -0.806663]
    const at = (r: number, c: number) => dense.select(3, c).select(2, r).flatten().numbers().slice(0, 4)
    near(at(0, 0), corner)
    near(
      at(7, 7),
      corner.map((v) => -v),
    )
    const { sparse } = model.sam_prompt_encoder.forward(baseline, dense)
    assert.deepEqual(sparse.shape, [1, 4, 32])
    near(sparse.slice({ dim: 2, end: 4 }).flatten().numbers(), [
      ...[-0.271766, -0.273269, -0.63696, -0.606892],
      ...[-0.067775, -1.180039, -0.715688, -0.258144],
      ...[-0.043971, 0.860803, -0.552408, -0.371473],
      ...[0.224648, 0.0039, 0.066751, -0.309041],
    ])
  })
})

test('the middle of the image is coded as zeros and ones, before the label', () => {
  quietly(() => {
    const prompt = { points: [[[63.5, 63.5]]], labels: [[1]] }
    const { sparse } = model.sam_prompt_encoder.forward(prompt, model.no_mem_embed)
    const label = model.sam_prompt_encoder.point_embeddings[1]!.weight
    near(sparse.select(1, 0).sub(label).flatten().numbers(), [...Array(16).fill(0), ...Array(16).fill(1)])
  })
})

test('box and click give the known overlaps, and the single mask falls back to the third proposal', () => {
  quietly(() => {
    const features = hashedFeatures()
    const three = model.decode(features, baseline)
    near(three.ious.flatten().numbers(), [0.479274, 0.753646, 0.801609])
    near(three.objScore.flatten().numbers(), [-1.365562])
    const first = model.decode(features, baseline, { multimask: false, dynamic: false })
    near(first.ious.flatten().numbers(), [0.297206])
    near(stability(first.masks.select(1, 0), 0.05).numbers(), [0.860233])
    const single = model.decode(features, baseline, { multimask: false })
    near(single.ious.flatten().numbers(), [0.801609])
    near(single.masks.flatten().numbers().slice(0, 4), [-0.428095, 0.629111, -0.324096, -0.270368])
    assert.equal(relativeError(single.masks, takeMask(three.masks, chooseMask(three.ious))), 0)
  })
})

test('negative points give the known proposals and mask area', () => {
  quietly(() => {
    const out = model.decode(hashedFeatures(), withNegatives)
    near(out.ious.flatten().numbers(), [0.188922, 0.449754, 0.758472])
    near(out.masks.flatten({ startDim: 2 }).slice({ dim: 2, end: 3 }).flatten().numbers(), [
      ...[-0.16434, 0.678441, 1.175691],
      ...[0.454434, -0.340391, 0.949212],
      ...[-0.261948, 0.751207, 0.165043],
    ])
    const best = takeMask(out.masks, chooseMask(out.ious))
    const resized = best.upsampleBilinear2d([30, 40], false)
    assert.equal(
      toMask(resized)[0]!.reduce((a, b) => a + b, 0),
      942,
    )
  })
})

test('logits that are NaN are outside, and counted', () => {
  quietly(() => {
    const before = maskLogits.nan
    assert.deepEqual(toMask(tensor([Number.NaN, 1, -1, Number.NaN], [2, 2])), [Uint8Array.of(0, 1, 0, 0)])
    assert.equal(maskLogits.nan, before + 2)
  })
})

test('runs of masks found where the logits are equal those of their pixels', () => {
  quietly(() => {
    const noise = hashedTensor(3, [4, 13, 9])
    const signs = tensor([1, -1, 0, Number.NaN], [4, 1, 1])
    const logits = noise.mul(0.5).add(signs) // all inside, all outside, both, no numbers
    const before = maskLogits.nan
    const runs = maskRuns(logits)
    assert.equal(maskLogits.nan, before + 13 * 9)
    assert.deepEqual(
      runs.map((counts) => ({ height: 13, width: 9, counts })),
      toMask(logits).map((bits) => maskFromDense(bits, 13, 9)),
    )
  })
})

test('the fallback is decided row by row', () => {
  quietly(() => {
    const steady = [2, 2, -2, -2]
    const shaky = [2, 0.01, -0.01, -2]
    near(stability(tensor([...steady, ...shaky, -1, -1, -1, -1], [3, 2, 2]), 0.05).numbers(), [1, 1 / 3, 1])
  })
})

test('of equal overlaps the first is chosen', () => {
  quietly(() => {
    const ious = tensor([0.5, 0.5, 0.5, 0.1, 0.9, 0.9], [2, 3])
    assert.deepEqual(chooseMask(ious).numbers(), [0, 1])
    assert.deepEqual(takeMask(ious, chooseMask(ious)).shape, [2, 1])
  })
})

test('prompts over several images give the masks of each image alone, with and without a mask prompt', () => {
  quietly(() => {
    const images = [hashedFeatures(), hashedFeatures(2000)]
    const imageOf = [1, 0, 1]
    const language = hashedTensor(3000, [3, 1, 32])
    const earlier = hashedTensor(3001, [3, 1, 32, 32], (v) => 20 * v)
    const both = (level: keyof Sam2Features) => cat(images.map((image) => image[level]))
    const features = { level0: both('level0'), level1: both('level1'), level2: both('level2') }
    for (const maskInput of [undefined, earlier]) {
      const all = model.decode(features, { language, maskInput }, { imageOf })
      imageOf.forEach((image, b) => {
        const prompt = { language: language.narrow(0, b, 1), maskInput: maskInput?.narrow(0, b, 1) }
        const alone = model.decode(images[image]!, prompt)
        assert.ok(relativeError(all.masks.narrow(0, b, 1), alone.masks) < 1e-5, `masks of prompt ${b}`)
        assert.ok(relativeError(all.ious.narrow(0, b, 1), alone.ious) < 1e-5, `overlaps of prompt ${b}`)
      })
    }
    assert.throws(() => model.decode(features, { language }, { imageOf: [0, 1] }), /features/)
    assert.throws(() => model.decode(features, { language }, { imageOf: [0, 1, 2] }), /features/)
    const two = language.narrow(0, 0, 2)
    assert.throws(() => model.decode(features, { language: two }, { imageOf: [1, 0] }), /features/)
  })
})

test('a mask prompt takes the place of the no-mask vector', () => {
  quietly(() => {
    const features = hashedFeatures()
    const maskInput = hashedTensor(1003, [1, 1, 32, 32], (v) => 20 * v)
    const plain = model.decode(features, baseline)
    const masked = model.decode(features, { ...baseline, maskInput })
    assert.ok(relativeError(masked.masks, plain.masks) > 1e-3)
    assert.deepEqual(model.decode(features, { maskInput }).masks.shape, [1, 3, 32, 32])
  })
})

test('upsampleMask passes through the input size', () => {
  quietly(() => {
    const low = hashedTensor(5, [2, 1, 32, 32])
    const up = upsampleMask(low, 128, 50, 70)
    const steps = low.upsampleBilinear2d([128, 128], false).upsampleBilinear2d([50, 70], false)
    assert.ok(relativeError(up, steps) < 1e-6) // torch 1.13 has another kernel for maps of one channel
    assert.equal(toMask(up).length, 2)
    assert.equal(toMask(up)[1]!.length, 50 * 70)
    assert.throws(() => upsampleMask(low.select(0, 0), 128, 50, 70), Mismatch)
  })
})

const refused: [string, () => Sam2Prompt, RegExp][] = [
  ['nothing', () => ({}), /a language embedding, points, a box or a mask/],
  ['points without labels', () => ({ points: [[[1, 2]]] }), /labels: expected points and labels together/],
  ['labels without points', () => ({ box, labels: [[1]] }), /points: expected points and labels together/],
  ['a label that does not exist', () => ({ points: [[[1, 2]]], labels: [[4]] }), /labels\.0: .* got 4/],
  ['a point that is not finite', () => ({ points: [[[1, Number.NaN]]], labels: [[1]] }), /points\.0: .*finite/],
  ['a point of three numbers', () => ({ points: [[[1, 2, 3]]], labels: [[1]] }), /points\.0/],
  ['rows with other counts', () => ({ points: [[[1, 2]], []], labels: [[1], []] }), /points\.1: expected 1 points/],
  ['rows without points', () => ({ points: [[]], labels: [[]] }), /at least one point per row/],
  ['no rows', () => ({ points: [], labels: [] }), /at least one row/],
  ['a box of three numbers', () => ({ box: [[1, 2, 3]] }), /box\.0: expected \[x1, y1, x2, y2\]/],
  ['parts of other sizes', () => ({ box, points: [[], []], labels: [[], []] }), /box: expected 2 rows/],
  ['fewer labels than points', () => ({ points: [[[1, 2]]], labels: [[]] }), /labels\.0: expected 1 labels/],
  ['language of another width', () => ({ language: tensor([1, 2, 3], [1, 1, 3]) }), /language: expected \[B, n, 32\]/],
  ['a mask of another size', () => ({ maskInput: tensor([1, 2, 3, 4], [1, 1, 2, 2]) }), /maskInput: .*32, 32/],
]
for (const [what, prompt, text] of refused) {
  test(`a prompt of ${what} is refused`, () => {
    quietly(() => {
      assert.throws(
        () => model.decode(hashedFeatures(), prompt()),
        (e) => e instanceof Mismatch && text.test(e.message),
      )
    })
  })
}

test('encoding, decoding and choosing leave nothing behind', () => {
  const tiny = tinyModel()
  for (const t of tiny.parameters().values()) t.requiresGrad_(true)
  const pass = () =>
    tidy(() => {
      const features = tiny.encodeImage(goldenTensor('seg.g_pixel_values'))
      const single = tiny.decode(features, { points: [[[3, 4]]], labels: [[1]] }, { multimask: false })
      const out = tiny.decode(features, { language: goldenTensor('seg.embedding').unsqueeze(1) })
      toMask(upsampleMask(takeMask(out.masks, chooseMask(out.ious)), 128, 20, 30))
      backward(out.masks.sum().add(single.masks.sum()))
    })
  expectNoLeak(pass)
  for (const t of tiny.parameters().values()) t.setGrad(null)
  disposeModel(tiny)
})

// float64: differences of float32 losses would drown in rounding.
test('gradients of the decoder, the prompt vectors and the language agree with finite differences', () => {
  const tiny = tinyModel('float64')
  const features = noGrad(() => tidy(() => tiny.encodeImage(goldenTensor('seg.g_pixel_values').to('float64'))))
  const language = tidy(() => goldenTensor('seg.embedding').to('float64').unsqueeze(1))
  const loss = () => {
    const out = tiny.decode(features, { language, points: [[[30, 40]]], labels: [[1]] })
    return out.masks.sigmoid().mean().add(out.ious.mean()).add(out.objScore.mean())
  }
  const checked = gradientLeaves(tiny, language)
  tidy(() => backward(loss()))
  for (const [name, leaf] of checked) tidy(() => compareSlope(name, leaf, loss))
  for (const t of [...Object.values(features), language]) t.dispose()
  disposeModel(tiny)
})

function gradientLeaves(tiny: Sam2Model, language: Tensor): [string, Tensor][] {
  const names = [
    'sam_mask_decoder.conv_s0.weight',
    'sam_mask_decoder.conv_s1.bias',
    'sam_mask_decoder.transformer.layers.0.self_attn.v_proj.weight',
    'sam_mask_decoder.transformer.layers.1.cross_attn_image_to_token.q_proj.weight',
    'sam_mask_decoder.output_upscaling.0.weight',
    'sam_mask_decoder.output_upscaling.1.weight',
    'sam_mask_decoder.output_hypernetworks_mlps.2.layers.1.weight',
    'sam_mask_decoder.iou_prediction_head.layers.0.weight',
    'sam_mask_decoder.pred_obj_score_head.layers.2.weight',
    'sam_prompt_encoder.point_embeddings.1.weight',
    'sam_prompt_encoder.not_a_point_embed.weight',
    'sam_prompt_encoder.no_mask_embed.weight',
    'no_mem_embed',
  ]
  const weights = tiny.parameters()
  const leaves = [
    ...names.map((n): [string, Tensor] => [n, weights.get(n)!]),
    ['language', language] as [string, Tensor],
  ]
  for (const [, t] of leaves) t.requiresGrad_(true)
  return leaves
}

/** The slope along a fixed direction, by the central difference; a small step, because ReLU has corners. */
function compareSlope(name: string, leaf: Tensor, loss: () => Tensor): void {
  const h = 1e-7
  const direction = hashedTensor(77, leaf.shape).to('float64')
  const want = leaf.grad()!.mul(direction).sum().item()
  const at = (scale: number) =>
    noGrad(() => {
      leaf.add_(direction, { alpha: scale })
      const value = loss().item()
      leaf.add_(direction, { alpha: -scale })
      return value
    })
  const got = (at(h) - at(-h)) / (2 * h)
  assert.ok(Math.abs(got - want) <= 1e-5 * Math.abs(want) + 1e-8, `${name}: ${want}, by differences ${got}`)
  assert.ok(Math.abs(want) > 1e-6, `${name}: ${want} is too small to compare`)
}

test('every decoder weight gets a gradient when masks, overlaps and object score count', () => {
  const tiny = tinyModel()
  const trained = [...tiny.parameters()].filter(([n]) => n.startsWith('sam_mask_decoder.'))
  for (const [, t] of trained) t.requiresGrad_(true)
  tidy(() => {
    const features = noGrad(() => tiny.encodeImage(goldenTensor('seg.g_pixel_values')))
    const prompt = { language: goldenTensor('seg.embedding').unsqueeze(1) }
    const single = tiny.decode(features, prompt, { multimask: false, dynamic: false })
    const out = tiny.decode(features, prompt)
    const heads = out.ious.sum().add(single.ious.sum()).add(out.objScore.sum())
    backward(out.masks.sigmoid().mean().add(single.masks.sigmoid().mean()).add(heads))
    for (const [name, t] of trained) {
      const size = t.grad()?.norm().item() ?? 0
      assert.ok(size > 0, `${name}: ${size}`)
    }
  })
  for (const [, t] of trained) t.setGrad(null)
  disposeModel(tiny)
})

test('a mask loss gives the overlap and object heads no gradient', () => {
  const tiny = tinyModel()
  for (const t of tiny.parameters().values()) t.requiresGrad_(true)
  tidy(() => {
    const features = noGrad(() => tiny.encodeImage(goldenTensor('seg.g_pixel_values')))
    backward(tiny.decode(features, { language: goldenTensor('seg.embedding').unsqueeze(1) }).masks.sum())
    for (const [name, t] of tiny.parameters()) {
      if (/iou_prediction_head|pred_obj_score_head|image_encoder/.test(name)) assert.equal(t.grad(), null, name)
    }
  })
  for (const t of tiny.parameters().values()) t.setGrad(null)
  disposeModel(tiny)
})

test('bfloat16 weights give float32 masks close to those of float32 weights', () => {
  const tiny = tinyModel('bfloat16')
  quietly(() => {
    const features = tiny.encodeImage(goldenTensor('seg.g_pixel_values').to('bfloat16'))
    assert.equal(features.level2.dtype, 'bfloat16')
    const out = tiny.decode(features, { language: goldenTensor('seg.embedding').unsqueeze(1) })
    assert.deepEqual([out.masks.dtype, out.ious.dtype, out.objScore.dtype], ['float32', 'float32', 'float32'])
    const error = relativeError(out.masks, goldenTensor('sam.lang_low_res_multi'))
    assert.ok(error < 0.03, `${error}`)
    const same = toMask(takeMask(out.masks, chooseMask(out.ious)))[0]!.filter(
      (v, i) => v === toMask(goldenTensor('sam.lang_low_res_best'))[0]![i],
    ).length
    assert.ok(same / 1024 > 0.98, `${same} of 1024 pixels`)
  })
  disposeModel(tiny)
})
