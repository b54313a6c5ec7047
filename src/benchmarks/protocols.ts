// The metrics to the letter. Each protocol scores a sentence; how figures come from the scores is in summary.ts.
import { type Mask, maskArea, maskFromDense, maskIntersection } from '../mask/index.ts'
import type { MaskBenchmarkName } from './names.ts'
import { sa2vaTarget, type Target, unionTarget } from './target.ts'

export interface SentenceScore {
  intersection: number
  union: number
  /** What the sentence adds to gIoU; null: it is left out of the mean. */
  iou: number | null
  /** Protocols that know "no target": the prediction says there is none. */
  none?: boolean
}

export interface Protocol {
  name: string
  /** gIoU divides by N plus this. */
  extra: number
  /** Added to the sum of unions in cIoU. */
  guard: number
  /** Reports N-acc, T-acc and precision. */
  noTarget: boolean
  /** `prediction` null: the model gave no mask. */
  score(target: Target, prediction: Mask | null): SentenceScore
}

interface Areas {
  intersection: number
  union: number
}

function areas(target: Mask, prediction: Mask | null): Areas {
  const area = maskArea(target)
  if (!prediction) return { intersection: 0, union: area }
  const intersection = maskArea(maskIntersection(target, prediction))
  return { intersection, union: area + maskArea(prediction) - intersection }
}

/** 1 where target and prediction are both empty; the small number is the reference's. */
function guarded({ intersection, union }: Areas): SentenceScore {
  return { intersection, union, iou: union === 0 ? 1 : intersection / (union + 1e-5) }
}

const union: Protocol = {
  name: 'union',
  extra: 0,
  guard: 1e-10,
  noTarget: false,
  score: (target, prediction) => guarded(areas(unionTarget(target), prediction)),
}

const sa2va: Protocol = {
  ...union,
  name: 'sa2va',
  score: (target, prediction) => guarded(areas(sa2vaTarget(target), prediction)),
}

/** Pixels of two parts or more are no class; ignored ones leave the prediction too. */
const lisa: Protocol = {
  ...union,
  name: 'lisa',
  extra: 1e-5,
  score({ parts, ignore, height, width }, prediction) {
    const once = maskFromDense(
      parts.map((n) => (n === 1 ? 1 : 0)),
      height,
      width,
    )
    return guarded(areas(once, prediction && ignore ? without(prediction, ignore) : prediction))
  },
}

function without(mask: Mask, ignore: Uint8Array): Mask {
  const kept = maskFromDense(
    ignore.map((v) => 1 - v),
    mask.height,
    mask.width,
  )
  return maskIntersection(mask, kept)
}

/** The copy of ReasonSeg that Seg-Zero uses: what LISA ignores is foreground. */
const segzero: Protocol = {
  name: 'segzero',
  extra: 0,
  guard: 0,
  noTarget: false,
  score({ parts, ignore, height, width }, prediction) {
    const all = maskFromDense(
      parts.map((n, q) => n | (ignore?.[q] ?? 0)),
      height,
      width,
    )
    const found = areas(all, prediction)
    return { ...found, iou: found.union === 0 ? null : found.intersection / found.union }
  },
}

/** ReLA's evaluation of gRefCOCO; a prediction of fewer than `least` pixels says "none". */
function rela(name: string, least: number): Protocol {
  return {
    name,
    extra: 0,
    guard: 0,
    noTarget: true,
    score(target, prediction) {
      const none = prediction === null || maskArea(prediction) < least
      if (target.nothing && none) return { intersection: 0, union: 0, iou: 1, none }
      const found = areas(unionTarget(target), prediction)
      if (target.nothing) return { ...found, iou: 0, none }
      const intersection = none ? 0 : found.intersection
      return { intersection, union: found.union, iou: found.union === 0 ? 0 : intersection / found.union, none }
    },
  }
}

const referring = [union, sa2va, lisa]

/** The first one is the figure to report unless another is asked for. */
const protocols: Readonly<Record<MaskBenchmarkName, readonly Protocol[]>> = {
  refcoco: referring,
  'refcoco+': referring,
  refcocog: referring,
  grefcoco: [rela('rela', 0), rela('rela-50', 50), union, sa2va],
  reasonseg: [lisa, segzero],
}

export function protocolsOf(name: MaskBenchmarkName): readonly Protocol[] {
  return protocols[name]
}
