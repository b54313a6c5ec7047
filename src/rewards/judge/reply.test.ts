import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withinMinute } from '../../../tests/support/in-time.ts'
import { firstJson, parseChoice, readChoice, readChoices, readGrade } from './reply.ts'

const options = [
  'The wing is not mentioned.',
  'The wing is mentioned.',
  'The wing is mentioned. It is grey.',
  'The wing is red.',
]

test('a reply is read by the rules in their order', () => {
  const rows: [string, number | null][] = [
    ['the wing is red.', 3], // 1: the option
    ['D. The wing is red.', 3], // 1: letter and option
    [' b ', 1], // 1: the letter
    ['I choose: the wing is red. Done', 3], // 2: one option contained
    ['A. I think the wing is red.', 3], // 2 before 3
    ['C. because', 2], // 3: letter and point
    ['the wing is mentioned. it is grey.', 2], // 1
    ['so: the wing is mentioned. it is grey. yes', 2], // 4: same place, the longest
    ['the wing is red. no: the wing is not mentioned.', 0], // 4: the last one
    ['is grey', 2], // 5: contained in one option
    ['the wing is', 2], // 5: contained in several, the longest
    ['C\nbecause', 2], // 6
    ['nothing of the sort', null],
  ]
  for (const [reply, choice] of rows) assert.equal(parseChoice(reply, options), choice, reply)
})

test('what makes the upstream parser crash is not an answer', () => {
  assert.equal(parseChoice('', options), null)
  assert.equal(parseChoice('  \n ', options), null)
  assert.equal(parseChoice('x', options), null)
  assert.equal(parseChoice('7', options), null)
  assert.equal(parseChoice('e', options), null)
  assert.equal(parseChoice('E. beyond the last', options), null)
  assert.equal(parseChoice('maybe', ['Yes', 'No']), null)
  assert.equal(parseChoice('I cannot know that', ['Yes', 'No']), null)
})

test('decorated letters are read and refusals are not', () => {
  for (const reply of ['B', '(B)', '**B**', '"B"', 'B)', 'b.', '`B`', 'B: because'])
    assert.equal(readChoice(reply, options.slice(0, 2)), 1, reply)
  for (const reply of ["I'm sorry, no.", 'I cannot say', 'As an AI language model, yes'])
    assert.equal(readChoice(reply, ['Maybe so', 'Perhaps']), null, reply)
  assert.equal(readChoice('I am unable to answer.', ['Yes', 'No']), null)
})

test('an array of letters may have holes', () => {
  const three = [options, options, options]
  assert.deepEqual(readChoices('```json\n["A", "C", "B"]\n```', three), [0, 2, 1])
  assert.deepEqual(readChoices('Answers: ["A", 7]', three), [0, null, null])
  assert.equal(readChoices('A, B, C', three), null)
  assert.equal(readChoices('["A", "B"', three), null)
})

test('a reply is a grade when it is a number from 0 to 10 and nothing else', () => {
  const grades: [string, number][] = [
    ['7', 0.7],
    ['10', 1],
    ['0', 0],
    [' 8.\n', 0.8],
    ['10.0', 1],
    ['Grade: 8.5/10', 0.85],
    ['**Grade:** 8', 0.8],
    ['"6"', 0.6],
    ['{"score": 9}', 0.9],
    ['9 / 10', 0.9],
    ['9 out of 10', 0.9],
    ['The final score is 3.', 0.3],
    ['rating=4', 0.4],
  ]
  for (const [reply, value] of grades) assert.equal(readGrade(reply), value, reply)
})

test('prose, other numbers and refusals are not a grade', () => {
  const replies = [
    'On 10 May I gave it 2',
    'not 10',
    'I would say 3, no: 9 of 10',
    '1e3',
    '1e0',
    '10 0 10 0',
    '1 0',
    '1*0',
    '11',
    '10.5',
    '-3',
    '- 3',
    '+3',
    '100',
    '07',
    '.5',
    '5,5',
    '7/5',
    '7 because it is red',
    '7\nno: 2',
    'Grade: 8 Grade: 2',
    '0x5',
    '\u0661\u0660',
    '\uff11\uff10',
    'NaN',
    'Infinity',
    '',
    'good',
    'Grade:',
    'Sorry, I cannot compare 2 texts',
  ]
  for (const reply of replies) assert.equal(readGrade(reply), null, reply)
})

test('the first balanced JSON is found, and brackets without end do not stall', () => {
  assert.deepEqual(firstJson('see {this} and {"a": "}", "b": [1, {"c": 2}]} end', '{'), { a: '}', b: [1, { c: 2 }] })
  assert.equal(firstJson('{"a": 1', '{'), undefined)
  const start = performance.now()
  firstJson('{'.repeat(500_000) + '}'.repeat(500_000), '{')
  firstJson('{}x'.repeat(300_000).replaceAll('{}', '{x}'), '{')
  assert.ok(performance.now() - start < 30_000) // without the limits: minutes
})

test('a reply of a megabyte is read in one pass, whatever it is full of', () => {
  const yesNo = ['Yes', 'No'] // an hour if each place of a run were a start
  for (const part of [' ', '\n', ')', '"', '[', '{"', '*', 'no '])
    withinMinute(() => {
      const reply = `x${part.repeat(1 << 20)}x`
      assert.equal(readChoice(reply, yesNo), part === 'no ' ? 1 : null)
      assert.equal(readGrade(reply), null)
      assert.equal(readChoices(reply, [yesNo]), null)
    })
  for (const reply of ['**(A)**', '"))', '(())'])
    assert.equal(readChoice(reply, yesNo), /A/.test(reply) ? 0 : null, reply)
})
