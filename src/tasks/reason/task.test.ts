import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { maskArea, maskBox } from '../../mask/index.ts'
import { openSegmenter } from '../../sam/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
import { resolvePoints } from '../points/config.ts'
import type { PointItem } from '../points/item.ts'
import { resolveReason } from './config.ts'
import { type ReasonSetup, readReplies } from './task.ts'

const folder = join(import.meta.dirname, '../../../assets/points-miniature/sam2-boxes')

test('an object with a broken box draws nothing: its point alone would be worth more than a wrong box', () => {
  const { record } = makePointScene(21, 0)
  const [x, y, w, h] = maskBox(record.mask)
  const [right, below, middle] = [x + w, y + h, [x + w / 2, y + h / 2]]
  const boxes = [[x, y, right, below], [right, y, x, below], [x, below, right, y], [x, y, x, below], [200, 200, 240, 240], [x, y, 300, below]] // biome-ignore format: one line
  const texts = boxes.map((box) => `<answer>${JSON.stringify([{ bbox_2d: box, point_2d: middle }])}</answer>`)
  const areas = noGrad(() =>
    tidy(() => {
      const sam = openSegmenter(folder, { device: 'cpu', dtype: 'float32' })
      const config = resolvePoints({ mode: 'joint', multimask: false })
      const setup = { sam, config, reason: resolveReason({ multimask: false }) } as ReasonSetup
      const frame = { width: record.image.width, height: record.image.height }
      const item = { record, frame, sam: sam.encode(record.image) } as PointItem
      return readReplies(setup, item, texts).map(({ mask }) => mask && maskArea(mask))
    }),
  )
  assert.ok(areas[0]! > 200, `${areas[0]}`)
  assert.deepEqual(areas.slice(1, 5), [null, null, null, null])
  assert.notEqual(areas[5], null, 'a box that reaches out of the image is cut to it')
})
