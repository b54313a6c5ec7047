// What the policy's points are worth next to none, random ones, heuristic ones, error-centre clicks and the best click of a search: same
// records, same positive prompt, same SAM2. In joint the prompt is the policy's own.
import { stream } from '../../core/index.ts'
import { type Mask, maskArea, maskIntersection, maskIou } from '../../mask/index.ts'
import type { Shown } from '../../rl/index.ts'
import type { ClickPrompt } from '../../sam/index.ts'
import { heuristicNegatives, randomNegatives } from './click-geometry.ts'
import { rewardOfPoints } from './config.ts'
import type { Point } from './frame.ts'
import { drawOptions, type PointItem, type PointSetup, withClicks } from './item.ts'
import { errorCentreCurve, searchBestClick, toSam } from './known-clicks.ts'
import { askLooks, replyToLooks } from './multi-turn.ts'
import { givenPrompt } from './prompts.ts'
import { unitOf } from './records.ts'
import { type PointReply, sampleOf, scoreReplies } from './reply.ts'
import type { PointParts } from './reward.ts'
import { shownAnswer } from './shown.ts'

/** The metrics of one record; overlaps with the object. */
export interface ComparedRecord
  extends Pick<PointParts, 'saysNothing' | 'valid' | 'format' | 'kept' | 'wrong' | 'right'> {
  id: string
  shown?: readonly Shown[]
  /** Of its pixels, or the object it was composed of: records of one are not independent. */
  image: string
  /** Whether the record has an object; without one there is no overlap, only whether the answer says or draws nothing. */
  target: boolean
  switched: boolean
  none: number
  policy: number
  noneAreas: Areas
  policyAreas: Areas
  /** Mean over several draws of maxPoints random points, and of as many as the policy kept; heuristic points alike. */
  random: number
  randomSame: number
  heuristic: number
  heuristicSame: number
  /** Error-centre clicks: after 1, 2, .. of them, and the same with the previous mask as prompt. */
  errorCentre: number[]
  errorCentreLogits: number[]
  /** The best that one click reaches, found by a search. */
  bestClick: number
}

/** Pixels that a mask and the object share, and pixels of both together. */
export interface Areas {
  both: number
  either: number
}

/** What no policy takes part in: computed once for a record, however often the policy is evaluated. */
type OtherClicks = Pick<
  ComparedRecord,
  'image' | 'random' | 'heuristic' | 'errorCentre' | 'errorCentreLogits' | 'bestClick'
>
export type KnownClicks = Map<string, OtherClicks>

/** Greedy answers of open items, and the clicks they are compared with. */
export function compareItems(
  setup: PointSetup,
  items: readonly PointItem[],
  seed: number,
  known: KnownClicks = new Map(),
): ComparedRecord[] {
  const texts = askLooks(setup, items)
  return items.map((item, i) => {
    const reply = replyToLooks(setup, item, texts[i]!)[0]!
    const isJoint = setup.config.mode === 'joint'
    const others = (isJoint ? undefined : known.get(item.record.id)) ?? otherClicks(setup, item, reply, seed)
    if (!isJoint) known.set(item.record.id, others)
    return {
      ...compareOne(setup, item, reply, others, seed),
      shown: shownReply(setup, item, texts[i]![0]!.text, reply),
    }
  })
}

function shownReply(setup: PointSetup, item: PointItem, text: string, reply: PointReply): Shown[] {
  const { config } = setup
  const { query, mask: target } = item.record
  const positive = config.mode === 'joint' ? [] : givenPrompt(config, item.positive).points
  const points = sampleOf(setup, item, reply)
  return shownAnswer({ query, target, text, positive }, { points, reply }, rewardOfPoints(config))
}

function otherClicks(setup: PointSetup, item: PointItem, { prompt }: PointReply, seed: number): OtherClicks {
  const most = setup.config.maxPoints
  return {
    image: unitOf(item.record),
    ...chanceOverlaps(setup, item, prompt, most, seed),
    errorCentre: errorCentreCurve(setup, item, prompt, false),
    errorCentreLogits: errorCentreCurve(setup, item, prompt, true),
    bestClick: searchBestClick(setup, item, prompt),
  }
}

/** Draws that the overlap of random points is averaged over: one alone depends much on the seed. */
const randomDraws = 8

/** Overlaps of random and of heuristic points. */
function chanceOverlaps(setup: PointSetup, item: PointItem, start: ClickPrompt | null, count: number, seed: number) {
  const { id, mask } = item.record
  const draws = Array.from({ length: randomDraws }, (_, n) =>
    randomNegatives(mask, count, stream(seed, 'random negatives', id, ...(n > 0 ? [n] : []))),
  )
  const [heuristic, ...random] = clickedOverlaps(setup, item, start, [heuristicNegatives(mask, count), ...draws])
  const equal = random.every((overlap) => overlap === random[0]) // no points: their mean is exactly that
  return { heuristic: heuristic!, random: equal ? random[0]! : random.reduce((a, b) => a + b, 0) / randomDraws }
}

function compareOne(
  setup: PointSetup,
  item: PointItem,
  reply: PointReply,
  others: OtherClicks,
  seed: number,
): ComparedRecord {
  const [parts] = scoreReplies(setup, item, [reply])
  const { mask: target } = item.record
  const kept = reply.answer.negatives.length
  const same = kept === setup.config.maxPoints ? others : chanceOverlaps(setup, item, reply.prompt, kept, seed)
  const last = parts!.valid ? (reply.mask1 ?? reply.mask0) : reply.mask0
  return {
    id: item.record.id,
    target: !parts!.noTarget,
    saysNothing: parts!.saysNothing,
    valid: parts!.valid,
    format: parts!.format,
    kept,
    wrong: parts!.wrong,
    right: parts!.right,
    switched: reply.switched,
    none: overlapOf(target, reply.mask0),
    policy: overlapOf(target, last),
    noneAreas: areasOf(target, reply.mask0),
    policyAreas: areasOf(target, last),
    ...others,
    ...{ randomSame: same.random, heuristicSame: same.heuristic },
  }
}

const overlapOf = (target: Mask, mask: Mask | null) => (mask ? maskIou(target, mask) : 0)

export function areasOf(target: Mask, mask: Mask | null): Areas {
  const own = maskArea(target)
  if (!mask) return { both: 0, either: own }
  const both = maskArea(maskIntersection(target, mask))
  return { both, either: own + maskArea(mask) - both }
}

/** Overlap after negative points of the original image were added to a positive prompt; 0 if there is none. */
export function clickedOverlaps(
  setup: PointSetup,
  item: PointItem,
  start: ClickPrompt | null,
  lists: readonly (readonly Point[])[],
): number[] {
  if (!start) return lists.map(() => 0)
  const options = drawOptions(setup, item.record)
  const first = item.first ?? setup.sam.draw(item.sam, [start], options)[0]!
  const filled = lists.flatMap((list, i) => (list.length > 0 ? [i] : []))
  const prompts = filled.map((i) => {
    const prompt = withClicks(start, toSam(setup, item, lists[i]!), 0)
    return first.logits ? { ...prompt, previous: first.logits } : prompt
  })
  const drawn = setup.sam.draw(item.sam, prompts, { ...options, keepLogits: false })
  if (first !== item.first) first.logits?.dispose()
  const out = lists.map(() => maskIou(item.record.mask, first.mask))
  filled.forEach((i, n) => {
    out[i] = maskIou(item.record.mask, drawn[n]!.mask)
  })
  return out
}
