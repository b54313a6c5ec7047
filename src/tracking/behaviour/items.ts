// What the answers of some steps have in common: one table of items, each a number over all of them and the records it is about.
import { groupBy } from '../../core/index.ts'
import { quantile } from '../statistics.ts'
import type { Traits, TraitValues } from './traits.ts'

type Value = keyof TraitValues

interface ItemKind {
  title: string
  /** How it is printed. */
  unit: 'share' | 'ratio' | 'number'
  /** Over the answers of a window; NaN: none has it. */
  of(window: readonly Traits[]): number
  /** Of the answers of one record; the records with the largest are named. */
  ofRecord(window: readonly Traits[]): number
}

const valuesOf = (window: readonly Traits[], name: Value) => window.flatMap(({ values }) => values[name] ?? [])

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length

const median = (values: readonly number[]) =>
  quantile(
    [...values].sort((a, b) => a - b),
    0.5,
  )

const groupKey = ({ step, id }: Traits) => `${step} ${id}`

export const groupedBy = <T>(all: readonly T[], keyOf: (one: T) => string): T[][] => [...groupBy(all, keyOf).values()]

/** Share of answers that another answer of their group already gave. */
function duplicates(window: readonly Traits[]): number {
  const groups = groupedBy(window, groupKey).filter((group) => group.length > 1)
  const extra = groups.map((group) => group.length - new Set(group.map(({ answer }) => answer)).size)
  const possible = groups.reduce((n, group) => n + group.length - 1, 0)
  return possible > 0 ? extra.reduce((a, b) => a + b, 0) / possible : Number.NaN
}

/** The most common answer of a window; empty if fewer than two records have one. */
export function commonAnswer(window: readonly Traits[]): readonly Traits[] {
  const placed = window.filter(({ place }) => place !== null)
  if (new Set(placed.map(({ id }) => id)).size < 2) return []
  return groupedBy(placed, ({ place }) => place!).sort((a, b) => b.length - a.length)[0]!
}

/** Share of pairs of a group that the judge and the mean of the other parts order the same way. */
function agreement(window: readonly Traits[]): number {
  let [same, all] = [0, 0]
  for (const group of groupedBy(window, groupKey))
    for (const [i, a] of group.entries())
      for (const b of group.slice(i + 1)) {
        if (a.judge === null || b.judge === null || a.others === null || b.others === null) continue
        const product = (a.judge - b.judge) * (a.others - b.others)
        if (product !== 0) all++
        if (product > 0) same++
      }
  return all > 0 ? same / all : Number.NaN
}

const plain = (name: Value, title: string, unit: ItemKind['unit'] = 'share'): ItemKind => {
  const of = (window: readonly Traits[]) =>
    unit === 'ratio' ? median(valuesOf(window, name)) : mean(valuesOf(window, name))
  return { title, unit, of, ofRecord: of }
}

/** Every item of the report, in its order. */
export const itemKinds = {
  reward: plain('reward', 'reward', 'number'),
  iou: plain('iou', "IoU with the record's mask", 'number'),
  area: plain('area', "mask area / the record's, median", 'ratio'),
  box: plain('box', "box area / the record's, median", 'ratio'),
  empty: plain('empty', 'empty masks'),
  noMask: plain('noMask', 'no mask: no [SEG], or unreadable'),
  whole: plain('whole', 'masks that cover the whole image'),
  same: {
    title: 'the most common answer, of all records',
    unit: 'share',
    of: (window) => (window.length > 0 ? commonAnswer(window).length / window.length : Number.NaN),
    ofRecord: () => Number.NaN,
  },
  duplicates: { title: 'duplicates in a group', unit: 'share', of: duplicates, ofRecord: duplicates },
  length: plain('length', 'tokens of an answer', 'number'),
  cut: plain('cut', 'cut at the length limit'),
  repeated: plain('repeated', 'answers that repeat their words'),
  noTarget: plain('noTarget', 'no point: "no target"'),
  onObject: plain('onObject', 'points on the object'),
  misplaced: plain('misplaced', 'negative points on it, positive outside'),
  judge: { title: 'judge orders as the other rewards do', unit: 'share', of: agreement, ofRecord: agreement },
} satisfies Record<string, ItemKind>

export type ItemName = keyof typeof itemKinds
export type Items = Record<ItemName, number>

export const itemNames = Object.keys(itemKinds) as ItemName[]

export function itemsOf(window: readonly Traits[]): Items {
  return Object.fromEntries(itemNames.map((name) => [name, itemKinds[name].of(window)])) as Items
}

/** Answers that an item is about, the strongest first, one of each record; `rising`: those with the largest values. */
export function examplesOf(name: ItemName, window: readonly Traits[], rising: boolean): Traits[] {
  if (name === 'same') return groupedBy(commonAnswer(window), ({ id }) => id).map((group) => group[0]!)
  const kind: ItemKind = itemKinds[name]
  const sign = rising ? -1 : 1
  const ranked = groupedBy(window, ({ id }) => id).map((group) => ({ group, value: kind.ofRecord(group) }))
  const shown = ranked.filter(({ value }) => !Number.isNaN(value) && (kind.unit !== 'share' || value > 0))
  const own = ({ values }: Traits) => sign * (values[name as Value] ?? 0)
  return shown
    .sort((a, b) => sign * (a.value - b.value))
    .map(({ group }) => [...group].sort((a, b) => own(a) - own(b))[0]!)
}

export interface WordShift {
  word: string
  /** Share of the answers that have it. */
  before: number
  after: number
}

/** Words whose share of answers changed most; `sign` 1: gained, -1: lost. */
export function wordShifts(before: readonly Traits[], after: readonly Traits[], sign: 1 | -1, limit = 8): WordShift[] {
  const [was, is] = [before, after].map((window) => {
    const counts = new Map<string, number>()
    for (const { words } of window)
      for (const word of new Set(words)) counts.set(word, (counts.get(word) ?? 0) + 1 / window.length)
    return counts
  }) as [Map<string, number>, Map<string, number>]
  const all = [...new Set([...was.keys(), ...is.keys()])]
  const shifts = all.map((word) => ({ word, before: was.get(word) ?? 0, after: is.get(word) ?? 0 }))
  const change = ({ before: a, after: b }: WordShift) => sign * (b - a)
  return shifts
    .filter((shift) => change(shift) > 0.02)
    .sort((a, b) => change(b) - change(a) || (a.word < b.word ? -1 : 1))
    .slice(0, limit)
}
