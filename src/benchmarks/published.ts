// The columns that papers print.
import type { SplitSummary } from './summary.ts'

export interface PublishedColumn {
  name: string
  value: number
}

/** RefCOCO family: cIoU alone, the benchmark told by a suffix: val, val+, val(U). */
const suffixes: Readonly<Record<string, string>> = { refcoco: '', 'refcoco+': '+', refcocog: '(U)' }

const figures: Readonly<Record<string, readonly string[]>> = {
  grefcoco: ['cIoU', 'gIoU', 'N_acc'],
  reasonseg: ['gIoU', 'cIoU'],
}

/** The pooled `test` of RefCOCO and RefCOCO+ is no column of a paper. */
function isColumn({ benchmark, split }: SplitSummary): boolean {
  return !(split === 'test' && (benchmark === 'refcoco' || benchmark === 'refcoco+'))
}

function columnsOf(summary: SplitSummary): PublishedColumn[] {
  const suffix = suffixes[summary.benchmark]
  if (suffix !== undefined) return [{ name: `${summary.split}${suffix}`, value: summary.figures['cIoU']! }]
  return (figures[summary.benchmark] ?? []).map((figure) => ({
    name: `${summary.split} ${figure}`,
    value: summary.figures[figure] ?? Number.NaN,
  }))
}

export function publishedColumns(summaries: readonly SplitSummary[]): PublishedColumn[] {
  return summaries.filter(isColumn).flatMap(columnsOf)
}
