import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Mismatch } from '../../core/index.ts'
import { meteor, meteorDetail } from './index.ts'
import { cube } from './score.ts'
import { tokenize } from './tokens.ts'

interface Row {
  id: number
  reference: string
  hypothesis: string
  ref_len: number
  hyp_len: number
  matches: number
  chunks: number
  stages: number[]
  score: number
}

const golden = fileURLToPath(new URL('../../../tests/fixtures/golden/meteor.jsonl', import.meta.url))
const rows: Row[] = readFileSync(golden, 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line))

test('meteor gives the double of NLTK on all 2,000 reference pairs, with its matches, chunks and stages', () => {
  assert.equal(rows.length, 2000)
  for (const row of rows) {
    const got = meteorDetail(row.reference, row.hypothesis)
    assert.equal(got.score, row.score, `score of row ${row.id}`)
    assert.equal(meteor(row.reference, row.hypothesis), row.score)
    const counts = [got.matches, got.chunks, ...got.stages, got.refLength, got.hypLength]
    const want = [row.matches, row.chunks, ...row.stages, row.ref_len, row.hyp_len]
    assert.deepEqual(counts, want, `counts of row ${row.id}`)
  }
})

test('meteor does not depend on what was scored before', () => {
  for (const row of rows.slice().reverse()) assert.equal(meteor(row.reference, row.hypothesis), row.score)
})

test('meteor is 0 if nothing can match', () => {
  for (const [reference, hypothesis] of [
    ['', ''],
    ['a dog', ''],
    ['', 'a dog'],
    [' \u00a0\u3000\u001c', 'a dog'],
    ['red', 'blue'],
  ] as const) {
    assert.equal(meteor(reference, hypothesis), 0)
    assert.equal(meteorDetail(reference, hypothesis).chunks, 0)
  }
})

test('n equal words score 1 - 0.5 / n^3', () => {
  const words = ['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven']
  for (let n = 1; n <= words.length; n++) {
    const text = words.slice(0, n).join(' ')
    assert.ok(Math.abs(meteor(text, text) - (1 - 0.5 / n ** 3)) < 1e-15)
  }
  assert.equal(meteor('dog', 'dog'), 0.5)
})

test('a word stays free for the last equal word of the reference', () => {
  // From the end, the only `a` takes the last `a`; from the start it would make one chunk of two.
  const got = meteorDetail('a dog a', 'a dog')
  assert.deepEqual([got.matches, got.chunks], [2, 2])
})

test('stems meet before synonyms, and synonyms are those of the stem', () => {
  assert.deepEqual(meteorDetail('dogs running', 'dog runs').stages, [0, 2, 0])
  assert.deepEqual(meteorDetail('a couch', 'a sofa').stages, [1, 0, 1])
  assert.deepEqual(meteorDetail('a bicycle', 'a bike').stages, [1, 0, 0])
  assert.deepEqual(meteorDetail('dog.', 'dog').stages, [0, 0, 0])
})

test('the direction matters: the synonym set is that of the hypothesis', () => {
  const asymmetric = rows.filter((row) => meteor(row.hypothesis, row.reference) !== row.score)
  assert.ok(asymmetric.length > 500)
})

test('tokens are cut at the white space of Python and nowhere else', () => {
  assert.deepEqual(tokenize('A\u001cb\u0085c\ufeffd\u200be\u2003F '), ['a', 'b', 'c\ufeffd\u200be', 'f'])
})

test('the tokenizer words separates punctuation but keeps inner - and apostrophes', () => {
  const text = "The well-known dog's (red) ball, isn't it? -- 'tis 3.5%"
  assert.deepEqual(tokenize(text, 'words'), [
    'the',
    'well-known',
    "dog's",
    'red',
    'ball',
    "isn't",
    'it',
    'tis',
    '3',
    '5',
  ])
  assert.deepEqual(meteorDetail('a dog.', 'a dog', { tokenizer: 'words' }).matches, 2)
})

test('alpha, beta and gamma enter the formula', () => {
  const got = meteorDetail('a b c d e', 'b a x', { alpha: 0.5, beta: 2, gamma: 0.25 })
  assert.deepEqual([got.matches, got.chunks, got.hypLength, got.refLength], [2, 2, 3, 5])
  const [p, r] = [2 / 3, 2 / 5]
  assert.equal(got.fMean, (p * r) / (0.5 * p + 0.5 * r))
  assert.equal(got.score, (1 - 0.25) * got.fMean)
})

test('options out of range are named', () => {
  const faulty = [{ alpha: 1.1 }, { alpha: Number.NaN }, { beta: -1 }, { gamma: 2 }, { tokenizer: 'none' as 'words' }]
  for (const options of faulty) {
    const [field] = Object.keys(options)
    assert.throws(
      () => meteor('a', 'a', options),
      (error) => error instanceof Mismatch && error.info.field === field,
    )
  }
})

/** x^3 rounded to the nearest double, by integers: x = m * 2^e with m < 2^53. */
function exactCube(x: number): number {
  const view = new DataView(new ArrayBuffer(8))
  view.setFloat64(0, x)
  const bits = view.getBigUint64(0)
  const mantissa = (bits & 0xfffffffffffffn) | 0x10000000000000n
  const exponent = Number((bits >> 52n) & 0x7ffn) - 1075
  const product = mantissa ** 3n
  const drop = BigInt(product.toString(2).length - 53)
  const half = 1n << (drop - 1n)
  const low = product & ((1n << drop) - 1n)
  let high = product >> drop
  if (low > half || (low === half && (high & 1n) === 1n)) high++
  return Number(high) * 2 ** (3 * exponent + Number(drop))
}

test('cube is correctly rounded for every fraction up to 128 matches', () => {
  for (let m = 1; m <= 128; m++) for (let c = 1; c <= m; c++) assert.equal(cube(c / m), exactCube(c / m), `${c}/${m}`)
})

test('noise neither fills the memory nor changes later scores', () => {
  const noise = Array.from({ length: 270_000 }, (_, i) => `w${i}`).join(' ')
  assert.ok(meteor(noise, noise) > 0.99)
  for (const row of rows.slice(0, 200)) assert.equal(meteor(row.reference, row.hypothesis), row.score)
})

test('words of thousands of letters are scored', () => {
  for (const word of ['s', 'y', 'es', 'ing', 'er', '\u{1f436}', '\ud800']) {
    const long = word.repeat(3000)
    assert.equal(meteor(long, `${long}x`), 0)
    assert.equal(meteor(long, long), 0.5)
  }
})
