import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withinMinute } from '../../../tests/support/in-time.ts'
import { type ReadOptions, readAnswer } from './answer.ts'

const single: ReadOptions = {
  ...{ form: 'single', coords: 'pixel', allowNone: false },
  frame: { width: 100, height: 100 },
}
const object = '{"bbox": [1, 2, 3, 4], "points_1": [5, 6], "points_2": [7, 8]}'

test('the first object in braces is read, whatever opens before it', () => {
  for (const before of ['', '{}', '{}{} }', '} ']) {
    const { format, objects } = readAnswer(`${before}${object} {"bbox": [0]} {`, single)
    assert.deepEqual([format, objects?.[0]?.points.length], [1, 2], before)
  }
  for (const text of ['', '{', '{}', '}{', `{${object}`, `${object.slice(0, -1)} {`])
    assert.deepEqual(readAnswer(text, single).objects, null, text)
})

test('a million opening braces that nothing closes are read in one pass', () => {
  assert.equal(withinMinute(() => readAnswer('{'.repeat(1_000_000), single)).objects, null)
  assert.equal(withinMinute(() => readAnswer(`{}${'{'.repeat(1_000_000)}`, single)).objects, null)
})
