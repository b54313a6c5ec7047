import { firstIndex } from '../core/index.ts'
import type { SampleIndex } from './sample-index.ts'

export const sampleOrders = ['newest', 'oldest', 'best', 'worst', 'advantage', 'different'] as const
export type SampleOrder = (typeof sampleOrders)[number]

export interface SampleQuery {
  task?: string
  /** One record, by its whole id. */
  record?: string
  from?: number
  to?: number
  /** 'advantage': far from 0 first; 'different': groups whose rewards lie furthest apart first. */
  order?: SampleOrder
  /** The reward part that 'best', 'worst' and 'different' go by; absent: the total. */
  part?: string
  /** At most one sample of each record. */
  onePerRecord?: boolean
  offset?: number
  limit?: number
}

/** The first `size` rows by rank, found in one pass; NaN ranks are left out. */
class Leaders {
  readonly #size: number
  readonly #key: (row: number) => number
  readonly #best = new Map<number, { row: number; rank: number }>()
  #list: { row: number; rank: number }[] = []

  /** `key`: rows of one key compete for one place. */
  constructor(size: number, key: (row: number) => number) {
    this.#size = size
    this.#key = key
  }

  add(row: number, rank: number): void {
    if (Number.isNaN(rank)) return
    const last = this.#list.at(-1)
    const full = this.#list.length >= this.#size
    if (full && last && rank <= last.rank) return
    const key = this.#key(row)
    const known = this.#best.get(key)
    if (known) {
      if (rank <= known.rank) return
      this.#list.splice(this.#list.indexOf(known), 1)
    }
    const entry = { row, rank }
    this.#best.set(key, entry)
    const at = firstIndex(this.#list.length, (i) => this.#list[i]!.rank < rank)
    this.#list.splice(at, 0, entry)
    if (this.#list.length > this.#size) this.#best.delete(this.#key(this.#list.pop()!.row))
  }

  rows(): number[] {
    return this.#list.map(({ row }) => row)
  }
}

/** `count`: how many samples the filters leave. Of equal ranks the later row comes first: it shows the model as it became. */
export function selectSamples(index: SampleIndex, query: SampleQuery): { count: number; rows: number[] } {
  const { offset = 0, limit = 24, order = 'newest' } = query
  const matches = filterOf(index, query)
  if (!matches) return { count: 0, rows: [] }
  const rank = rankOf(index, order, query.part)
  const key = query.onePerRecord ? (row: number) => index.record.at(row) : (row: number) => row
  const leaders = new Leaders(offset + limit, key)
  let count = 0
  for (let row = index.count - 1; row >= 0; row--) {
    if (!matches(row)) continue
    count++
    leaders.add(row, rank(row))
  }
  return { count, rows: leaders.rows().slice(offset) }
}

function filterOf(index: SampleIndex, query: SampleQuery): ((row: number) => boolean) | undefined {
  const task = query.task === undefined ? -1 : index.tasks.find(query.task)
  const record = query.record === undefined ? -1 : index.records.find(query.record)
  if (task === undefined || record === undefined) return undefined
  const [from, to] = [query.from ?? Number.NEGATIVE_INFINITY, query.to ?? Number.POSITIVE_INFINITY]
  return (row) =>
    (task < 0 || index.task.at(row) === task) &&
    (record < 0 || index.record.at(row) === record) &&
    index.step.at(row) >= from &&
    index.step.at(row) <= to
}

function rankOf(index: SampleIndex, order: SampleOrder, part: string | undefined): (row: number) => number {
  const reward = part === undefined ? (row: number) => index.total.at(row) : (row: number) => index.part(part, row)
  if (order === 'newest') return (row) => row
  if (order === 'oldest') return (row) => -row
  if (order === 'best') return reward
  if (order === 'worst') return (row) => -reward(row)
  if (order === 'advantage') return (row) => Math.abs(index.advantage.at(row))
  const spread = groupSpreads(index, reward)
  return (row) => spread[row]!
}

/** Highest minus lowest reward of the group a row is in; the samples of a group are adjacent in the file. */
function groupSpreads(index: SampleIndex, reward: (row: number) => number): Float64Array {
  const spreads = new Float64Array(index.count)
  const same = (a: number, b: number) =>
    index.step.at(a) === index.step.at(b) &&
    index.task.at(a) === index.task.at(b) &&
    index.record.at(a) === index.record.at(b)
  for (let from = 0; from < index.count; ) {
    let [to, low, high] = [from, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
    for (; to < index.count && same(from, to); to++) {
      const value = reward(to)
      if (value < low) low = value
      if (value > high) high = value
    }
    spreads.fill(high >= low ? high - low : Number.NaN, from, to)
    from = to
  }
  return spreads
}
