import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { disposeModel, tinyBlock, tinyModel } from '../../../tests/support/sam2.ts'
import { writeWeights } from '../../checkpoint/index.ts'
import { Mismatch, stream, streamId } from '../../core/index.ts'
import { imagenetMean, imagenetStd, type RgbImage } from '../../image/index.ts'
import { tensorAt } from '../../nn/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
import type { ClickPrompt } from '../segmenter.ts'
import { sam2Config } from './config.ts'
import { openSam2 } from './load.ts'
import { Sam2Model } from './model.ts'
import { predictorInput, Sam2Predictor } from './predictor.ts'
import { sam2ConfigFromShapes } from './shapes.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden/sa2va-tiny')
const folder = mkdtempSync(join(tmpdir(), 'sam2-'))
let model: Sam2Model
before(() => {
  model = tinyModel()
})
after(() => {
  disposeModel(model)
  rmSync(folder, { recursive: true })
})

function noise(width: number, height: number): RgbImage {
  const random = stream(streamId.test, 'image', width, height)
  return { width, height, data: Uint8Array.from({ length: 3 * width * height }, () => random.below(256)) }
}

test('the sizes of all four published trunks are read from the shapes of their weights', () => {
  const sizes: [number, number[], number[], number[], number, number][] = [
    [96, [1, 2, 7, 2], [8, 4, 14, 7], [5, 7, 9], 1, 7],
    [96, [1, 2, 11, 2], [8, 4, 14, 7], [7, 10, 13], 1, 7],
    [112, [2, 3, 16, 3], [8, 4, 14, 7], [12, 16, 20], 2, 14],
    [144, [2, 6, 36, 4], [8, 4, 16, 8], [23, 33, 43], 2, 7],
  ]
  for (const [embed_dim, stages, window_spec, global_att_blocks, num_heads, bkg] of sizes) {
    const config = sam2Config({
      ...{ embed_dim, stages, window_spec, global_att_blocks, num_heads },
      window_pos_embed_bkg_spatial_size: [bkg, bkg],
    })
    const whole = new Sam2Model(config)
    const shapes = new Map([...whole.parameters()].map(([name, t]) => [name, t.shape]))
    assert.deepEqual(sam2ConfigFromShapes(shapes, 'test'), config)
    disposeModel(whole)
  }
})

test('a trunk that was never published is refused without a config.json, and opened with one', () => {
  const file = join(folder, 'model.safetensors')
  writeWeights(
    folder,
    model.slots().map((slot) => {
      const t = tensorAt(slot)
      const array = t.contiguous().array()
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
      return { name: slot.name, dtype: 'F32' as const, shape: t.shape, data: () => bytes }
    }),
  )
  assert.throws(
    () => openSam2(file),
    (e) => e instanceof Mismatch && /16 channels, 1\+2\+3\+1 blocks/.test(e.message),
  )
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ grounding_encoder_config: tinyBlock() }))
  const opened = openSam2(file).model
  assert.deepEqual(opened.names().sort(), model.names().sort())
  disposeModel(opened)
})

test('the SAM2 inside a Sa2VA folder has the weights of the checkpoint', () => {
  const opened = openSam2(golden).model
  const stored = model.parameters()
  for (const [name, t] of opened.parameters())
    assert.equal(
      tidy(() => t.sub(stored.get(name)!).abs().max().item()),
      0,
      name,
    )
  disposeModel(opened)
})

test('the input is the antialiased bilinear average of the pixels, by a written-out loop', () => {
  const image = noise(37, 22)
  const side = 16
  const got = tidy(() => predictorInput(image, side, model.no_mem_embed).numbers())
  const weights = (from: number, i: number): number[] => {
    const scale = from / side
    const all = Array.from({ length: from }, (_, x) => {
      const distance = Math.abs((x + 0.5 - (i + 0.5) * scale) / Math.max(scale, 1))
      return Math.max(0, 1 - distance)
    })
    const sum = all.reduce((a, b) => a + b, 0)
    return all.map((w) => w / sum)
  }
  for (const [c, y, x] of [
    [0, 0, 0],
    [1, 7, 3],
    [2, 15, 15],
    [0, 4, 11],
  ] as const) {
    const [rows, columns] = [weights(22, y), weights(37, x)]
    let value = 0
    rows.forEach((wy, v) => {
      columns.forEach((wx, u) => {
        value += wy * wx * (image.data[(v * 37 + u) * 3 + c]! / 255)
      })
    })
    const want = (value - imagenetMean[c]!) / imagenetStd[c]!
    assert.ok(Math.abs(got[(c * side + y) * side + x]! - want) < 1e-5, `${c} ${y} ${x}`)
  }
})

