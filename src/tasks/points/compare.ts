// What the policy's points are worth beside none, random ones, heuristic ones and SAM2's own correction clicks: same records, same
// positive prompt, same SAM2. Intervals resample records.
import { stream } from '../../core/index.ts'
import { maskIou } from '../../mask/index.ts'
import type { Point } from '../../rewards/index.ts'
import { bootstrapInterval, bootstrapRatioInterval, type Interval } from '../../tracking/index.ts'
import {
  drawOptions,
  openItem,
  type PointItem,
  type PointSetup,
  positiveClicks,
  releaseItem,
  withClicks,
} from './item.ts'
import { oracleCurve, toSam } from './oracle.ts'
import { heuristicNegatives, randomNegatives } from './places.ts'
import type { PointRecord } from './record.ts'
import { askPoints, type PointReply, replyTo, scoreReplies } from './reply.ts'

/** The figures of one record; overlaps with the object. */
export interface ComparedRecord {
  id: string
  valid: boolean
  format: number
  /** Points that were kept, and of them those on the object and in the confused region. */
  kept: number
  wrong: number
  right: number
  switched: boolean
  none: number
  policy: number
  /** With maxPoints points, and with as many as the policy kept. */
  random: number
  randomSame: number
  heuristic: number
  heuristicSame: number
  /** After 1, 2, .. clicks, and the same with the previous mask as prompt. */
  oracle: number[]
  oracleLogits: number[]
}

export interface CompareOptions {
  seed: number
  /** Items that are read at once. */
  batch?: number
}

export function compareClicks(
  setup: PointSetup,
  records: readonly PointRecord[],
  options: CompareOptions,
): ComparedRecord[] {
  const batch = options.batch ?? 8
  const out: ComparedRecord[] = []
  for (let at = 0; at < records.length; at += batch) {
    const items = records.slice(at, at + batch).map((record) => openItem(setup, record))
    try {
      out.push(...compareItems(setup, items, options.seed))
    } finally {
      for (const item of items) releaseItem(setup, item)
    }
  }
  return out
}

/** Clicks that no policy takes part in: made once for a record, however often the policy is evaluated. */
type OtherClicks = Pick<ComparedRecord, 'random' | 'heuristic' | 'oracle' | 'oracleLogits'>
export type KnownClicks = Map<string, OtherClicks>

/** Greedy answers of open items, and the clicks they are compared with. */
export function compareItems(
  setup: PointSetup,
  items: readonly PointItem[],
  seed: number,
  known: KnownClicks = new Map(),
): ComparedRecord[] {
  const texts = askPoints(setup, items)
  return items.map((item, i) => {
    const others = known.get(item.record.id) ?? otherClicks(setup, item, seed)
    known.set(item.record.id, others)
    return compareOne(setup, item, replyTo(setup, item, texts[i]!)[0]!, others, seed)
  })
}

function otherClicks(setup: PointSetup, item: PointItem, seed: number): OtherClicks {
  const most = setup.config.maxPoints
  const [random, heuristic] = clickedOverlaps(setup, item, clickLists(item, most, seed)) as [number, number]
  return {
    random,
    heuristic,
    oracle: oracleCurve(setup, item, false),
    oracleLogits: oracleCurve(setup, item, true),
  }
}

/** Random and heuristic points; fewer of them are the first ones of more. */
function clickLists({ record }: PointItem, count: number, seed: number): Point[][] {
  const random = randomNegatives(record.mask, count, stream(seed, 'random negatives', record.id))
  return [random, heuristicNegatives(record.mask, count)]
}

function compareOne(
  setup: PointSetup,
  item: PointItem,
  reply: PointReply,
  others: OtherClicks,
  seed: number,
): ComparedRecord {
  const [parts] = scoreReplies(setup, item, [reply])
  const kept = reply.answer.negatives.length
  const [randomSame, heuristicSame] = (
    kept === setup.config.maxPoints
      ? [others.random, others.heuristic]
      : clickedOverlaps(setup, item, clickLists(item, kept, seed))
  ) as [number, number]
  const none = startOf(item, reply).overlap
  return {
    id: item.record.id,
    valid: parts!.valid,
    format: parts!.format,
    kept,
    wrong: parts!.wrong,
    right: parts!.right,
    switched: reply.switched,
    none,
    policy: parts!.valid ? parts!.iou1 : none,
    ...others,
    ...{ randomSame, heuristicSame },
  }
}

