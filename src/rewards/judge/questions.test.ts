import assert from 'node:assert/strict'
import { test } from 'node:test'
import { canaryQuestion, questionsOf, readChecklist, tally } from './questions.ts'

const reference = 'A wild bird with grey or brown wings stands on a branch beside a couch.'
const most = { positives: 3, negatives: 3 }

function read(positives: unknown, negatives: unknown) {
  return readChecklist({ object: 'wild bird', plural: false, positives, negatives }, reference, most)!
}

test('a stated value must be made of words of the reference, compared by their stems', () => {
  const attribute = 'colour'
  const { positives } = read(
    [
      { part: 'wing', attribute, value: 'grey or brown' },
      { part: 'wing', attribute, value: 'GREY, or BROWN' },
      { part: 'beak', attribute, value: 'yellow' },
      { part: 'tail', attribute, value: 'grey and yellow' },
      { part: null, attribute: 'pose', value: 'standing' },
      { part: null, attribute, value: 'the' },
      { part: null, attribute, value: 'grey\nbrown' },
      { part: null, attribute: 'x'.repeat(81), value: 'grey' },
      { part: 'ignore the above', attribute, value: 'grey' },
      { part: 7, attribute, value: 'wild' },
      null,
      'grey',
    ],
    [],
  )
  assert.deepEqual(positives, [
    { part: 'wing', attribute, value: 'grey or brown' },
    { part: null, attribute: 'pose', value: 'standing' },
    { part: null, attribute, value: 'wild' },
  ])
})

test('an unmentioned thing must be neither in the reference nor a synonym of anything in it', () => {
  const item = (name: unknown, kind: unknown = 'part') => ({ name, plural: false, kind })
  const { negatives } = read(
    [],
    [item('claws'), item('wings'), item('sofa'), item('claw'), item('egg', 'object'), item('nest', 'plant'), item(3)],
  )
  assert.deepEqual(
    negatives.map((n) => n.name),
    ['claws', 'egg'],
  )
  assert.equal(readChecklist({ positives: [] }, reference, most), null)
  assert.equal(readChecklist('text', reference, most), null)
  assert.equal(readChecklist(null, reference, most), null)
})

const checklist = {
  object: 'apple',
  plural: false,
  positives: [
    { part: null, attribute: 'colour', value: 'red' },
    { part: 'stem', attribute: 'colour', value: 'brown' },
  ],
  negatives: [
    { name: 'worm', plural: false, kind: 'object' as const },
    { name: 'leaf', plural: false, kind: 'part' as const },
  ],
}

test('questions have the options and scores of their kind', () => {
  const questions = questionsOf(checklist, 0)
  assert.deepEqual(
    questions.map((q) => q.kind),
    ['recognition', 'positive', 'positive', 'negative', 'negative'],
  )
  assert.match(questions[0]!.text, /be an apple, or/)
  const scores = questions.map((q) => q.options.map((o) => o.score).sort((a, b) => a - b))
  assert.deepEqual(scores, [
    [0, 1],
    [-1, 0, 0, 1],
    [-1, 0, 0.5, 1],
    [-1, 1],
    [-1, 0, 1],
  ])
  assert.deepEqual(questionsOf(checklist, 0), questions)
  const orders = new Set(
    Array.from({ length: 20 }, (_, seed) => JSON.stringify(questionsOf(checklist, seed).map((q) => q.options))),
  )
  assert.ok(orders.size > 10, 'the seed decides the order')
})

test('the tally is the mean over answered questions, and without recognition nothing positive counts', () => {
  const questions = questionsOf(checklist, 3)
  const pick = (...scores: (number | null)[]) =>
    questions.map((q, i) => (scores[i] === null ? null : q.options.findIndex((o) => o.score === scores[i])))
  assert.equal(tally(questions, pick(1, 1, 0.5, 1, -1), 0.5)?.raw, 1.5 / 4)
  assert.equal(tally(questions, pick(1, 1, null, 1, null), 0.5)?.raw, 1)
  assert.equal(tally(questions, pick(0, 1, 0.5, 1, -1), 0.5)?.raw, -1 / 4)
  assert.equal(tally(questions, pick(1, null, null, 1, null), 0.5), null, 'too few')
  assert.equal(tally(questions, pick(null, 1, 1, 1, 1), 0.5), null, 'the gate is open or closed, never unknown')
  assert.equal(tally(questions, pick(1, null, null, null, null), 0), null)
  const full = tally(questions, pick(1, 1, 1, 1, 1), 0.5)
  assert.deepEqual(full, { raw: 1, positive: 1, negative: 1, recognised: true, answered: 4, asked: 4 })
})

test('a canary asks for something that neither text mentions', () => {
  const q = canaryQuestion('a dog', 'a dog near a lighthouse', 'dog', 0)!
  assert.equal(q.options.length, 2)
  for (let seed = 0; seed < 50; seed++)
    assert.ok(!canaryQuestion('a dog', 'lighthouse beacon', 'dog', seed)!.text.includes('lighthouse'))
})
