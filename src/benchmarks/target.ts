// What a record asks for, pixel by pixel: how many polygons cover it, and which pixels do not count.
import { type Mask, maskFromDense, maskFromRuns } from '../mask/index.ts'

export interface Target {
  readonly height: number
  readonly width: number
  /** Row-major: parts that cover the pixel, summed over the parts of an annotation, OR-ed bit by bit over annotations. */
  readonly parts: Uint8Array
  /** Row-major 1 where neither I nor U counts; null: every pixel counts. */
  readonly ignore: Uint8Array | null
  /** The record says that nothing in the image is meant (gRefCOCO). An empty annotation is not that. */
  readonly nothing: boolean
}

export function emptyTarget(height: number, width: number, nothing: boolean): Target {
  return { height, width, parts: new Uint8Array(height * width), ignore: null, nothing }
}

/** Pixels of any part. */
export function unionTarget({ parts, height, width }: Target): Mask {
  return maskFromDense(parts, height, width)
}

/** Pixels that at least two parts cover. */
export function overlapOf({ parts }: Target): number {
  return parts.reduce((n, value) => n + (value > 1 ? 1 : 0), 0)
}

/**
 * The target as Sa2VA's evaluation makes it: the sum of the parts goes through COCO's run-length encoder, which starts a new run
 * at every change of value. From a change 1 -> 2 on, inside and outside are exchanged until the next change.
 */
export function sa2vaTarget({ parts, height, width }: Target): Mask {
  const counts: number[] = []
  let value = 0
  let length = 0
  for (let x = 0; x < width; x++) {
    for (let y = 0; y < height; y++) {
      const here = parts[y * width + x]!
      if (here !== value) {
        counts.push(length)
        length = 0
        value = here
      }
      length++
    }
  }
  counts.push(length)
  return maskFromRuns(counts, height, width, 'Sa2VA target')
}
