// What an answer that places points is worth: overlap, gain, placement, form, penalties. Pure over parsed answers and masks.
import { type Mask, maskArea, maskHas, maskIntersection, maskIou } from '../../mask/index.ts'
import type { PointMode, PointRewardConfig } from './answer-config.ts'
import { type FrameSize, type Point, pixelAt } from './frame.ts'
import type { PointAnswer } from './parse.ts'

/** One answer and the mask after it. */
export interface PointTurn {
  answer: PointAnswer
  /** Null if nothing was decoded: no point was kept, so the mask stays. */
  mask: Mask | null
}

export interface PointSample {
  /** The object G; empty: the record has no target. */
  target: Mask
  /** Before the answer; null: joint's `none`, nothing is drawn. */
  mask0: Mask | null
  /** Size of the model's image, the frame of the points. */
  frame: FrameSize
  mode: PointMode
  turns: readonly PointTurn[]
  /** Whether more than one turn is allowed: only then turns cost. */
  manyTurns: boolean
  /** Best overlap of error-centre clicks on the record; needed by the relative gain. */
  iouOracle?: number | null
}

/** Values of earlier steps that the terms are ranked in; empty lists and absence mean the raw value. */
export interface RankWindows {
  iou: readonly number[]
  gain: readonly number[]
  placement: readonly number[]
}

export interface PointParts {
  valid: boolean
  noTarget: boolean
  /** Records without a target: nothing was drawn, or the answer says that there is nothing. */
  saysNothing: boolean
  format: number
  kept: number
  raw: number
  oob: number
  dup: number
  extra: boolean
  iou0: number
  iou1: number
  /** Points in the right place and in a wrong one. */
  right: number
  wrong: number
  /** Of the first mask: pixels that are wrong, and those that are too much. */
  errorArea: number
  confusedArea: number
  gain: number
  placement: number
  overshoot: number
  turns: number
  /** As they enter the reward. */
  ranked: { iou: number; gain: number; placement: number }
  reward: number
}

export function scorePoints(sample: PointSample, weights: PointRewardConfig, windows?: RankWindows): PointParts {
  const parts = { ...emptyParts(), noTarget: maskArea(sample.target) === 0, turns: sample.turns.length }
  if (!sample.turns.every((t) => t.answer.valid)) return { ...parts, reward: weights.invalid }
  Object.assign(parts, { valid: true }, countAnswers(sample))
  const trace = traceMasks(sample)
  Object.assign(parts, { iou0: trace.ious[0], iou1: trace.ious.at(-1) })
  const penalties = penaltyOf(parts, weights)
  if (parts.noTarget) {
    const first = sample.turns[0]!.answer
    parts.saysNothing = maskArea(trace.last) === 0 || first.stop || first.none
    return { ...parts, reward: weights.none * (parts.saysNothing ? 1 : 0) + weights.format * parts.format - penalties }
  }
  Object.assign(parts, placementOf(sample, trace, parts, weights))
  parts.gain = gainOf(parts, sample, weights)
  if (sample.manyTurns) parts.overshoot = Math.max(...trace.ious) - parts.iou1
  parts.ranked = {
    iou: rankIn(windows?.iou, parts.iou1),
    gain: rankIn(windows?.gain, parts.gain),
    placement: rankIn(windows?.placement, parts.placement),
  }
  const { ranked } = parts
  const turns = sample.manyTurns ? weights.over * parts.overshoot + weights.turn * parts.turns : 0
  const earned = weights.iou * ranked.iou + weights.gain * ranked.gain + weights.placement * ranked.placement
  return { ...parts, reward: earned + weights.format * parts.format - penalties - turns }
}

function emptyParts(): PointParts {
  const counts = { kept: 0, raw: 0, oob: 0, dup: 0, extra: false, right: 0, wrong: 0, errorArea: 0, confusedArea: 0 }
  const values = { format: 0, iou0: 0, iou1: 0, gain: 0, placement: 0, overshoot: 0, turns: 0, reward: 0 }
  return {
    valid: false,
    noTarget: false,
    saysNothing: false,
    ...counts,
    ...values,
    ranked: { iou: 0, gain: 0, placement: 0 },
  }
}

