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

/** Every protocol needs these; a target is as large as its image, so they are computed once. */
const known = new WeakMap<Target, { union: Mask; overlap: number }>()

function knownOf(target: Target) {
  const { parts, height, width } = target
  const facts = known.get(target) ?? {
    union: maskFromDense(parts, height, width),
    overlap: parts.reduce((n, part) => n + (part > 1 ? 1 : 0), 0),
  }
  known.set(target, facts)
  return facts
}

/** Pixels of any part. */
export function unionTarget(target: Target): Mask {
  return knownOf(target).union
}

/** How many pixels at least two parts cover. */
export function overlapOf(target: Target): number {
  return knownOf(target).overlap
}

/** Pixels of exactly one part. */
export function singleTarget(target: Target): Mask {
  if (overlapOf(target) === 0) return unionTarget(target)
  const { parts, height, width } = target
  const bits = parts.map((part) => (part === 1 ? 1 : 0))
  return maskFromDense(bits, height, width)
}

/**
 * The target as Sa2VA's evaluation makes it: the sum of the parts goes through COCO's run-length encoder, which starts a new run
 * at every change of value. From a change 1 -> 2 on, inside and outside are exchanged until the next change.
 */
export function sa2vaTarget(target: Target): Mask {
  if (overlapOf(target) === 0) return unionTarget(target)
  const { parts, height, width } = target
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
