// The metrics to the letter. Each protocol scores a sentence; summary.ts computes the metrics from the scores.
import { type Mask, maskArea, maskFromDense, maskIntersection, maskUnion } from '../mask/index.ts'
import type { MaskBenchmarkName } from './names.ts'
import { sa2vaTarget, singleTarget, type Target, unionTarget } from './target.ts'

export interface SentenceScore {
  intersection: number
  union: number
  /** What the sentence adds to gIoU; null: it is left out of the mean. */
  iou: number | null
  /** Protocols that know "no target": the prediction says there is none. */
  none?: boolean
}

export type Scorer = (prediction: Mask | null) => SentenceScore

export interface Protocol {
  name: string
  /** gIoU divides by N plus this. */
  extra: number
  /** Added to the sum of unions in cIoU. */
  guard: number
  /** Reports N-acc, T-acc and precision. */
  noTarget: boolean
  /** Scores of one target's predictions; null: the model gave no mask. What depends on the target alone is computed once. */
  scorer(target: Target): Scorer
}

interface Areas {
  intersection: number
  union: number
}

function areasWith(target: Mask): (prediction: Mask | null) => Areas {
  const area = maskArea(target)
  return (prediction) => {
    if (!prediction) return { intersection: 0, union: area }
    const intersection = maskArea(maskIntersection(target, prediction))
    return { intersection, union: area + maskArea(prediction) - intersection }
  }
}

/** 1 if target and prediction are both empty; the small number is the reference's. */
function guarded({ intersection, union }: Areas): SentenceScore {
  return { intersection, union, iou: union === 0 ? 1 : intersection / (union + 1e-5) }
}

function referringTo(name: string, targetOf: (target: Target) => Mask): Protocol {
  const scorer = (target: Target) => {
    const areas = areasWith(targetOf(target))
    return (prediction: Mask | null) => guarded(areas(prediction))
  }
  return { name, extra: 0, guard: 1e-10, noTarget: false, scorer }
}

const union = referringTo('union', unionTarget)
const sa2va = referringTo('sa2va', sa2vaTarget)

/** Pixels of two or more parts have no class; ignored pixels are removed from the prediction too. */
const lisa: Protocol = {
  ...union,
  name: 'lisa',
  extra: 1e-5,
  scorer: (target) => {
    const { ignore, height, width } = target
    const areas = areasWith(singleTarget(target))
    const kept = ignore?.map((v) => 1 - v)
    const counted = kept && maskFromDense(kept, height, width)
    return (prediction) => guarded(areas(prediction && counted ? maskIntersection(prediction, counted) : prediction))
  },
}

/** The copy of ReasonSeg that Seg-Zero uses: what LISA ignores is foreground. */
const segzero: Protocol = {
  ...union,
  name: 'segzero',
  guard: 0,
  scorer: (target) => {
    const { ignore, height, width } = target
    const inside = unionTarget(target)
    const areas = areasWith(ignore ? maskUnion(inside, maskFromDense(ignore, height, width)) : inside)
    return (prediction) => {
      const found = areas(prediction)
      return { ...found, iou: found.union === 0 ? null : found.intersection / found.union }
    }
  },
}

/** ReLA's evaluation of gRefCOCO; a prediction of fewer than `least` pixels says "none". */
function rela(name: string, least: number): Protocol {
  return {
    ...{ name, extra: 0, guard: 0, noTarget: true },
    scorer: (target) => {
      const areas = areasWith(unionTarget(target))
      return (prediction) => {
        const none = prediction === null || maskArea(prediction) < least
        if (target.nothing && none) return { intersection: 0, union: 0, iou: 1, none }
        const found = areas(prediction)
        if (target.nothing) return { ...found, iou: 0, none }
        const intersection = none ? 0 : found.intersection
        return { intersection, union: found.union, iou: found.union === 0 ? 0 : intersection / found.union, none }
      }
    },
  }
}

const referring = [union, sa2va, lisa]

/** The first one is the metric to report by default. */
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
