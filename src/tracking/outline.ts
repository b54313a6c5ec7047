import { pushTo } from '../core/index.ts'
import { decodeRle, type Mask, resizeMaskNearest, toDense } from '../mask/index.ts'
import type { MaskRle } from './events.ts'

/** A side longer than this is thinned before tracing: the page shows masks a few hundred pixels wide. */
const longestSide = 256
/** Beyond any camera; keeps a damaged size from taking all memory. */
const maxPixels = 1 << 28

/** The path of a mask's border in a frame of `width` x `height`, inside filled by even-odd. Empty mask: empty path. */
export function maskPath(rle: MaskRle, width: number, height: number): string {
  if (rle.size[0] * rle.size[1] > maxPixels) throw new Error(`a mask of ${rle.size.join(' x ')} pixels`)
  const mask = thinned(decodeRle(rle))
  const [sx, sy] = [width / mask.width, height / mask.height]
  const at = (corner: number) => {
    const y = Math.floor(corner / (mask.width + 1))
    return `${round((corner - y * (mask.width + 1)) * sx)} ${round(y * sy)}`
  }
  return traceBorder(toDense(mask), mask.width, mask.height)
    .map((loop) => `M${loop.map(at).join('L')}Z`)
    .join('')
}

const round = (n: number) => Math.round(n * 100) / 100

function thinned(mask: Mask): Mask {
  const scale = longestSide / Math.max(mask.height, mask.width)
  if (scale >= 1) return mask
  const side = (n: number) => Math.max(1, Math.round(n * scale))
  return resizeMaskNearest(mask, side(mask.height), side(mask.width))
}

/**
 * Outlines as lists of corner numbers (y * (width + 1) + x), with the inside to the right. Only corners that change the direction
 * are listed. Each border edge is in exactly one outline.
 */
export function traceBorder(dense: Uint8Array, width: number, height: number): number[][] {
  const edges = borderEdges(dense, width, height)
  const loops: number[][] = []
  for (const first of edges.keys()) {
    while (edges.has(first)) loops.push(follow(edges, first))
  }
  return loops
}

/** From corner to the corners its edges lead to; two where inside pixels touch by a corner. */
function borderEdges(dense: Uint8Array, width: number, height: number): Map<number, number[]> {
  const inside = (x: number, y: number) => x >= 0 && y >= 0 && x < width && y < height && dense[y * width + x] === 1
  const edges = new Map<number, number[]>()
  const add = (from: number, to: number) => pushTo(edges, from, to)
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (!inside(x, y)) continue
      const corner = y * (width + 1) + x
      const below = corner + width + 1
      if (!inside(x, y - 1)) add(corner, corner + 1)
      if (!inside(x + 1, y)) add(corner + 1, below + 1)
      if (!inside(x, y + 1)) add(below + 1, below)
      if (!inside(x - 1, y)) add(below, corner)
    }
  }
  return edges
}

function follow(edges: Map<number, number[]>, first: number): number[] {
  const loop: number[] = []
  let at = first
  let direction = 0
  do {
    const choices = edges.get(at)!
    const to = choices.pop()!
    if (choices.length === 0) edges.delete(at)
    if (to - at !== direction) loop.push(at)
    direction = to - at
    at = to
  } while (at !== first)
  return loop
}
