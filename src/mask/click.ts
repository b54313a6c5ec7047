// Clicks that correct a mask: the middle of its largest error, as SAM2's own evaluation simulates a user.
import { squaredDistances } from './distance.ts'
import { type Mask, maskArea, maskBox, maskFromDense, toDense } from './mask.ts'

/** A pixel of a region and its squared distance to the nearest pixel outside; everything beyond the image is outside. */
export interface Deepest {
  /** Column, row. */
  point: readonly [number, number]
  d2: number
}

export interface Click extends Deepest {
  /** 1: belongs to the object, 0: does not. */
  label: 0 | 1
}

/** The pixel farthest from everything outside; the first in row-major order on ties; null for an empty region. */
export function deepestPixel(inside: Uint8Array, width: number, height: number): Deepest | null {
  const [left, top, w, h] = maskBox(maskFromDense(inside, height, width))
  const boxed = new Uint8Array(w * h) // all else is outside, as what is beyond an image
  for (let y = 0; y < h; y++) boxed.set(inside.subarray((top + y) * width + left).subarray(0, w), y * w)
  const distances = squaredDistances(boxed, w, h, true)
  let [at, d2] = [-1, 0]
  for (let i = 0; i < distances.length; i++) if (distances[i]! > d2) [at, d2] = [i, distances[i]!]
  return at < 0 ? null : { point: [left + (at % w), top + Math.floor(at / w)], d2 }
}

/**
 * The centre of the largest error of a mask (null: nothing is drawn yet): the deepest false negative or false positive pixel, the
 * latter on ties. Null if there is no error or no object. `negative`: only false positives count.
 */
export function errorCentre(target: Mask, drawn: Mask | null, kinds: 'both' | 'negative' = 'both'): Click | null {
  if (maskArea(target) === 0) return null
  const { width, height } = target
  const wanted = toDense(target)
  const have = drawn ? toDense(drawn) : new Uint8Array(wanted.length)
  const deepestIn = (a: Uint8Array, b: Uint8Array) =>
    deepestPixel(
      a.map((on, i) => (on && !b[i] ? 1 : 0)),
      width,
      height,
    )
  const tooMuch = deepestIn(have, wanted)
  const missing = kinds === 'both' ? deepestIn(wanted, have) : null
  if (missing && missing.d2 > (tooMuch?.d2 ?? 0)) return { ...missing, label: 1 }
  return tooMuch && { ...tooMuch, label: 0 }
}
