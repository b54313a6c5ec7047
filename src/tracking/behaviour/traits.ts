// One sampled answer in numbers: its mask next to the record's, its words, its points.
import { decodeRle, isEmptyMask, type Mask, maskArea, maskBox, maskIou, sourceOf, toDense } from '../../mask/index.ts'
import type { MaskRle, Sample, SampleRef, Shown } from '../events.ts'
import { shownOf } from '../parse.ts'

/** A mask of at least this share of the image covers everything. */
export const wholeShare = 0.95
/** Words of an answer that are searched for repetitions: a long text repeats the common ones anyway. */
const searchedWords = 40
/** Places of points and masks are compared on a grid of so many cells a side. */
const gridCells = 8

/** Numbers of an answer; absent: it has no such thing. Shares are 0 or 1 here, and their mean is the share. */
export type TraitValues = Partial<Record<MaskTrait | PointTrait | 'reward' | 'length' | 'cut' | 'repeated', number>>
type MaskTrait = 'iou' | 'area' | 'box' | 'empty' | 'noMask' | 'whole'
type PointTrait = 'onObject' | 'misplaced' | 'noTarget'

export interface Traits extends SampleRef {
  values: TraitValues
  /** The answer as it is compared with others of its group, and of other records; null: there is none. */
  answer: string
  place: string | null
  words: string[]
  judge: number | null
  /** Mean of the other parts of the reward. */
  others: number | null
}

const flag = (is: boolean) => (is ? 1 : 0)

function decoded(rle: MaskRle | null): Mask | null {
  try {
    return rle && (sourceOf(rle) ?? decodeRle(rle))
  } catch {
    return null // a damaged mask is reported where it is drawn
  }
}

/** Results are kept as long as their mask: noise has 100,000 runs. */
const boxes = new WeakMap<Mask, ReturnType<typeof maskBox>>()
const comparisons = new WeakMap<Mask, { given: Mask; values: TraitValues }>()

function boxOf(mask: Mask): ReturnType<typeof maskBox> {
  const box = boxes.get(mask) ?? maskBox(mask)
  boxes.set(mask, box)
  return box
}

const boxArea = (mask: Mask) => boxOf(mask)[2] * boxOf(mask)[3]

type Find = <K extends Shown['kind']>(kind: K, ...by: Shown['by'][]) => Extract<Shown, { kind: K }> | undefined

function finder(shown: readonly Shown[]): Find {
  return (kind, ...by) => {
    const items = shown.filter((item) => item.kind === kind)
    const item = by.map((author) => items.find((one) => one.by === author)).find((one) => one !== undefined)
    return item as never
  }
}

/** Of the mask that was drawn, next to the record's; nothing if the record has none. */
export function maskValues(made: Mask | null, given: Mask | null): TraitValues {
  if (!given) return {}
  if (!made) return { noMask: 1, empty: 0, whole: 0, iou: 0 }
  const known = comparisons.get(made)
  const values = known?.given === given ? known.values : compared(made, given)
  comparisons.set(made, { given, values })
  return values
}

function compared(made: Mask, given: Mask): TraitValues {
  const [area, own] = [maskArea(made), maskArea(given)]
  return {
    noMask: 0,
    empty: flag(area === 0 && own > 0),
    whole: flag(area >= wholeShare * made.width * made.height),
    ...(own > 0 && { area: area / own, box: boxArea(made) / boxArea(given), iou: sameSize(made, given) }),
  }
}

const sameSize = (a: Mask, b: Mask) => (a.width === b.width && a.height === b.height ? maskIou(a, b) : 0)

function pointValues(item: Extract<Shown, { kind: 'points' }> | undefined, given: Mask | null): TraitValues {
  if (!item) return {}
  const count = item.points.length
  if (count === 0 || !given) return { noTarget: flag(count === 0) }
  const dense = toDense(given)
  const isOn = ({ x, y }: { x: number; y: number }) => {
    const [column, row] = [Math.round((x / item.size[1]) * given.width), Math.round((y / item.size[0]) * given.height)]
    return dense[Math.min(row, given.height - 1) * given.width + Math.min(column, given.width - 1)] === 1
  }
  const on = item.points.filter(isOn).length
  const wrong = item.points.filter((point) => isOn(point) !== point.positive).length
  return { noTarget: 0, onObject: on / count, misplaced: wrong / count }
}

/** Words of an answer without special tokens, in lower case. */
export function wordsOf(text: string): string[] {
  return (
    text
      .replace(/<\|[^|<>\n]{0,64}\|>|\[SEG\]/g, ' ')
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? []
  )
}

function isRepeating(words: readonly string[]): boolean {
  const first = words.slice(0, searchedWords)
  return first.length >= 6 && 2 * new Set(first).size <= first.length
}

const cell = (value: number, size: number) => Math.floor((gridCells * value) / size)

/** Where an answer points: its points, else the box of the policy's mask, else its words. */
function placeOf(text: string, points: Extract<Shown, { kind: 'points' }> | undefined, made: Mask | null) {
  if (points) {
    const { size } = points
    const cells = points.points.map((p) => `${cell(p.x, size[1])},${cell(p.y, size[0])},${p.positive}`)
    return cells.length > 0 ? cells.sort().join(' ') : 'no point'
  }
  if (!made) return text === '' ? null : text
  return isEmptyMask(made)
    ? 'empty'
    : boxOf(made)
        .map((v, i) => cell(v, i % 2 ? made.height : made.width))
        .join()
}

const meanOf = (values: readonly number[]) =>
  values.length > 0 ? values.reduce((a, b) => a + b, 0) / values.length : null

export function traitsOf(sample: Sample): Traits {
  const find = finder(shownOf(sample))
  const made = find('mask', 'policy', 'ema')
  const [given, drawn] = [decoded(find('mask', 'record')?.mask ?? null), decoded(made?.mask ?? null)]
  const [points, text] = [find('points', 'policy'), find('text', 'policy')?.text ?? '']
  const words = wordsOf(text)
  const own = made?.by === 'policy' ? drawn : null
  const { judge = null, ...parts } = sample.rewards
  return {
    ...{ step: sample.step, loop: sample.loop, id: sample.id, k: sample.k },
    values: {
      ...(sample.total !== null && Number.isFinite(sample.total) && { reward: sample.total }),
      ...maskValues(drawn, given),
      ...(Number.isFinite(sample.length) && { length: sample.length }),
      ...{ cut: flag(sample.truncated === true), repeated: flag(isRepeating(words)) },
      ...pointValues(points, given),
    },
    answer: `${text} ${own && made?.mask ? made.mask.counts : ''}`,
    place: placeOf(words.join(' '), points, own),
    words,
    judge,
    others: meanOf(Object.values(parts).filter((value) => value !== null)),
  }
}