function startOf(item: PointItem, reply: PointReply): { overlap: number } {
  const mask = item.first?.mask ?? reply.mask0
  return { overlap: mask ? maskIou(item.record.mask, mask) : 0 }
}

/** Overlap after negative points of the original image were added to the record's positive prompt. */
export function clickedOverlaps(setup: PointSetup, item: PointItem, lists: readonly (readonly Point[])[]): number[] {
  const start = positiveClicks(setup, item.record, item.positive)
  const filled = lists.flatMap((list, i) => (list.length > 0 ? [i] : []))
  const prompts = filled.map((i) => {
    const prompt = withClicks(start, toSam(setup, item, lists[i]!), 0)
    return item.first?.logits ? { ...prompt, previous: item.first.logits } : prompt
  })
  const options = { ...drawOptions(setup, item.record), keepLogits: false }
  const drawn = setup.sam.draw(item.sam, prompts, options)
  const base = item.first ? maskIou(item.record.mask, item.first.mask) : 0
  const out = lists.map(() => base)
  filled.forEach((i, n) => {
    out[i] = maskIou(item.record.mask, drawn[n]!.mask)
  })
  return out
}

/** Means with their 95 % intervals, under the names that are logged. */
export function comparedFigures(rows: readonly ComparedRecord[], seed: number): Record<string, Interval> {
  const mean = (of: (r: ComparedRecord) => number, among = rows) => bootstrapInterval(among.map(of), { seed })
  const last = (values: readonly number[]) => values.at(-1) ?? 0
  const gain = (r: ComparedRecord) => r.policy - r.none
  const oracle = (r: ComparedRecord) => last(r.oracle) - r.none
  const out: Record<string, Interval> = {
    'points/gain': mean(gain),
    'points/gain_random': mean((r) => r.random - r.none),
    'points/gain_heuristic': mean((r) => r.heuristic - r.none),
    'points/gain_oracle': mean(oracle),
    'points/share_of_oracle': bootstrapRatioInterval(rows.map(gain), rows.map(oracle), { seed }),
    'points/gain_above_random': mean((r) => r.policy - r.random),
    'points/gain_above_heuristic': mean((r) => r.policy - r.heuristic),
    'points/gain_random_same_count': mean((r) => r.randomSame - r.none),
    'points/gain_heuristic_same_count': mean((r) => r.heuristicSame - r.none),
    'points/gain_oracle_logits': mean((r) => last(r.oracleLogits) - r.none),
    'points/miou_none': mean((r) => r.none),
    'points/miou': mean((r) => r.policy),
    'points/improved': mean((r) => (gain(r) > 0.01 ? 1 : 0)),
    'points/worsened': mean((r) => (gain(r) < -0.01 ? 1 : 0)),
    'points/format': mean((r) => r.format),
    'points/invalid': mean((r) => (r.valid ? 0 : 1)),
    'points/kept': mean((r) => r.kept),
    'points/abstained': mean((r) => (r.valid && r.kept === 0 ? 1 : 0)),
    'points/token_switched': mean((r) => (r.switched ? 1 : 0)),
  }
  rows[0]?.oracle.forEach((_, n) => {
    out[`points/gain_oracle_${n + 1}`] = mean((r) => r.oracle[n]! - r.none)
  })
  const groups: [string, (r: ComparedRecord) => boolean][] = [0, 1, 2, 3].map((n) => [
    `points/gain_at_${n}`,
    (r) => r.kept === n,
  ])
  groups.push(['points/gain_unswitched', (r) => !r.switched])
  for (const [name, belongs] of groups) {
    const among = rows.filter(belongs)
    if (among.length > 0) out[name] = mean(gain, among)
  }
  const placed = rows.filter((r) => r.kept > 0)
  if (placed.length > 0) {
    out['points/in_object'] = mean((r) => r.wrong / r.kept, placed)
    out['points/in_confused'] = mean((r) => r.right / r.kept, placed)
  }
  return out
}
