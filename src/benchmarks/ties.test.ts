// Exact ties: a score equal to its limit, shapes of equal size.
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { openBenchmark } from './index.ts'
import { protocolsOf } from './protocols.ts'
import type { ScoredSentence } from './score.ts'
import { metricsOf } from './summary.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden/benchmarks-tiny', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-ties-'))
after(() => rmSync(scratch, { recursive: true }))

test('Pr@0.7 counts an IoU of exactly 0.7', () => {
  const protocol = protocolsOf('grefcoco').find((p) => p.noTarget)!
  const precision = metricsOf(protocol).find((metric) => metric.name === 'Pr@0.7')!
  const termsOf = (iou: number) =>
    precision.terms({ intersection: 0, union: 0, iou, none: false }, { nothing: false } as ScoredSentence)
  assert.deepEqual([0.7, 0.7 - 1e-9, 0.7 + 1e-9].map(termsOf), [
    [1, 1],
    [0, 1],
    [1, 1],
  ])
})

/** Whether a pixel that two squares of equal size cover belongs to the target. */
async function middle(...labels: string[]): Promise<number> {
  const dir = join(scratch, labels.join('-'))
  mkdirSync(join(dir, 'val'), { recursive: true })
  cpSync(join(golden, 'reason_seg/ReasonSeg/val/6336535_0_o.jpg'), join(dir, 'val', 'a.jpg'))
  const square = (x: number) => [
    [x, 2],
    [x + 8, 2],
    [x + 8, 10],
    [x, 10],
  ]
  const shapes = labels.map((label, i) => ({ label, points: square(2 + 4 * i) }))
  writeFileSync(join(dir, 'val', 'a.json'), JSON.stringify({ text: ['what?'], is_sentence: true, shapes }))
  const [record] = openBenchmark(dir, 'reasonseg').records
  const { parts, width } = await record!.target()
  return parts[6 * width + 8]!
}

test('ReasonSeg: of two shapes of equal size the first lies on top', async () => {
  assert.equal(await middle('target', 'ignore'), 1)
  assert.equal(await middle('ignore', 'target'), 0)
})
