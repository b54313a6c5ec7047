import type { Interval } from '../tracking/index.ts'

/** Columns padded to their widest cell, two spaces apart. */
export function aligned(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)))
  return rows
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
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

export function interval({ mean, low, high }: Interval): string {
  return `${figure(mean)} [${figure(low)}, ${figure(high)}]`
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
