import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { roundingBound } from '../../../tests/support/rounding.ts'
import {
  checkpointTensors,
  disposeModel,
  goldenNumbers,
  goldenTensor,
  relativeError,
  tinyModel,
} from '../../../tests/support/sam2.ts'
import { Mismatch } from '../../core/index.ts'
import { backward, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import type { Sam2Features, Sam2Model } from './model.ts'
import { videoOnlyNames } from './model.ts'
import { chooseMask, takeMask, toMask, upsampleMask } from './selection.ts'

// The reference ran on another libtorch: sums of up to 256 products are added in another order.
const tolerance = roundingBound(256)
let model: Sam2Model

before(() => {
  model = tinyModel()
})
after(() => disposeModel(model))

function close(got: Tensor, name: string): void {
  const error = relativeError(got, goldenTensor(name))
  assert.ok(error <= tolerance, `${name}: ${error}`)
}

function check(fn: (features: Sam2Features) => void): void {
  noGrad(() => tidy(() => fn(model.encodeImage(goldenTensor('seg.g_pixel_values')))))
}

/** Masks of golden logits and of our logits, pixel for pixel. */
function sameMask(got: Tensor, name: string): void {
  assert.deepEqual(toMask(got), toMask(goldenTensor(name)), `${name}: pixels`)
}

/** [1, N, 2] and [1, N] as plain numbers. */
function points(coords: string, labels: string): { points: number[][][]; labels: number[][] } {
  const flat = goldenTensor(coords).numbers()
  const pairs = Array.from({ length: flat.length / 2 }, (_, i) => flat.slice(2 * i, 2 * i + 2))
  return { points: [pairs], labels: [goldenTensor(labels).numbers()] }
}

test('the model spells its weights as the checkpoint does, video aside', () => {
  const stored = [...checkpointTensors().keys()].filter((n) => !videoOnlyNames.some((p) => p.test(n)))
  assert.deepEqual(model.names().sort(), stored.sort())
  assert.ok(checkpointTensors().size > stored.length)
})

test('no weight of the image path looks like a video weight, with or without a prefix', () => {
  for (const name of model.names())
    for (const full of [name, `grounding_encoder.sam2_model.${name}`])
      assert.ok(!videoOnlyNames.some((p) => p.test(full)), full)
})

test('the trunk gives the reference maps of all four stages', () => {
  noGrad(() =>
    tidy(() => {
      const maps = model.image_encoder.trunk.forward(goldenTensor('seg.g_pixel_values'))
      maps.forEach((m, i) => {
        close(m, `sam.trunk${i}`)
      })
    }),
  )
})

test('the neck gives the reference levels', () => {
  check(({ level0, level1, level2 }) => {
    close(model.sam_mask_decoder.conv_s0.forward(level0), 'sam.fpn0')
    close(model.sam_mask_decoder.conv_s1.forward(level1), 'sam.fpn1')
    close(level2, 'sam.fpn2')
  })
})

test('a language prompt gives the reference masks, overlaps and object score', () => {
  check((features) => {
    const out = model.decode(features, { language: goldenTensor('seg.embedding').unsqueeze(1) })
    close(out.masks, 'sam.lang_low_res_multi')
    close(out.ious, 'sam.lang_ious')
    close(out.objScore, 'sam.lang_obj_score')
    const best = takeMask(out.masks, chooseMask(out.ious))
    close(best, 'sam.lang_low_res_best')
    sameMask(best, 'sam.lang_low_res_best')
    close(upsampleMask(best, 128, 128, 128), 'seg.video_res_masks')
    const full = upsampleMask(best, 128, 170, 250)
    close(full.squeeze(0), 'seg.final_logits')
    assert.deepEqual(toMask(full), [goldenTensor('seg.final_mask').array()])
  })
})

test('points give the reference masks, as three proposals and as a single mask', () => {
  check((features) => {
    const prompt = points('sam.point_coords', 'sam.point_labels')
    const three = model.decode(features, prompt, { multimask: true })
    close(three.masks, 'sam.points_low_res_multi')
    close(three.ious, 'sam.points_ious_multi')
    const one = model.decode(features, prompt, { multimask: false })
    close(one.masks, 'sam.points_low_res')
    close(one.ious, 'sam.points_ious')
    sameMask(one.masks, 'sam.points_low_res')
  })
})

test('a box is two corner points in front of the clicks', () => {
  check((features) => {
    const listed = points('sam.box_point_coords', 'sam.box_point_labels')
    const [corners, clicks] = [listed.points[0]!.slice(0, 2), listed.points[0]!.slice(2)]
    const boxed = { box: [corners.flat()], points: [clicks], labels: [listed.labels[0]!.slice(2)] }
    for (const prompt of [listed, boxed]) {
      const one = model.decode(features, prompt, { multimask: false })
      close(one.masks, 'sam.box_points_low_res')
      close(one.ious, 'sam.box_points_ious')
      sameMask(one.masks, 'sam.box_points_low_res')
    }
  })
})

test('the gradient of the reference mask loss has the reference norm in every weight', () => {
  const { grad_norms: norms, grad_loss: loss } = goldenNumbers()
  const features = noGrad(() => tidy(() => model.encodeImage(goldenTensor('seg.g_pixel_values'))))
  for (const t of model.parameters().values()) t.requiresGrad_(true)
  tidy(() => {
    const out = model.decode(features, { language: goldenTensor('seg.embedding').unsqueeze(1) })
    const logits = takeMask(out.masks, chooseMask(out.ious))
    const target = goldenTensor('grad.mask_target')
    const bce = logits.binaryCrossEntropyWithLogits(target)
    const p = logits.sigmoid()
    const dice = p.mul(target).sum().mul(2).add(1).div(p.sum().add(target.sum()).add(1)).neg().add(1)
    const limit = roundingBound(logits.numel) // means over all pixels
    assert.ok(Math.abs(bce.item() - loss.bce) < limit)
    assert.ok(Math.abs(dice.item() - loss.dice) < limit)
    backward(bce.add(dice))
  })
  tidy(() => compareNorms(norms))
  for (const t of Object.values(features)) t.dispose()
  for (const t of model.parameters().values()) {
    t.setGrad(null)
    t.requiresGrad_(false)
  }
})

/** Below 1e-6 of the largest norm a value is rounding: the bias of a key moves all scores of a row alike. */
function compareNorms(norms: Record<string, number>): void {
  const largest = Math.max(...Object.values(norms))
  let compared = 0
  for (const [name, weight] of model.parameters()) {
    const want = norms[`grounding_encoder.sam2_model.${name}`]
    if (want === undefined) continue
    const got = weight.grad()?.norm().item() ?? 0
    assert.ok(Math.abs(got - want) <= 1e-4 * want + 1e-8 * largest, `${name}: ${got}, not ${want}`)
    compared++
  }
  assert.ok(compared > 100, `${compared} weights compared`)
}

test('several prompts over one image give what each gives alone, and what one image per row gives', () => {
  check((features) => {
    const first = goldenTensor('seg.embedding').view([1, 1, -1])
    const second = first.mul(-0.7)
    const both = tensor([...first.numbers(), ...second.numbers()], [2, 1, 32])
    const shared = model.decode(features, { language: both })
    const twice = Object.fromEntries(
      Object.entries(features).map(([k, t]) => [k, (t as Tensor).repeat([2, 1, 1, 1])]),
    ) as unknown as Sam2Features
    const perRow = model.decode(twice, { language: both })
    ;[first, second].forEach((language, i) => {
      const alone = model.decode(features, { language })
      for (const out of [shared, perRow]) {
        assert.ok(relativeError(out.masks.narrow(0, i, 1), alone.masks) < tolerance)
        assert.ok(relativeError(out.ious.narrow(0, i, 1), alone.ious) < tolerance)
      }
    })
  })
})

test('the order of points does not matter, but a point of no label does', () => {
  check((features) => {
    const { points: p, labels: l } = points('sam.point_coords', 'sam.point_labels')
    const given = model.decode(features, { points: p, labels: l })
    const turned = model.decode(features, { points: [p[0]!.toReversed()], labels: [l[0]!.toReversed()] })
    const filled = model.decode(features, { points: [[...p[0]!, [0, 0]]], labels: [[...l[0]!, -1]] })
    assert.ok(relativeError(turned.masks, given.masks) < 1e-5)
    assert.ok(relativeError(filled.masks, given.masks) > 1e-3)
  })
})

test('language and points together make one prompt', () => {
  check((features) => {
    const language = goldenTensor('seg.embedding').unsqueeze(1)
    const clicks = points('sam.point_coords', 'sam.point_labels')
    const both = model.decode(features, { language, ...clicks })
    for (const other of [{ language }, clicks])
      assert.ok(relativeError(both.masks, model.decode(features, other).masks) > 1e-3)
  })
})

test('images that do not fit the prompts are refused', () => {
  check((features) => {
    const three = tensor(new Float32Array(3 * 32), [3, 1, 32])
    const two = Object.fromEntries(
      Object.entries(features).map(([k, t]) => [k, (t as Tensor).repeat([2, 1, 1, 1])]),
    ) as unknown as Sam2Features
    assert.throws(() => model.decode(two, { language: three }), Mismatch)
    assert.throws(() => model.encodeImage(tensor(new Float32Array(3 * 64 * 64), [1, 3, 64, 64])), Mismatch)
  })
})
