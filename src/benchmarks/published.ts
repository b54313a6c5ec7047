// The columns that papers print.
import type { SplitSummary } from './summary.ts'

export interface PublishedColumn {
  name: string
  value: number
}

/** RefCOCO family: cIoU alone, the benchmark is named by a suffix: val, val+, val(U). */
const suffixes: Readonly<Record<string, string>> = { refcoco: '', 'refcoco+': '+', refcocog: '(U)' }

const metrics: Readonly<Record<string, readonly string[]>> = {
  grefcoco: ['cIoU', 'gIoU', 'N_acc'],
  reasonseg: ['gIoU', 'cIoU'],
}

/** The pooled `test` of RefCOCO and RefCOCO+ is not a column in any paper. */
function isColumn({ benchmark, split }: SplitSummary): boolean {
  return !(split === 'test' && (benchmark === 'refcoco' || benchmark === 'refcoco+'))
}

function columnsOf(summary: SplitSummary): PublishedColumn[] {
  const suffix = suffixes[summary.benchmark]
  if (suffix !== undefined) return [{ name: `${summary.split}${suffix}`, value: summary.metrics['cIoU']! }]
  return (metrics[summary.benchmark] ?? []).map((metric) => ({
    name: `${summary.split} ${metric}`,
    value: summary.metrics[metric] ?? Number.NaN,
  }))
}

export function publishedColumns(summaries: readonly SplitSummary[]): PublishedColumn[] {
  return summaries.filter(isColumn).flatMap(columnsOf)
}
