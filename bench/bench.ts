// Every *.bench.ts has `export async function run(device: string): Promise<BenchRow[]>`; without the parameter it takes no --device.
// `npm run bench -- NAME [--json] [--device D]` runs it and prints the rows.

import { aligned } from '../src/cli/table.ts'
import { quantile } from '../src/tracking/index.ts'

/** One measurement. `ratio` is ours / other, of pairs measured together if the bench says so; null without a comparison. */
export type BenchRow = { name: string; ours: number; other: number | null; ratio: number | null; unit: string }

/** A row whose ratio is ours / other. `other` is another program, or a limit if the bench says so. */
export function row(name: string, ours: number, other: number | null | undefined, unit: string): BenchRow {
  return { name, ours, other: other ?? null, ratio: other == null ? null : ours / other, unit }
}

const number = (value: number | null): string => (value === null ? '-' : String(Number(value.toPrecision(4))))

/** Rows as an aligned table. */
export function benchTable(rows: readonly BenchRow[]): string {
  const head = ['name', 'ours', 'other', 'ours/other', 'unit']
  const body = rows.map((row) => [row.name, number(row.ours), number(row.other), number(row.ratio), row.unit])
  return aligned([head, ...body], { right: [1, 2, 3] })
}

/** Median of measurements; robust on a shared machine. */
export function median(values: readonly number[]): number {
  return quantile(Float64Array.from(values).sort(), 0.5)
}
