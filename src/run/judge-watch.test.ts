import assert from 'node:assert/strict'
import { test } from 'node:test'
import { JudgeStats, judgeCount, sumStates } from '../rewards/index.ts'
import { JudgeWatch, judgeLine } from './judge-watch.ts'

const count = (scored: number, asked: number, reason: string | null = 'no grade in the reply') => ({
  scored,
  asked,
  reason,
})

test('a judge that scores fewer than half of the captions of the first steps is reported once, with the reason', () => {
  const watch = new JudgeWatch()
  assert.match(watch.afterStep(count(0, 16)) ?? '', /^judge: 0 of 16 captions scored: no grade in the reply\./)
  assert.equal(watch.afterStep(count(0, 32)), null)
  const later = new JudgeWatch()
  assert.equal(later.afterStep(count(8, 16)), null)
  assert.equal(later.afterStep(count(16, 32)), null)
  assert.match(later.afterStep(count(16, 48)) ?? '', /^judge: 16 of 48/)
})

test('a run without a judge, captions that were not asked about and later steps are not reported', () => {
  const watch = new JudgeWatch()
  assert.equal(watch.afterStep(null), null)
  assert.equal(watch.afterStep(count(0, 0)), null)
  for (let step = 0; step < 3; step++) assert.equal(watch.afterStep(count(9, 10)), null)
  assert.equal(watch.afterStep(count(9, 100)), null)
})

test('the last line has the counts of all processes, and a reason if a caption has no score', () => {
  assert.equal(sumStates([null, null]), null)
  const stats = [3, 1].map((judged) => Object.assign(new JudgeStats(), { judged, unjudged: 4 - judged }))
  stats[1]!.addUnjudged('timeout')
  stats[1]!.unjudged--
  const states = stats.map((one) => one.state({ costPerMillionIn: 1, costPerMillionOut: 1 }, 0))
  const all = judgeCount(sumStates([states[0]!, null, states[1]!])!)
  assert.deepEqual(all, count(4, 8, 'timeout'))
  assert.equal(judgeLine(all), 'judge scored 4 of 8 captions; the last one without a score: timeout')
  const hostile = judgeLine(count(0, 8, '500 \u001b[2J'))
  assert.equal(hostile, 'judge scored 0 of 8 captions; the last one without a score: 500 \\x1b[2J')
  assert.equal(judgeLine(count(8, 8)), 'judge scored 8 of 8 captions')
})
