// Filled polygons as OpenCV 4.6 draws them (polylines, then fillPoly, whole coordinates, 8-connected): ReasonSeg's masks are
// drawn this way, and COCO's rasteriser gives other border pixels.
// Coordinates of the scan lines are fixed point with 16 fractional bits, stored in doubles (exact below 2^53).

type Point = readonly [x: number, y: number]

const one = 65536

/** Bit set: 1 left, 2 right, 4 above, 8 below the picture. */
function side(x: number, y: number, right: number, bottom: number): number {
  return (x < 0 ? 1 : 0) | (x > right ? 2 : 0) | (y < 0 ? 4 : 0) | (y > bottom ? 8 : 0)
}

/** Moves one end of a segment to the row (or, with x and y exchanged, the column) at `edge`; rounds towards zero. */
function moveTo(edge: number, [x, y]: Point, [fromX, fromY]: Point, [toX, toY]: Point): Point {
  return [x + Math.trunc(((edge - y) * (toX - fromX)) / (toY - fromY)), edge]
}

const swap = ([x, y]: Point): Point => [y, x]

/** The part of a segment inside the picture; null when nothing is. The order of the four cuts decides the rounding. */
function clipSegment(a: Point, b: Point, width: number, height: number): [Point, Point] | null {
  const [right, bottom] = [width - 1, height - 1]
  const sideOf = (p: Point) => side(...p, right, bottom)
  if ((sideOf(a) & sideOf(b)) !== 0) return null
  if (sideOf(a) & 12) a = moveTo(sideOf(a) & 4 ? 0 : bottom, a, a, b)
  if (sideOf(b) & 12) b = moveTo(sideOf(b) & 4 ? 0 : bottom, b, a, b)
  if ((sideOf(a) & sideOf(b)) !== 0) return null
  if (sideOf(a)) a = swap(moveTo(sideOf(a) & 1 ? 0 : right, swap(a), swap(a), swap(b)))
  if (sideOf(b)) b = swap(moveTo(sideOf(b) & 1 ? 0 : right, swap(b), swap(a), swap(b)))
  return [a, b]
}

/** Bresenham's line from its left end; `out` is row-major [height, width]. */
function drawLine(out: Uint8Array, width: number, height: number, a: Point, b: Point, value: number): void {
  const ends = clipSegment(a, b, width, height)
  if (!ends) return
  const [[x1, y1], [x2, y2]] = ends[0][0] <= ends[1][0] ? ends : [ends[1], ends[0]]
  const [dx, dy] = [x2 - x1, Math.abs(y2 - y1)]
  const down = (y2 < y1 ? -1 : 1) * width
  const steep = dy > dx
  const [long, short] = steep ? [dy, dx] : [dx, dy]
  const [along, across] = steep ? [down, 1] : [1, down]
  let error = long - 2 * short
  let at = y1 * width + x1
  for (let i = 0; i <= long; i++) {
    out[at] = value
    const turn = error < 0
    error += (turn ? 2 * long : 0) - 2 * short
    at += along + (turn ? across : 0)
  }
}

interface Edge {
  /** Rows [top, bottom). */
  top: number
  bottom: number
  /** Fixed-point x in row `top`, and its change with each row. */
  x: number
  step: number
}

function edgeOf(a: Point, b: Point): Edge | null {
  if (a[1] === b[1]) return null
  const step = Math.trunc(((b[0] - a[0]) * one) / (b[1] - a[1]))
  const first = a[1] < b[1] ? a : b
  return { top: first[1], bottom: Math.max(a[1], b[1]), x: first[0] * one, step }
}

function fillRows(out: Uint8Array, width: number, height: number, edges: readonly Edge[], value: number): void {
  const bottom = Math.min(height, Math.max(...edges.map((e) => e.bottom)))
  for (let y = Math.max(0, Math.min(...edges.map((e) => e.top))); y < bottom; y++) {
    const crossings = edges
      .filter((e) => e.top <= y && y < e.bottom)
      .map((e) => e.x + e.step * (y - e.top))
      .sort((p, q) => p - q)
    for (let i = 0; i + 1 < crossings.length; i += 2) {
      const from = Math.max(0, Math.ceil(crossings[i]! / one))
      const to = Math.min(width - 1, Math.floor(crossings[i + 1]! / one))
      if (from <= to) out.fill(value, y * width + from, y * width + to + 1)
    }
  }
}

/** Draws border and inside (even-odd) with `value` into row-major `out`; points are cut to whole numbers towards zero. */
export function fillPolygon(
  out: Uint8Array,
  width: number,
  height: number,
  points: readonly (readonly number[])[],
  value: number,
): void {
  const whole = points.map(([x, y]): Point => [Math.trunc(x!), Math.trunc(y!)])
  const edges: Edge[] = []
  whole.forEach((b, i) => {
    const a = whole[(i + whole.length - 1) % whole.length]!
    drawLine(out, width, height, a, b, value)
    const edge = edgeOf(a, b)
    if (edge) edges.push(edge)
  })
  if (edges.length >= 2) fillRows(out, width, height, edges, value)
}
