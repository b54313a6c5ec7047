// BLEU-4, ROUGE-L and CIDEr-D as terms of a reward equal the public scorers, which were run on these captions.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { RewardsConfig, TaskRewards } from './config.ts'
import { scoreGroup } from './mix.ts'
import { buildTerms } from './terms.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-captions-'))
after(() => rmSync(folder, { recursive: true, force: true }))

interface Case {
  candidate: string
  reference: string
  bleu: number
  rouge: number
  cider: number
}
const file = new URL('../../tests/fixtures/caption-scores.json', import.meta.url)
const { cases } = JSON.parse(readFileSync(file, 'utf8')) as { cases: Case[] }
const corpus = join(folder, 'corpus.txt')
writeFileSync(corpus, cases.map(({ reference }) => `${reference}\n`).join(''))

const termsOf = (path: string) => {
  const of = 'caption'
  const terms = [
    { type: 'bleu', of },
    { type: 'rouge', of, weight: 2 },
    { type: 'cider', of, weight: 0.5, corpus: path },
  ]
  return buildTerms(TaskRewards.parse({ terms }), RewardsConfig.parse({}))
}

test('every caption has the score of the public scorer in all three terms, and the total is their weighted mean', async () => {
  const terms = await termsOf(corpus)
  for (const [k, { candidate, reference, ...expected }] of cases.entries()) {
    const [row] = await scoreGroup(terms, [{ id: `r#${k}`, reference, caption: candidate }])
    for (const name of ['bleu', 'rouge', 'cider'] as const)
      assert.ok(Math.abs(row!.parts[name]! - expected[name]) < 1e-9, `${name} of "${candidate}": ${row!.parts[name]} instead of ${expected[name]}`) // biome-ignore format: one line
    const mean = (expected.bleu + 2 * expected.rouge + 0.5 * expected.cider) / 3.5
    assert.ok(Math.abs(row!.total! - mean) < 1e-9)
  }
})

test('captions are cut into words as for CIDEr-D: case and signs do not count', async () => {
  const [row] = await scoreGroup(await termsOf(corpus), [
    { id: 'r#0', reference: 'A red cup, on the table.', caption: '"a red cup on the table"' },
  ])
  assert.ok(Math.abs(row!.parts['bleu']! - 1) < 1e-6)
  assert.equal(row!.parts['rouge'], 1)
})

test('a corpus that is missing or has no captions is reported before the first step', async () => {
  const empty = join(folder, 'empty.txt')
  writeFileSync(empty, '\n\n')
  await assert.rejects(termsOf(empty), /empty\.txt: corpus: expected captions, one a line, at least 2, got 0/)
  await assert.rejects(termsOf(join(folder, 'none.txt')), /none\.txt/)
})
