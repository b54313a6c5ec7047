import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { makeToy, type Opened, openRun, scratch, toyRun } from '../../../tests/support/runs.ts'
import type { Example } from '../../data/index.ts'
import { encodeRle, maskArea, maskUnion } from '../../mask/index.ts'
import { meteor } from '../../rewards/index.ts'
import { memory, noGrad, tidy } from '../../tensor/index.ts'
import type { Cycle } from './config.ts'
import { type CycleScores, scoreRecords, summariseScores } from './evaluate.ts'
import { describeAll, segmentAll } from './prompts.ts'

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

test('a record that cannot be described takes nothing from the others', () => {
  const { mask } = examples[0]!
  const none = { ...examples[0]!, mask: { ...mask, counts: Uint32Array.of(mask.height * mask.width) } }
  assert.deepEqual(evaluated([none, ...examples.slice(1)]).slice(1), evaluated(examples).slice(1))
})

/** From its first [SEG] on the model says nothing else. */
function sayingOnlySeg({ cycle: { family } }: Opened): void {
  const weights = family.module.parameters()
  noGrad(() =>
    tidy(() => {
      const row = weights.get('language_model.model.embed_tokens.weight')!.select(0, family.segId)
      const head = weights.get('language_model.lm_head.weight')!.select(0, family.segId)
      head.add_(row.mul(20 / row.square().sum().item()))
    }),
  )
}

test('an answer with several [SEG] is not one with one; its mask is that of the first, or the union of all', async () => {
  const o = await openRun(toyRun(toy, join(folder, 'none'), { rl: { maxCompletionLength: 4 } }), 1)
  sayingOnlySeg(o)
  const { config } = o
  const union = {
    ...o.cycle,
    config: { ...config, rewards: { ...config.rewards, iou: { ...config.rewards.iou, multiSeg: 'union' as const } } },
  }
  const { features, example } = o.items[0]!
  const phrase = { features, caption: example.caption }
  const [first, all] = o.encoder.inWork(o.items, () => [
    segmentAll(o.cycle, [phrase])[0]!,
    segmentAll(union, [phrase])[0]!,
  ])
  assert.ok(first!.segs > 1, `${first!.segs} in "${first!.text}"`)
  assert.ok(
    maskArea(all!.mask!) > maskArea(first!.mask!),
    `${maskArea(all!.mask!)} and ${maskArea(first!.mask!)} pixels`,
  )
  assert.deepEqual(maskUnion(all!.mask!, first!.mask!), all!.mask)
  assert.equal(o.encoder.with([example], (items) => scoreRecords(o.cycle, items))[0]!.oneSeg, 0)
  o.dispose()
})

test('a record whose mask and caption are what the model says scores 1 for masks and the METEOR of what it says', () => {
  const { features, example } = opened.items[0]!
  const [found] = segmentAll(opened.cycle, [{ features, caption: 'purple' }])
  const mask = found!.mask!
  assert.ok(maskArea(mask) > 0)
  const [words] = describeAll(opened.cycle, [{ features, mask }])
  const [{ shown, ...scores }] = evaluated([{ ...example, caption: 'purple', mask }]) as [CycleScores]
  const drawn = shown?.map(({ kind, by, value }) => [kind, by, kind === 'mask' ? value : String(value)])
  const rle = encodeRle(mask)
  assert.deepEqual(drawn, [
    ['mask', 'record', rle],
    ['text', 'record', 'purple'],
    ['mask', 'policy', rle],
    ['text', 'policy', words],
  ])
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
  const drawn = segmentAll(cycle, [{ features, caption }])[0]!.mask!
  const [retold] = describeAll(cycle, [{ features, mask: drawn }])
  assert.notEqual(meteor(caption, retold!), meteor(retold!, caption), `"${retold}" has words of "${caption}"`)
  assert.equal(evaluated([{ ...example, caption }])[0]!.cycleMeteor, meteor(caption, retold!))
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
  assert.ok(Math.abs(found['caption/meteor']!.mean - 0.1) < 1e-12, 'half of the overlaps')
  assert.deepEqual([found['cycle/iou']!.mean, found['cycle/meteor']!.mean], [0, 1])
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