/** Prompts of several makes, interleaved. */
function prompts(): ClickPrompt[] {
  const random = stream(streamId.test, 'clicks')
  const click = (): [number, number] => [random.below(128), random.below(128)]
  return Array.from({ length: 9 }, (_, i) => {
    const count = 1 + (i % 3)
    const labels = Array.from({ length: count }, (_, j) => (j === 0 ? 1 : 0))
    return { points: labels.map(click), labels, box: i === 4 ? ([10, 20, 90, 100] as const) : null }
  })
}

test('prompts with different numbers of points, drawn together on one reading of the image, give the masks of single calls', () => {
  const predictor = new Sam2Predictor(model)
  const features = predictor.encode(noise(60, 50))
  const size = { height: 50, width: 60, keepLogits: true }
  const together = predictor.draw(features, prompts(), { ...size, batch: 2 })
  assert.equal(predictor.encodes, 1)
  assert.equal(predictor.prompts, 9)
  assert.equal(predictor.decodes, 6) // counts 1, 2 and 3, two at most together, one with a box
  prompts().forEach((prompt, i) => {
    const [alone] = predictor.draw(features, [prompt], size)
    const both = together[i]!
    assert.equal(both.token, alone!.token)
    assert.ok(tidy(() => both.logits!.sub(alone!.logits!).abs().max().item()) < 1e-4)
    assert.ok(Math.abs(both.confidence - alone!.confidence) < 1e-5)
    for (const m of [both, alone!]) m.logits!.dispose()
  })
  assert.equal(predictor.encodes, 1)
  for (const t of Object.values(features)) t.dispose()
})

test('a mask is the bilinear enlargement of its logits above 0, and an earlier mask as prompt changes it', () => {
  const predictor = new Sam2Predictor(model)
  const features = predictor.encode(noise(60, 50))
  const size = { height: 50, width: 60, keepLogits: true }
  const click: ClickPrompt = { points: [[40, 60]], labels: [1] }
  const [first] = predictor.draw(features, [click], size)
  const wanted = noGrad(() =>
    tidy(() => {
      const all = model.decode(features, { points: [[[40, 60]]], labels: [[1]] }, { multimask: false })
      return all.masks.upsampleBilinear2d([50, 60], false).gt(0).sum().item()
    }),
  )
  const area = first!.mask.counts.reduce((n, run, i) => n + (i % 2 ? run : 0), 0)
  assert.equal(area, wanted)
  const [second] = predictor.draw(features, [{ ...click, previous: first!.logits }], size)
  assert.notEqual(second!.confidence, first!.confidence)
  for (const m of [first!, second!]) m.logits!.dispose()
  for (const t of Object.values(features)) t.dispose()
})

test('kept logits are those of the decoder, clamped to 32', () => {
  const predictor = new Sam2Predictor(model)
  const read = predictor.encode(noise(60, 50))
  const features = Object.fromEntries(Object.entries(read).map(([name, t]) => [name, t.mul(300)])) as typeof read
  const click: ClickPrompt = { points: [[40, 60]], labels: [1] }
  const [drawn] = predictor.draw(features, [click], { height: 50, width: 60, keepLogits: true })
  const raw = noGrad(() =>
    tidy(() => model.decode(features, { points: [[[40, 60]]], labels: [[1]] }, { multimask: false }).masks.numbers()),
  )
  assert.ok(Math.max(...raw.map(Math.abs)) > 40, 'the decoder goes beyond the limit')
  assert.deepEqual(
    drawn!.logits!.numbers(),
    raw.map((v) => Math.max(-32, Math.min(32, v))),
  )
  for (const t of [drawn!.logits!, ...Object.values(read), ...Object.values(features)]) t.dispose()
})