function countAnswers({ turns }: PointSample) {
  const total = (key: 'kept' | 'raw' | 'oob' | 'dup') => turns.reduce((n, t) => n + t.answer.counts[key], 0)
  const format = turns.reduce((n, t) => n + t.answer.format, 0) / turns.length
  const extra = turns.some((t) => t.answer.counts.extra > 0)
  return { kept: total('kept'), raw: total('raw'), oob: total('oob'), dup: total('dup'), extra, format }
}

interface Trace {
  /** The mask each turn saw. */
  seen: Mask[]
  last: Mask
  /** Overlap before the first turn and after each. */
  ious: number[]
}

function traceMasks({ target, mask0, turns }: PointSample): Trace {
  const { height, width } = target
  let last: Mask = mask0 ?? { height, width, counts: Uint32Array.of(height * width) }
  const ious = [maskIou(target, last)]
  const seen: Mask[] = []
  for (const turn of turns) {
    seen.push(last)
    last = turn.mask ?? last
    ious.push(maskIou(target, last))
  }
  return { seen, last, ious }
}

function penaltyOf(parts: PointParts, weights: PointRewardConfig): number {
  const share = (n: number) => (parts.raw === 0 ? 0 : n / parts.raw)
  return weights.dup * share(parts.dup) + weights.oob * share(parts.oob) + (parts.extra ? weights.extra : 0)
}

/** Which points lie where the mask they saw is wrong in their way, and which do harm. */
function placementOf(sample: PointSample, trace: Trace, counts: PointParts, weights: PointRewardConfig) {
  const { target } = sample
  let [right, wrong] = [0, 0]
  sample.turns.forEach(({ answer }, t) => {
    const seen = trace.seen[t]!
    for (const at of pixels(answer.negatives, sample)) {
      if (maskHas(target, at)) wrong++
      else if (maskHas(seen, at)) right++
    }
    // joint's positive points make the first mask; they correct nothing
    for (const at of sample.mode === 'joint' ? [] : pixels(answer.positives, sample)) {
      if (!maskHas(target, at)) wrong++
      else if (!maskHas(seen, at)) right++
    }
  })
  const areas = errorAreas(target, trace.seen[0]!, sample.mode)
  const { answer } = sample.turns[0]!
  const abstains = answer.counts.raw === 0 && !answer.none && areas.errorArea < weights.tau * maskArea(sample.target)
  const none = abstains ? weights.abstainBonus : 0
  const placement = counts.kept > 0 ? (weights.beta * right - weights.alpha * wrong) / counts.kept : none
  return { right, wrong, ...areas, placement }
}

function pixels(points: readonly Point[], { frame, target }: PointSample): Point[] {
  return points.map((p) => pixelAt(p, frame, target))
}

/** Pixels where the first mask is wrong, and those of them that are too much. */
export function errorAreas(target: Mask, first: Mask, mode: PointMode) {
  const both = maskArea(maskIntersection(target, first))
  const confusedArea = maskArea(first) - both
  const leftOut = maskArea(target) - both
  return { confusedArea, errorArea: mode === 'second-look' ? confusedArea + leftOut : confusedArea }
}

function gainOf({ iou0, iou1 }: PointParts, { iouOracle }: PointSample, weights: PointRewardConfig): number {
  const gain = iou1 - iou0
  if (weights.gainKind === 'absolute') return gain
  return Math.min(1, Math.max(-1, gain / (Math.max(0, (iouOracle ?? iou0) - iou0) + weights.gainEps)))
}

function rankIn(window: readonly number[] | undefined, value: number): number {
  if (!window || window.length === 0) return value
  return window.filter((v) => v <= value).length / window.length
}

/** Rewards of a group as its advantages are made of them: a spread below 1e-6 is rounding, and teaches nothing. */
export function settledRewards(rewards: readonly number[]): number[] {
  if (rewards.length < 2) return [...rewards]
  const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length
  const variance = rewards.reduce((a, b) => a + (b - mean) ** 2, 0) / (rewards.length - 1)
  return Math.sqrt(variance) < 1e-6 ? rewards.map(() => mean) : [...rewards]
}
