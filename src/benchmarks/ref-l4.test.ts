import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { encodeRle, maskFromDense } from '../mask/index.ts'
import { type Box, boxIou, openRefL4, readBoxes, scoreRefL4 } from './ref-l4.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-ref-l4-'))
after(() => rmSync(folder, { recursive: true, force: true }))

const row = (id: string, bbox: Box, image = id) => {
  const size = { height: 400, width: 400 }
  return { id, caption: `thing ${id}`, bbox, file_name: `${image}.jpg`, ...size, ori_category_id: 'o365_1' }
}
const write = (name: string, rows: unknown[]) =>
  writeFileSync(join(folder, name), rows.map((r) => JSON.stringify(r)).join('\n'))

test('overlap of boxes is a share of pixels, 0 where they are apart or empty', () => {
  assert.equal(boxIou([0, 0, 10, 10], [5, 0, 10, 10]), Math.fround(50 / 150))
  assert.equal(boxIou([0, 0, 10, 10], [10, 0, 5, 5]), 0)
  assert.equal(boxIou([0, 0, 0, 0], [0, 0, 0, 0]), 0)
})

test('accuracy above a threshold, not at it; by size; boxes as xywh, xyxy or around a mask', async () => {
  write('ref-l4-val.jsonl', [row('a', [0, 0, 10, 10]), row('b', [0, 0, 200, 200])])
  write('ref-l4-test.jsonl', [row('c', [100, 100, 300, 300]), row('d', [2, 1, 2, 2])])
  const bits = new Uint8Array(400 * 400)
  for (const [x, y] of [[2, 1], [3, 2]] as const) bits[y * 400 + x] = 1 // biome-ignore format: two pixels
  write('predictions.jsonl', [
    { id: 'a', pred_bbox: [0, 0, 5, 10], format: 'xywh' }, // exactly 0.5: not above
    { id: 'b', pred_bbox: [0, 0, 200, 160], format: 'xyxy' }, // 0.8
    { id: 'c', rle: null },
    { id: 'd', rle: encodeRle(maskFromDense(bits, 400, 400)) }, // 1
  ])
  const { rows, records } = await openRefL4(folder, null)
  assert.deepEqual(
    rows.map((r) => [r.id, r.split]),
    [['c', 'test'], ['d', 'test'], ['a', 'val'], ['b', 'val']], // biome-ignore format: pairs
  )
  assert.deepEqual(records[0]!.questions, ['<image>\n Please segment thing c in this image.'])
  const boxes = readBoxes(join(folder, 'predictions.jsonl'))
  const metrics = (split: string) =>
    Object.fromEntries(
      Object.entries(scoreRefL4(rows, boxes, split, { seed: 1, resamples: 20 }).metrics).map(([k, v]) => [k, v.mean]),
    )
  const all = metrics('all')
  assert.deepEqual([all['Acc@0.5'], all['Acc@0.75'], all['Acc@0.9']], [0.5, 0.5, 0.25])
  assert.ok(Math.abs(all['mAcc']! - (0 + 0.6 + 0 + 1) / 4) < 1e-12) // 0.8 is above 0.5 ... 0.75
  assert.deepEqual([all['small Acc@0.5'], all['medium Acc@0.5'], all['large Acc@0.5']], [0.5, 1, 0])
  assert.deepEqual([all['small mAcc'], all['medium mAcc'], all['large mAcc']], [0.5, 0.6, 0])
  assert.deepEqual([metrics('val')['Acc@0.5'], metrics('test')['Acc@0.9']], [0.5, 0.5])
})

test('sizes are by the side of a square: medium from 128 to 256', () => {
  const rows = [127, 128, 256, 257].map((side) => ({ ...row(`${side}`, [0, 0, side, side]), split: 'val' }))
  const boxes = new Map(rows.map(({ id, bbox }) => [id, id === '128' ? null : bbox]))
  const { metrics } = scoreRefL4(rows, boxes, 'val', { seed: 1, resamples: 20 })
  assert.deepEqual(
    ['small', 'medium', 'large'].map((size) => metrics[`${size} Acc@0.5`]!.mean),
    [1, 0.5, 1],
  )
})

test('an expression without a prediction is named', async () => {
  const { rows } = await openRefL4(folder, null)
  assert.throws(
    () => scoreRefL4(rows, new Map(), 'all', { seed: 1 }),
    /predictions: c: expected a prediction for every/,
  )
})

test('corners are turned into sizes, wherever the box is', () => {
  write('corners.jsonl', [
    { id: 'a', pred_bbox: [10, 20, 30, 60], format: 'xyxy' },
    { id: 'b', pred_bbox: [10, 20, 30, 60], format: 'xywh' },
  ])
  assert.deepEqual(
    [...readBoxes(join(folder, 'corners.jsonl'))],
    [
      ['a', [10, 20, 20, 40]],
      ['b', [10, 20, 30, 60]],
    ],
  )
})
