// The same records at two times: who gained, who lost.
import type { SampleRef } from '../events.ts'
import type { FollowedRun } from '../follow.ts'
import type { SampleIndex } from '../sample-index.ts'

const shownPairs = 6

export interface Pair {
  id: string
  before: number
  after: number
  /** Samples to look at, before and after. */
  samples: [SampleRef, SampleRef]
}

export interface Pairs {
  /** What is compared. */
  about: string
  wins: number
  losses: number
  ties: number
  /** Largest change first. */
  best: Pair[]
  worst: Pair[]
  /** Whether the samples are those of evaluations.jsonl. */
  heldOut: boolean
}

interface Seen {
  row: number
  step: number
  sum: number
  count: number
}

/** First and last scored group of each record of one task; `isFirst`, `isLast`: rows that may be either. */
function endsOf(index: SampleIndex, isFirst: (row: number) => boolean, isLast: (row: number) => boolean) {
  const [first, last] = [new Map<number, Seen>(), new Map<number, Seen>()]
  const add = (seen: Map<number, Seen>, row: number, replace: boolean) => {
    const [record, step, total] = [index.record.at(row), index.step.at(row), index.total.at(row)]
    const known = seen.get(record)
    if (known?.step === step) {
      known.sum += total
      known.count++
    } else if (!known || replace) seen.set(record, { row, step, sum: total, count: 1 })
  }
  for (let row = 0; row < index.count; row++) {
    if (Number.isNaN(index.total.at(row))) continue
    if (isFirst(row)) add(first, row, false)
    if (isLast(row)) add(last, row, true)
  }
  return { first, last }
}

function refAt(index: SampleIndex, row: number): SampleRef {
  const [loop, id] = [index.tasks.list[index.task.at(row)]!, index.records.list[index.record.at(row)]!]
  return { step: index.step.at(row), loop, id, k: index.k.at(row) }
}

function paired(index: SampleIndex, ends: ReturnType<typeof endsOf>): Pair[] {
  return [...ends.last].flatMap(([record, b]): Pair[] => {
    const a = ends.first.get(record)
    if (!a || a.row === b.row || a.step === b.step) return []
    const samples: Pair['samples'] = [refAt(index, a.row), refAt(index, b.row)]
    return [{ id: index.records.list[record]!, before: a.sum / a.count, after: b.sum / b.count, samples }]
  })
}

function summarised(all: readonly Pair[], about: string, heldOut: boolean): Pairs | null {
  if (all.length === 0) return null
  const change = ({ before, after }: Pair) => after - before
  const sorted = [...all].sort((a, b) => change(b) - change(a))
  const count = (is: (by: number) => boolean) => all.filter((pair) => is(change(pair))).length
  return {
    ...{ about, heldOut, wins: count((by) => by > 0), losses: count((by) => by < 0), ties: count((by) => by === 0) },
    best: sorted.filter((pair) => change(pair) > 0).slice(0, shownPairs),
    worst: sorted
      .filter((pair) => change(pair) < 0)
      .reverse()
      .slice(0, shownPairs),
  }
}

/** Held-out records of the first and the last evaluation; else records that were trained on more than once. */
export function pairsOf(run: FollowedRun): Pairs | null {
  const { evaluations: rounds, samples } = run
  if (rounds.count > 0) {
    const [from, to] = [rounds.step.at(0), rounds.step.at(rounds.count - 1)]
    const names = [rounds.task.at(0), rounds.task.at(rounds.count - 1)]
    const ends = endsOf(
      rounds,
      (row) => rounds.step.at(row) === from && rounds.task.at(row) === names[0],
      (row) => rounds.step.at(row) === to && rounds.task.at(row) === names[1],
    )
    const metric = rounds.parts.find((name) => rounds.part(name, 0) === Math.fround(rounds.total.at(0)))
    const about = `held-out records, ${metric ?? 'main metric'}, step ${from} against step ${to}`
    const found = summarised(paired(rounds, ends), about, true)
    if (found) return found
  }
  const all = samples.tasks.list.flatMap((_, task) => {
    const isOf = (row: number) => samples.task.at(row) === task
    return paired(samples, endsOf(samples, isOf, isOf))
  })
  return summarised(
    all,
    'records that were sampled more than once, mean reward of the first group against the last',
    false,
  )
}
