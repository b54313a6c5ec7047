import assert from 'node:assert/strict'
import { test } from 'node:test'
import { captionTokens, ciderD } from './cider.ts'

test('tokens are cut as the Treebank does, without signs', () => {
  const cases: [string, string][] = [
    ["The man's dog isn't here.", "the man 's dog is n't here"],
    ['A red, shiny car; (parked)!', 'a red shiny car parked'],
    ['Two-way street -- 3.5 m wide, 1,000 cars...', 'two-way street 3.5 m wide 1,000 cars'],
    ['"Quoted" words, they cannot say: \u2018no\u2019', 'quoted words they can not say no'],
    ['a café/bar', 'a café/bar'],
    ['', ''],
  ]
  for (const [text, tokens] of cases) assert.equal(captionTokens(text).join(' '), tokens)
})

test('a caption equal to its only reference, of words that no other item has, scores 10', () => {
  const items = [
    { candidate: 'a large red star above', references: ['a large red star above'] },
    { candidate: 'the tiny blue square below', references: ['the tiny blue square below'] },
  ]
  for (const score of ciderD(items)) assert.ok(Math.abs(score - 10) < 1e-12, `${score}`)
})

test('words that every item has weigh nothing, and a caption without a common word scores 0', () => {
  const shared = { candidate: 'one two three four', references: ['one two three four'] }
  assert.deepEqual(ciderD([shared, shared]), [0, 0])
  assert.deepEqual(ciderD([{ candidate: 'x y z', references: ['a b c'] }, shared])[0], 0)
})

/** Written out for sequences of one to four words, item 0 alone. */
function longHand(candidate: string, references: string[], others: string[]): number {
  const grams = (text: string, n: number) => {
    const words = text.split(' ')
    return words.slice(0, Math.max(0, words.length - n + 1)).map((_, i) => words.slice(i, i + n).join(' '))
  }
  const count = (list: string[], gram: string) => list.filter((g) => g === gram).length
  let sum = 0
  for (const reference of references) {
    for (let n = 1; n <= 4; n++) {
      const [c, r] = [grams(candidate, n), grams(reference, n)]
      const idf = (gram: string) => {
        const inFirst = references.some((text) => grams(text, n).includes(gram)) ? 1 : 0
        const documents = inFirst + others.filter((text) => grams(text, n).includes(gram)).length
        return Math.log(1 + others.length) - Math.log(Math.max(1, documents))
      }
      const weight = (list: string[], gram: string) => count(list, gram) * idf(gram)
      const all = [...new Set([...c, ...r])]
      const dot = all.reduce((s, g) => s + Math.min(weight(c, g), weight(r, g)) * weight(r, g), 0)
      const norm = (list: string[]) => Math.sqrt(all.reduce((s, g) => s + weight(list, g) ** 2, 0))
      const penalty = Math.exp(-((grams(candidate, 2).length - grams(reference, 2).length) ** 2) / 72)
      sum += (penalty * (norm(c) * norm(r) === 0 ? dot : dot / (norm(c) * norm(r)))) / 4
    }
  }
  return (10 * sum) / references.length
}

test('several references, repeated words and other lengths agree with the formula written out', () => {
  const references = ['a red car on the left side', 'the red red car left of a bus']
  const others = ['a blue bus on the right', 'the dog', 'a red balloon over the dog and a cat']
  for (const candidate of [
    'a red red red car',
    'the car on the left side of the road near a bus',
    'bus',
    'a red car on the left side',
  ]) {
    const items = [{ candidate, references }, ...others.map((text) => ({ candidate: text, references: [text] }))]
    const score = ciderD(items)[0]!
    assert.ok(Math.abs(score - longHand(candidate, references, others)) < 1e-12, `${candidate}: ${score}`)
  }
})
