import { type Mask, maskFromDense, maskIou, toDense } from '../mask/index.ts'
import type { IouConfig } from './config.ts'

/** Where a target pixel's centre falls in the source (align_corners false): left index, right index, share of the right. */
function taps(from: number, to: number): { low: Int32Array; high: Int32Array; part: Float32Array } {
  const low = new Int32Array(to)
  const high = new Int32Array(to)
  const part = new Float32Array(to)
  for (let i = 0; i < to; i++) {
    const at = Math.max(0, (i + 0.5) * (from / to) - 0.5)
    low[i] = Math.min(from - 1, Math.floor(at))
    high[i] = Math.min(from - 1, low[i]! + 1)
    part[i] = at - low[i]!
  }
  return { low, high, part }
}

/** Bilinear resize of 0/1 to a square, inside above 0.5: the prototype's way of comparing masks. */
export function resizeMaskBilinear(mask: Mask, size: number): Mask {
  if (mask.height === size && mask.width === size) return mask
  const dense = toDense(mask)
  const rows = taps(mask.height, size)
  const columns = taps(mask.width, size)
  const out = new Uint8Array(size * size)
  for (let y = 0; y < size; y++) {
    const top = rows.low[y]! * mask.width
    const bottom = rows.high[y]! * mask.width
    const v = rows.part[y]!
    for (let x = 0; x < size; x++) {
      const l = columns.low[x]!
      const r = columns.high[x]!
      const h = columns.part[x]!
      const above = dense[top + l]! * (1 - h) + dense[top + r]! * h
      const below = dense[bottom + l]! * (1 - h) + dense[bottom + r]! * h
      if (above * (1 - v) + below * v > 0.5) out[y * size + x] = 1
    }
  }
  return maskFromDense(out, size, size)
}

/** Intersection over union of the record's mask and a produced one. */
export function iouOf(given: Mask, produced: Mask, config: IouConfig): number {
  const { resolution, empty } = config
  if (resolution === 'native') return maskIou(given, produced, empty)
  return maskIou(resizeMaskBilinear(given, resolution), resizeMaskBilinear(produced, resolution), empty)
}
