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

interface Known {
  union: Mask
  overlap: number
}

/** Every protocol needs these; a target is as large as its image, so they are computed once. */
const known = new WeakMap<Target, Known>()

function knownOf(target: Target): Known {
  const found = known.get(target)
  if (found) return found
  const { parts, height, width } = target
  let overlap = 0
  for (let q = 0; q < parts.length; q++) if (parts[q]! > 1) overlap++
  const made = { union: maskFromDense(parts, height, width), overlap }
  known.set(target, made)
  return made
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
  const bits = new Uint8Array(parts.length)
  for (let q = 0; q < bits.length; q++) bits[q] = parts[q] === 1 ? 1 : 0
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
