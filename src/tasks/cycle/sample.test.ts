import assert from 'node:assert/strict'
import test from 'node:test'
import { maskArea } from '../../mask/index.ts'
import type { WorkItem } from '../kind.ts'
import { type CycleReply, type CycleSample, restoreSample, shownOf, storeSample } from './sample.ts'

const full: CycleSample = {
  ids: Int32Array.of(3, 1, 4),
  text: 'Sure, [SEG].',
  finished: true,
  logps: Float32Array.of(-0.5, -0.25, -1.5),
  samplerLogps: Float32Array.of(-0.75, -0.125, -2),
  sampled: false,
  action: { value: Float32Array.of(0.1, -0.2), choice: 2, prompt: Float32Array.of(1, 2, 3) },
  caption: 'a star',
  mask: { height: 2, width: 3, counts: Uint32Array.of(1, 2, 3) },
  confidence: { iou: 0.75, object: 0.5 },
}
const stored = (sample: CycleSample) => restoreSample(JSON.parse(JSON.stringify(storeSample(sample))))

test('a stored sample comes back from JSON with everything it had', () => {
  assert.equal(maskArea(full.mask!), 2)
  assert.deepEqual(stored(full), full)
})

test('what a sample did not have is not there afterwards either', () => {
  const { ids, text, logps } = full
  const bare = { ids, text, finished: false, logps, action: null, caption: null, mask: null }
  assert.deepEqual(stored(bare), bare)
  const field = { ...bare, action: { value: full.action!.value, choice: 1 } }
  assert.deepEqual(stored(field), field)
})

test('a mask that was not drawn is shown as missing, by the model that should have drawn it', () => {
  const mask = full.mask!
  const item = { id: 'r', example: { id: 'r', caption: 'a star', mask }, features: {} } as unknown as WorkItem
  const reply = { mask: null, text: 'Sure, it is a star' } as unknown as CycleReply
  for (const by of ['ema', 'policy'] as const) {
    const masks = shownOf(item, reply, by).filter(({ kind }) => kind === 'mask')
    assert.deepEqual(masks.map((one) => [one.by, one.value === null]), [['record', false], [by, true]]) // biome-ignore format: one line
  }
})
