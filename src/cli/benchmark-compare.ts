// `roundtrip eval --compare A.json B.json`: before and after on the same sentences.
import { join } from 'node:path'
import type { Comparison, SentenceChange, StoredResult } from '../benchmarks/index.ts'
import { atomicWrite, log, makeFolder } from '../core/index.ts'
import type { ComparedSentence, ComparisonPage } from '../dashboard/index.ts'
import type { MaskRle, Shown } from '../tracking/index.ts'
import { missing } from './benchmark.ts'
import { aligned, clip, percent, verdict } from './table.ts'

/** The two arguments of `--compare`, and the rest of the line; null without the flag. */
export function takeCompare(argv: readonly string[]): { files: [string, string]; rest: string[] } | null {
  const at = argv.indexOf('--compare')
  if (at < 0) return null
  const [before, after] = argv.slice(at + 1, at + 3)
  if (before === undefined || after === undefined || before.startsWith('--') || after.startsWith('--'))
    throw missing(
      '--compare',
      'two result files, A.json B.json',
      [before, after].filter(Boolean).join(' ') || undefined,
    )
  return { files: [before, after], rest: [...argv.slice(0, at), ...argv.slice(at + 3)] }
}

export interface CompareRequest {
  files: [string, string]
  protocol: string | null
  seed: number
  out: string
  json: boolean
}

const shown = 8

/** Compares the two files and writes the page. */
export async function writeComparison(
  request: Omit<CompareRequest, 'json'>,
): Promise<{ found: Comparison; page: string }> {
  const { files, protocol, seed, out } = request
  const { compareResults, readResult } = await import('../benchmarks/index.ts')
  const [before, after] = files.map(readResult) as [StoredResult, StoredResult]
  const found = compareResults(before, after, { protocol, seed })
  const { renderComparison } = await import('../dashboard/index.ts')
  makeFolder(out)
  const page = join(out, `compare-${found.benchmark}-${found.split}.html`)
  atomicWrite(page, await renderComparison(pageOf(found, before, after, files)))
  return { found, page }
}

export async function runCompare({ json, ...request }: CompareRequest): Promise<void> {
  const { found, page } = await writeComparison(request)
  const { moved, ...metrics } = found
  if (json) process.stdout.write(`${JSON.stringify({ ...metrics, page, moved: moved.map(brief) })}\n`)
  else process.stdout.write(comparisonTable(found))
  log.info(`page: ${page}`)
}

const signed = (value: number) => (Number.isNaN(value) ? '-' : `${value < 0 ? '-' : '+'}${percent(Math.abs(value))}`)

const brief = ({ before, iou, change }: SentenceChange) => ({
  ...{ split: before.split, id: before.id, sentence: before.sentence, text: before.text },
  ...{ before: iou[0], after: iou[1], change },
})

/** Metrics, counts, and the sentences that moved most. */
export function comparisonTable(found: Comparison): string {
  const head = ['metric', 'A %', 'B %', 'change [95 %]', '']
  const rows = found.metrics.map(({ name, before, after, change }) => [
    ...[name, percent(before), percent(after)],
    `${signed(change.mean)} [${signed(change.low)}, ${signed(change.high)}]`,
    verdict(change),
  ])
  const moved = found.moved.filter((m) => m.change !== 0).slice(0, shown)
  const sentences = moved.map(({ before, iou, change }) => [
    ...[`${before.id}/${before.sentence}`, percent(iou[0]), percent(iou[1]), signed(change), clip(before.text, 60)],
  ])
  const about = `${found.benchmark} ${found.split}, protocol ${found.protocol}: ${found.sentences} sentences, ${found.images} images`
  const counts = `B is better on ${found.wins} sentences, worse on ${found.losses}, equal on ${found.ties}`
  const list = sentences.length > 0 ? `\n${aligned([['sentence', 'A', 'B', 'change', 'text'], ...sentences])}\n` : ''
  return `${about}\n${aligned([head, ...rows])}\n${counts}\n${list}`
}

function pageOf(found: Comparison, a: StoredResult, b: StoredResult, files: [string, string]): ComparisonPage {
  const folder = b.data.images ?? a.data.images
  const sentence = ({ before, after, iou }: SentenceChange): ComparedSentence => ({
    id: `${before.split} ${before.id}, sentence ${before.sentence}`,
    text: before.text,
    image: folder === null ? null : join(folder, before.image),
    sides: [before, after].map((side, i) => ({ iou: iou[i]!, shown: shownOf(side) })),
  })
  const gained = found.moved.filter((m) => m.change > 0).slice(0, shown)
  const lost = found.moved.filter((m) => m.change < 0).slice(0, shown)
  return {
    title: `${found.benchmark} ${found.split}: before and after`,
    names: ['A', 'B'],
    facts: [
      `A: ${files[0]} (${describe(a)})`,
      `B: ${files[1]} (${describe(b)})`,
      `Protocol ${found.protocol}; ${found.sentences} sentences, ${found.images} images.`,
    ],
    metrics: found.metrics,
    ...{ wins: found.wins, losses: found.losses, ties: found.ties },
    gained: gained.map(sentence),
    lost: lost.map(sentence),
  }
}

function shownOf({ target, rle, answer }: SentenceChange['before']): Shown[] {
  const text: Shown[] = answer === undefined ? [] : [{ kind: 'text', by: 'policy', text: answer }]
  return [
    { kind: 'mask', by: 'record', mask: target as MaskRle },
    { kind: 'mask', by: 'policy', mask: rle as MaskRle | null },
    ...text,
  ]
}

function describe({ by }: StoredResult): string {
  const names = ['model', 'adapter', 'predictions'].map((key) => by[key]).filter((value) => typeof value === 'string')
  return names.join(', ') || 'unknown'
}
