import { counted, spellControls } from '../core/index.ts'
import type { RunResult } from '../run/index.ts'
import { apartFrom, type Interval, smallSampleNote } from '../tracking/index.ts'

export interface TableLayout {
  /** Columns with right-aligned cells. */
  right?: readonly number[]
  /** Width of a column at most; a longer cell overflows. */
  widest?: number
  indent?: string
}

/** Columns padded to their widest cell, two spaces apart. */
export function aligned(rows: readonly (readonly string[])[], layout: TableLayout = {}): string {
  const { right = [], widest = Number.POSITIVE_INFINITY, indent = '' } = layout
  const widths = (rows[0] ?? []).map((_, i) => Math.min(widest, Math.max(...rows.map((row) => row[i]?.length ?? 0))))
  const pad = (cell: string, i: number) =>
    right.includes(i) ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)
  return rows.map((row) => spellControls(`${indent}${row.map(pad).join('  ')}`.trimEnd())).join('\n')
}

/** At most `width` characters, on one line. */
export function clip(text: string, width: number): string {
  const flat = text.replace(/\s+/g, ' ').trim()
  return flat.length <= width ? flat : `${flat.slice(0, width - 3)}...`
}

export function formatMetric(value: number | null | undefined): string {
  if (value === null || value === undefined) return '-'
  return Number.isNaN(value) ? 'nan' : value.toFixed(4)
}

/** 1,234,567 */
export const thousands = (n: number): string => n.toLocaleString('en-US')

/** A difference; NaN: there is none. */
export const exponential = (value: number): string =>
  Number.isNaN(value) ? '-' : value === 0 ? '0' : value.toExponential(2)

/** As many digits as pages have; two intervals, a change and their names fit a line of 80 columns. */
export const rounded = (value: number): string => value.toFixed(3)

/** `-`: no record had what the metric is about. One record has no interval. */
export function interval({ mean, low, high }: Interval): string {
  if (Number.isNaN(mean)) return '-'
  if (Number.isNaN(low)) return rounded(mean)
  return `${rounded(mean)} [${rounded(low)}, ${rounded(high)}]`
}

export const percent = (value: number): string => (Number.isNaN(value) ? '-' : (100 * value).toFixed(1))

/** What the interval of a change shows. */
export const verdict = ({ low, high }: Pick<Interval, 'low' | 'high'>): string =>
  low > 0 ? 'higher' : high < 0 ? 'lower' : 'no difference shown'

type IntervalsByName = Readonly<Record<string, Interval>>

/** Before, after and the change of every metric, and what to know of their intervals. */
export function comparisonTable(before: IntervalsByName, after: IntervalsByName, records: number): string {
  const rows = Object.entries(before).map(([metric, was]) => {
    const is = after[metric]
    if (!is) return [metric, interval(was), '-', '-', '-']
    const change = is.mean - was.mean
    const signed = Number.isNaN(change) ? '-' : `${change < 0 ? '' : '+'}${rounded(change)}`
    return [metric, interval(was), interval(is), signed, apartFrom(was, is) ?? 'no']
  })
  const table = aligned([['metric', 'before [95 %]', 'after [95 %]', 'change', 'apart'], ...rows])
  const notes = [
    `${counted(records, 'held-out record')}; apart: the two intervals have no value in common`,
    smallSampleNote(records),
  ]
  return `${table}\n\n${notes.filter((note) => note !== null).join('\n')}`
}

/** Both evaluations side by side, or the only one. */
export function evaluations({ before, after, evaluated }: Pick<RunResult, 'before' | 'after' | 'evaluated'>): string[] {
  if (before && after) return ['', comparisonTable(before, after, evaluated)]
  const only = before ?? after
  return only ? ['', evaluationTable({ [before ? 'before' : 'after']: only }, evaluated)] : []
}

/** The text at the end of a run; `more`: lines after the checkpoint's. */
export function runSummary(output: string, result: RunResult, more: readonly string[]): string {
  const { step, stopped, checkpoint } = result
  return [
    `${stopped ? 'stopped' : 'done'} after step ${step}`,
    ...(checkpoint ? [`checkpoint ${checkpoint}`] : []),
    ...more,
    ...evaluations(result),
    ...(stopped ? [`the same command resumes from here; run folder ${output}`] : []),
    '',
  ].join('\n')
}

/** One row per metric, one column per named evaluation of so many records. */
export function evaluationTable(columns: Readonly<Record<string, IntervalsByName>>, records: number): string {
  const names = Object.keys(columns)
  const metrics = Object.keys(columns[names[0]!] ?? {})
  const rows = metrics.map((metric) => [
    metric,
    ...names.map((name) => (columns[name]![metric] ? interval(columns[name]![metric]!) : '-')),
  ])
  const table = aligned([['metric', ...names.map((name) => `${name} [95 %]`)], ...rows])
  const note = smallSampleNote(records)
  return note ? `${table}\n\n${note}` : table
}
