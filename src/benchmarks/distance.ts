// The exact Euclidean distance of each inside pixel to the nearest outside one; what lies beyond the picture is outside.

/** Lower envelope of parabolas along one line of `n` values f; squared distances into `out`. */
function lineTransform(f: Float64Array, n: number, out: Float64Array, places: Int32Array, borders: Float64Array): void {
  let last = 0
  places[0] = 0
  borders[0] = Number.NEGATIVE_INFINITY
  borders[1] = Number.POSITIVE_INFINITY
  const crossing = (q: number, p: number) => (f[q]! + q * q - (f[p]! + p * p)) / (2 * q - 2 * p)
  for (let q = 1; q < n; q++) {
    let at = crossing(q, places[last]!)
    while (at <= borders[last]!) at = crossing(q, places[--last]!)
    places[++last] = q
    borders[last] = at
    borders[last + 1] = Number.POSITIVE_INFINITY
  }
  for (let q = 0, k = 0; q < n; q++) {
    while (borders[k + 1]! < q) k++
    out[q] = (q - places[k]!) ** 2 + f[places[k]!]!
  }
}

/** Squared distances, row-major [height, width]; 0 outside. `inside` is non-zero inside. */
export function squaredDistance(inside: Uint8Array, height: number, width: number): Float64Array {
  const [H, W] = [height + 2, width + 2] // a frame of outside pixels
  const far = (H + W) ** 2
  const field = new Float64Array(H * W)
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) if (inside[y * width + x]) field[(y + 1) * W + x + 1] = far
  }
  const most = Math.max(H, W)
  const [line, out] = [new Float64Array(most), new Float64Array(most)]
  const [places, borders] = [new Int32Array(most), new Float64Array(most + 1)]
  for (let x = 0; x < W; x++) {
    for (let y = 0; y < H; y++) line[y] = field[y * W + x]!
    lineTransform(line, H, out, places, borders)
    for (let y = 0; y < H; y++) field[y * W + x] = out[y]!
  }
  for (let y = 0; y < H; y++) {
    line.set(field.subarray(y * W, y * W + W))
    lineTransform(line, W, out, places, borders)
    field.set(out.subarray(0, W), y * W)
  }
  const kept = new Float64Array(height * width)
  for (let y = 0; y < height; y++) kept.set(field.subarray((y + 1) * W + 1, (y + 1) * W + 1 + width), y * width)
  return kept
}
