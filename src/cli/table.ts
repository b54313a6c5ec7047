import type { Interval } from '../tracking/index.ts'

export interface TableLayout {
  /** Columns whose cells stand at the right. */
  right?: readonly number[]
  /** Width of a column at most; a longer cell stands out. */
  widest?: number
  indent?: string
}

/** Columns padded to their widest cell, two spaces apart. */
export function aligned(rows: readonly (readonly string[])[], layout: TableLayout = {}): string {
  const { right = [], widest = Number.POSITIVE_INFINITY, indent = '' } = layout
  const widths = (rows[0] ?? []).map((_, i) => Math.min(widest, Math.max(...rows.map((row) => row[i]?.length ?? 0))))
  const pad = (cell: string, i: number) =>
    right.includes(i) ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)
  return rows.map((row) => `${indent}${row.map(pad).join('  ')}`.trimEnd()).join('\n')
}

/** At most `width` characters, on one line. */
export function clip(text: string, width: number): string {
  const flat = text.replace(/\s+/g, ' ').trim()
  return flat.length <= width ? flat : `${flat.slice(0, width - 3)}...`
}

export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined) return '-'
  return Number.isNaN(value) ? 'nan' : value.toFixed(4)
}

/** As many digits as pages have; two intervals, a change and their names fit a line of 80 columns. */
export const rounded = (value: number): string => value.toFixed(3)

/** No record had what the figure is about where its mean is no number. */
export function interval({ mean, low, high }: Interval): string {
  if (Number.isNaN(mean)) return '-'
  return `${rounded(mean)} [${rounded(low)}, ${rounded(high)}]`
}

/** One row per metric, one column per named evaluation. */
export function evaluationTable(columns: Readonly<Record<string, Readonly<Record<string, Interval>>>>): string {
  const names = Object.keys(columns)
  const metrics = Object.keys(columns[names[0]!] ?? {})
  const rows = metrics.map((metric) => [
    metric,
    ...names.map((name) => (columns[name]![metric] ? interval(columns[name]![metric]!) : '-')),
  ])
  return aligned([['metric', ...names.map((name) => `${name} [95 %]`)], ...rows])
}
