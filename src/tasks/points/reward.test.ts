import assert from 'node:assert/strict'
import test from 'node:test'
import { maskFromDense } from '../../mask/index.ts'
import { PointAnswerConfig, pointRewardPreset } from './answer-config.ts'
import { parsePointAnswer } from './parse.ts'
import { type PointTurn, scorePoints, settledRewards } from './reward.ts'

test('a spread that is rounding teaches nothing: such rewards become their mean; any other stays as it is', () => {
  const nearly = settledRewards([0.5, 0.5 + 2e-7, 0.5 - 2e-7])
  assert.equal(new Set(nearly).size, 1)
  assert.ok(Math.abs(nearly[0]! - 0.5) < 1e-12, `${nearly[0]}`)
  const differ = [0.5, 0.5 + 4e-6, 0.5]
  assert.deepEqual(settledRewards(differ), differ)
  assert.deepEqual([settledRewards([0.3]), settledRewards([])], [[0.3], []])
})

test('the spread is the deviation of a sample, as that of the advantages', () => {
  const [wide, narrow] = [1.7e-6, 1.2e-6] // of two values d apart: d / sqrt(2)
  assert.deepEqual(settledRewards([0, wide]), [0, wide])
  assert.equal(new Set(settledRewards([0, narrow])).size, 1)
})

test('in later looks a point is right where the mask that was seen then is wrong', () => {
  const row = (text: string) => maskFromDense(Uint8Array.from(text, Number), 1, text.length)
  const look = (x: number, mask: string) => {
    const answer = { ...parsePointAnswer(`[[${x}, 0]]`, { width: 6, height: 1 }, read) }
    assert.equal(answer.valid, true)
    return { answer, mask: row(mask) }
  }
  const read = PointAnswerConfig.parse({ mode: 'second-look', turns: 2 })
  const sample = { target: row('110000'), mask0: row('111100'), frame: { width: 6, height: 1 }, mode: 'second-look', manyTurns: true } as const // biome-ignore format: one line
  const weights = pointRewardPreset('default', 'second-look')
  const rightIn = (...turns: PointTurn[]) => scorePoints({ ...sample, turns }, weights).right
  assert.equal(rightIn(look(2, '110100'), look(3, '110000')), 2, 'each is on what was wrong')
  assert.equal(rightIn(look(2, '110100'), look(2, '110100')), 1, 'the second is on what the first has corrected')
  assert.equal(rightIn(look(2, '110110'), look(4, '110000')), 2, 'the second is on what the first has spoiled')
})
