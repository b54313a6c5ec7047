// Exact Euclidean distances on a grid of pixels, as squared integers, so that ties are exact (Meijster's two passes).

/** Larger than any squared distance of an image, and exact in a double. */
const far = 2 ** 40

/**
 * Of every pixel inside (non-zero), the squared distance to the nearest pixel that is not; 0 for pixels outside. `edge`: everything
 * beyond the image counts as outside. Without it and without any outside pixel the distance is `far`.
 */
export function squaredDistances(inside: Uint8Array, width: number, height: number, edge: boolean): Float64Array {
  const down = columnDistances(inside, width, height, edge)
  const out = new Float64Array(width * height)
  const row = new Float64Array(width + 2)
  const scratch = { best: new Int32Array(width + 2), from: new Float64Array(width + 3) }
  for (let y = 0; y < height; y++) {
    // one column beyond either side, so that the edge is a column like the others
    row.fill(edge ? 0 : far)
    for (let x = 0; x < width; x++) row[x + 1] = down[y * width + x]!
    lowerEnvelope(row, out, y * width, width, scratch)
  }
  return out
}

/** Squared distance to the nearest outside pixel of the same column; row by row, as pixels are stored. */
function columnDistances(inside: Uint8Array, width: number, height: number, edge: boolean): Float64Array {
  const beyond = edge ? 0 : Number.POSITIVE_INFINITY
  const out = new Float64Array(width * height)
  for (let i = 0; i < out.length; i++) if (inside[i]) out[i] = (i < width ? beyond : out[i - width]!) + 1
  for (let i = out.length - 1, below = beyond; i >= 0; i--) {
    if (i + width < out.length) below = out[i + width]!
    if (below + 1 < out[i]!) out[i] = below + 1
  }
  return out.map((d) => (d === Number.POSITIVE_INFINITY ? far : d * d))
}

/** min over u of (x - u)^2 + row[u], for the columns 1 .. width of the padded row. */
function lowerEnvelope(
  row: Float64Array,
  out: Float64Array,
  at: number,
  width: number,
  { best, from }: { best: Int32Array; from: Float64Array },
): void {
  const columns = row.length
  let k = 0
  best[0] = 0
  from[0] = Number.NEGATIVE_INFINITY
  const meets = (u: number, v: number) => (row[v]! + v * v - (row[u]! + u * u)) / (2 * (v - u))
  for (let v = 1; v < columns; v++) {
    while (k > 0 && meets(best[k]!, v) <= from[k]!) k--
    const start = meets(best[k]!, v)
    if (k === 0 && start === Number.NEGATIVE_INFINITY) {
      best[0] = v
      continue
    }
    k++
    best[k] = v
    from[k] = start
  }
  let i = 0
  for (let x = 1; x <= width; x++) {
    while (i < k && from[i + 1]! < x) i++
    const u = best[i]!
    out[at + x - 1] = Math.min(far, (x - u) * (x - u) + row[u]!)
  }
}
