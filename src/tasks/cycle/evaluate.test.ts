import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { makeToy, openRun, scratch, toyRun } from '../../../tests/support/runs.ts'
import type { Example } from '../../data/index.ts'
import { maskArea } from '../../mask/index.ts'
import { meteor } from '../../rewards/index.ts'
import { memory } from '../../tensor/index.ts'
import { describeAll, segmentAll } from './ask.ts'
import type { Cycle } from './config.ts'
import { type CycleScores, scoreRecords, summariseScores } from './evaluate.ts'

const folder = scratch('evaluate')
const toy = makeToy(join(folder, 'toy'))
const opened = await openRun(toyRun(toy, join(folder, 'none')), 3)
after(() => {
  opened.dispose()
  rmSync(folder, { recursive: true, force: true })
})
const examples = opened.items.map((i) => i.example)
const evaluated = (list: readonly Example[], cycle: Cycle = opened.cycle) =>
  opened.encoder.with(list, (items) => scoreRecords(cycle, items))

test('greedy and without noise: the same weights give the same digits, in any batch, and no tensor stays', () => {
  const together = evaluated(examples)
  const before = memory().tensors
  assert.deepEqual(evaluated(examples), together)
  assert.equal(memory().tensors, before)
  const alone = examples.flatMap((e) => evaluated([e]))
  assert.deepEqual(alone, together)
  assert.deepEqual(
    together.map((s) => s.id),
    examples.map((e) => e.id),
  )
})

test('a record whose mask and caption are what the model says scores 1 for masks and the METEOR of what it says', () => {
  const { features, example } = opened.items[0]!
  const [found] = segmentAll(opened.cycle, [{ features, caption: 'purple' }])
  const mask = found!.mask!
  assert.ok(maskArea(mask) > 0)
  const [scores] = evaluated([{ ...example, caption: 'purple', mask }])
  const [words] = describeAll(opened.cycle, [{ features, mask }])
  const equal = meteor('purple', words!)
  const area = maskArea(mask)
  assert.deepEqual(scores, {
    id: example.id,
    captionMeteor: equal,
    maskIou: 1,
    intersection: area,
    union: area,
    cycleIou: 1,
    cycleMeteor: equal,
    oneSeg: 1,
  })
})

test('an answer without a mask counts as no overlap, not as no record', () => {
  const { cycle, config } = opened
  const short = { ...cycle, config: { ...config, rl: { ...config.rl, maxCompletionLength: 1 } } }
  const [scores] = evaluated([examples[0]!], short)
  assert.deepEqual([scores!.maskIou, scores!.intersection, scores!.union], [0, 0, maskArea(examples[0]!.mask)])
  assert.deepEqual([scores!.cycleIou, scores!.cycleMeteor], [0, 0])
})

test('METEOR takes the record for the reference, and the retold caption is of the mask that was found', () => {
  const { cycle, config, items } = opened
  const { features, example } = items[0]!
  const [words] = describeAll(cycle, [{ features, mask: example.mask }])
  const caption = `${words} beside a thing that nobody mentions`
  assert.notEqual(meteor(caption, words!), meteor(words!, caption))
  assert.equal(evaluated([{ ...example, caption }])[0]!.captionMeteor, meteor(caption, words!))
  const short = { ...cycle, config: { ...config, rl: { ...config.rl, maxCompletionLength: 1 } } }
  const [word] = describeAll(short, [{ features, mask: example.mask }])
  assert.ok(meteor(word!, word!) > 0, `"${word}" is a word`)
  const [scores] = evaluated([{ ...example, caption: word! }], short)
  assert.deepEqual([scores!.captionMeteor, scores!.cycleMeteor], [meteor(word!, word!), 0])
})

const record = (maskIou: number, intersection: number, union: number): CycleScores => ({
  id: '',
  captionMeteor: maskIou / 2,
  maskIou,
  intersection,
  union,
  cycleIou: 0,
  cycleMeteor: 1,
  oneSeg: maskIou > 0 ? 1 : 0,
})

test('gIoU is the mean of overlaps, cIoU the overlap of all pixels; every interval holds its mean', () => {
  const found = summariseScores([record(0.5, 1, 2), record(0.1, 10, 100), record(0, 0, 8)], 3)
  assert.ok(Math.abs(found['mask/giou']!.mean - 0.2) < 1e-12)
  assert.ok(Math.abs(found['mask/ciou']!.mean - 11 / 110) < 1e-12)
  assert.ok(Math.abs(found['answer/seg_rate']!.mean - 2 / 3) < 1e-12)
  for (const { mean, low, high } of Object.values(found)) assert.ok(low <= mean && mean <= high)
  assert.deepEqual(Object.keys(found), [
    'caption/meteor',
    'mask/giou',
    'mask/ciou',
    'cycle/iou',
    'cycle/meteor',
    'answer/seg_rate',
  ])
})
