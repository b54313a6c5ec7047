/** One-to-one pairs [row, column] with the largest sum, as many as the shorter side has (the Hungarian method). n rows, m columns. */
export function assign(values: readonly (readonly number[])[]): [number, number][] {
  const [n, m] = [values.length, values[0]?.length ?? 0]
  if (n > m) return assign(Array.from({ length: m }, (_, j) => values.map((row) => row[j]!))).map(([i, j]) => [j, i])
  const [rows, columns] = [new Float64Array(n + 1), new Float64Array(m + 1)] // potentials
  const rowOf = new Int32Array(m + 1) // of each column, counted from 1; column 0 holds the row that is being placed
  for (let row = 1; row <= n; row++) {
    rowOf[0] = row
    place(values, rowOf, rows, columns)
  }
  return [...rowOf].flatMap((row, j): [number, number][] => (j > 0 && row > 0 ? [[row - 1, j - 1]] : []))
}

/** The cheapest path of exchanges that frees a column for the row in column 0. */
function place(
  values: readonly (readonly number[])[],
  rowOf: Int32Array,
  rows: Float64Array,
  columns: Float64Array,
): void {
  const m = rowOf.length - 1
  const least = new Float64Array(m + 1).fill(Number.POSITIVE_INFINITY)
  const before = new Int32Array(m + 1)
  const used = new Uint8Array(m + 1)
  let at = 0
  do {
    used[at] = 1
    const row = rowOf[at]!
    let [delta, next] = [Number.POSITIVE_INFINITY, 0]
    for (let j = 1; j <= m; j++) {
      if (used[j]) continue
      const cost = -values[row - 1]![j - 1]! - rows[row]! - columns[j]!
      if (cost < least[j]!) {
        least[j] = cost
        before[j] = at
      }
      if (least[j]! < delta) [delta, next] = [least[j]!, j]
    }
    for (let j = 0; j <= m; j++) {
      if (used[j]) {
        rows[rowOf[j]!]! += delta
        columns[j]! -= delta
      } else least[j]! -= delta
    }
    at = next
  } while (rowOf[at] !== 0)
  for (; at !== 0; at = before[at]!) rowOf[at] = rowOf[before[at]!]!
}
