import { Mismatch } from '../core/index.ts'
import { checkSize, type Mask, maskUnion } from './mask.ts'
import { maskFromRuns } from './rle.ts'

// The polygon's outline is walked on a grid five times finer than the pixels; where the walk steps to another
// fine column at a pixel centre, the run list gets a boundary. Same rounding as pycocotools, hence bit-exact.
const scale = 5
/** No image is that large. */
const maxCoordinate = 1e6
/** Steps of all outlines of a mask together, 4 million pixels of border; more would take seconds, and no region has it. */
const maxSteps = 20_000_000
const maxPolygons = 10_000

type Visit = (u: number, v: number) => void

/** The fine-grid points of one edge, end points included, in walking order. */
function walkEdge(x0: number, y0: number, x1: number, y1: number, visit: Visit): void {
  const dx = Math.abs(x1 - x0)
  const dy = Math.abs(y1 - y0)
  const wide = dx >= dy
  const flip = wide ? x0 > x1 : y0 > y1
  const [xs, ys, xe, ye] = flip ? [x1, y1, x0, y0] : [x0, y0, x1, y1]
  const steps = wide ? dx : dy
  const slope = steps === 0 ? 0 : wide ? (ye - ys) / dx : (xe - xs) / dy
  for (let d = 0; d <= steps; d++) {
    const t = flip ? steps - d : d
    if (wide) visit(t + xs, Math.trunc(ys + slope * t + 0.5))
    else visit(Math.trunc(xs + slope * t + 0.5), t + ys)
  }
}

/** Column-major indices where the outline enters or leaves the region. */
function boundaries(points: readonly number[], height: number, width: number): number[] {
  const fine = points.map((p) => Math.trunc(scale * p + 0.5))
  const n = Math.floor(points.length / 2)
  const found: number[] = []
  let lastU = Number.NaN
  let lastV = 0
  const visit = (u: number, v: number) => {
    if (u !== lastU && !Number.isNaN(lastU)) {
      const x = ((u < lastU ? u : u - 1) + 0.5) / scale - 0.5
      if (Number.isInteger(x) && x >= 0 && x <= width - 1) {
        const y = (Math.min(v, lastV) + 0.5) / scale - 0.5
        found.push(x * height + Math.ceil(Math.min(Math.max(y, 0), height)))
      }
    }
    lastU = u
    lastV = v
  }
  for (let j = 0; j < n; j++) {
    const k = (j + 1) % n
    walkEdge(fine[2 * j]!, fine[2 * j + 1]!, fine[2 * k]!, fine[2 * k + 1]!, visit)
  }
  return found
}

/** Differences of the sorted boundaries; a repeated boundary cancels itself. */
function runsOf(found: readonly number[], total: number): number[] {
  const sorted = Float64Array.from([...found, total]).sort()
  const runs = [sorted[0]!]
  for (let i = 1; i < sorted.length; i++) {
    const run = sorted[i]! - sorted[i - 1]!
    if (run > 0) runs.push(run)
    else if (++i < sorted.length) runs[runs.length - 1]! += sorted[i]! - sorted[i - 1]!
  }
  return runs
}

function checkPolygon(points: readonly number[], index: number, where: string): void {
  const field = `polygon ${index}`
  if (!Array.isArray(points) || points.length < 4)
    throw new Mismatch({ where, field, expected: 'at least 4 numbers x0, y0, x1, y1, ...', got: points })
  const bad = points.find((p) => typeof p !== 'number' || !(Math.abs(p) <= maxCoordinate))
  if (bad !== undefined)
    throw new Mismatch({ where, field, expected: `coordinates of at most ${maxCoordinate}`, got: String(bad) })
}

/** Fine-grid steps of an outline. */
function stepsOf(points: readonly number[]): number {
  let steps = points.length
  const n = Math.floor(points.length / 2)
  for (let j = 0; j < n; j++) {
    const k = (j + 1) % n
    const dx = Math.abs(points[2 * k]! - points[2 * j]!)
    steps += scale * Math.max(dx, Math.abs(points[2 * k + 1]! - points[2 * j + 1]!))
  }
  return steps
}

function checkCost(polygons: readonly (readonly number[])[], where: string): void {
  if (polygons.length > maxPolygons)
    throw new Mismatch({ where, expected: `at most ${maxPolygons} polygons`, got: polygons.length })
  const steps = polygons.reduce((sum, points) => sum + stepsOf(points), 0)
  if (steps <= maxSteps) return
  const expected = `outlines of at most ${maxSteps / scale} pixels together`
  throw new Mismatch({ where, expected, got: Math.round(steps / scale) })
}

/** In pairs, so that many small parts do not each pass over all the others. */
function unionOf(parts: readonly Mask[]): Mask {
  if (parts.length === 1) return parts[0]!
  const middle = parts.length >> 1
  return maskUnion(unionOf(parts.slice(0, middle)), unionOf(parts.slice(middle)))
}

/** pycocotools reads exactly four numbers as a box x, y, width, height. */
function boxCorners([x, y, w, h]: readonly number[]): number[] {
  return [x!, y!, x!, y! + h!, x! + w!, y! + h!, x! + w!, y!]
}

/** The union of polygons (flat x, y lists in pixels), rasterised as pycocotools does. */
export function polygonsToMask(
  polygons: readonly (readonly number[])[],
  height: number,
  width: number,
  where = 'polygons',
): Mask {
  checkSize(height, width, where)
  if (!Array.isArray(polygons) || polygons.length === 0)
    throw new Mismatch({ where, expected: 'at least one polygon', got: polygons })
  for (const [index, points] of polygons.entries()) checkPolygon(points, index, where)
  const outlines = polygons.map((points) => (points.length === 4 ? boxCorners(points) : points))
  checkCost(outlines, where)
  return unionOf(
    outlines.map((outline) => {
      return maskFromRuns(runsOf(boundaries(outline, height, width), height * width), height, width, where)
    }),
  )
}
