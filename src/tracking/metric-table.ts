import { float64, type Growing, uint32 } from './growable-array.ts'
import { decodeNumber } from './json-lines.ts'

/** More names than this come from damage or malice; the rest is counted. */
const maxNames = 5000

interface Column {
  /** Number of the row each value belongs to. */
  rows: Growing<Uint32Array>
  values: Growing<Float64Array>
}

export interface SeriesQuery {
  from?: number
  to?: number
  /** At most about this many points; each bucket keeps its lowest and highest value, so that no spike is lost. */
  points?: number
}

export interface SeriesPoints {
  steps: number[]
  values: number[]
  /** How many points the range has without thinning. */
  count: number
}

/** Numbers by name and step, column by column. A step that was logged twice counts once, with its last value. */
export class MetricTable {
  readonly #columns = new Map<string, Column>()
  readonly #steps = float64()
  readonly #starts = float64()
  #rising = true
  /** Values whose name found no place. */
  leftOut = 0

  get rows(): number {
    return this.#steps.length
  }

  get names(): string[] {
    return [...this.#columns].filter(([, column]) => column.values.length > 0).map(([name]) => name)
  }

  get lastStep(): number {
    return this.rows === 0 ? 0 : this.#steps.at(this.rows - 1)
  }

  /** Values as `encodeLine` wrote them. `start`: where the line begins in its file, for `cutAt`. */
  add(step: number, metrics: Readonly<Record<string, unknown>>, start: number): void {
    const row = this.rows
    if (row > 0 && step <= this.lastStep) this.#rising = false
    this.#steps.push(step)
    this.#starts.push(start)
    for (const name in metrics) {
      const value = decodeNumber(metrics[name])
      const column = value === undefined ? undefined : this.#column(name)
      if (value === undefined || !column) continue
      column.rows.push(row)
      column.values.push(value)
    }
  }

  #column(name: string): Column | undefined {
    const known = this.#columns.get(name)
    if (known) return known
    if (this.#columns.size >= maxNames) {
      this.leftOut++
      return undefined
    }
    const column = { rows: uint32(), values: float64() }
    this.#columns.set(name, column)
    return column
  }

  /** Forgets the rows whose lines begin at this offset or after it. */
  cutAt(offset: number): void {
    const rows = this.#starts.countBelow(offset)
    this.#steps.cut(rows)
    this.#starts.cut(rows)
    for (const column of this.#columns.values()) {
      const kept = column.rows.countBelow(rows)
      column.rows.cut(kept)
      column.values.cut(kept)
    }
  }

  last(name: string): number | undefined {
    const values = this.#columns.get(name)?.values
    return values && values.length > 0 ? values.at(values.length - 1) : undefined
  }

  series(name: string, query: SeriesQuery = {}): SeriesPoints {
    const column = this.#columns.get(name)
    if (!column) return { steps: [], values: [], count: 0 }
    const [low, high] = [query.from ?? Number.NEGATIVE_INFINITY, query.to ?? Number.POSITIVE_INFINITY]
    let steps: number[] = []
    let values: number[] = []
    const [rowNumbers, numbers, allSteps] = [column.rows.view(), column.values.view(), this.#steps.view()]
    for (let i = 0; i < numbers.length; i++) {
      const step = allSteps[rowNumbers[i]!]!
      if (step < low || step > high) continue
      steps.push(step)
      values.push(numbers[i]!)
    }
    if (!this.#rising) [steps, values] = lastOfEach(steps, values)
    const count = steps.length
    return { ...thinned(steps, values, query.points ?? Number.POSITIVE_INFINITY), count }
  }
}

function lastOfEach(steps: readonly number[], values: readonly number[]): [number[], number[]] {
  const byStep = new Map(steps.map((step, i) => [step, values[i]!]))
  const sorted = [...byStep].sort(([a], [b]) => a - b)
  return [sorted.map(([step]) => step), sorted.map(([, value]) => value)]
}

/** The lowest, the highest and a not finite value of each bucket, in order of their steps. */
function thinned(steps: number[], values: number[], most: number): { steps: number[]; values: number[] } {
  if (steps.length <= most) return { steps, values }
  const size = Math.ceil(steps.length / Math.max(1, Math.floor(most / 2)))
  const kept: number[] = []
  for (let from = 0; from < steps.length; from += size) {
    const to = Math.min(steps.length, from + size)
    let [low, high, odd] = [-1, -1, -1]
    for (let i = from; i < to; i++) {
      const value = values[i]!
      if (!Number.isFinite(value)) odd = i
      else {
        if (low < 0 || value < values[low]!) low = i
        if (high < 0 || value > values[high]!) high = i
      }
    }
    const chosen = [low, high, odd].filter((i, at, all) => i >= 0 && all.indexOf(i) === at)
    kept.push(...chosen.sort((a, b) => a - b))
  }
  return { steps: kept.map((i) => steps[i]!), values: kept.map((i) => values[i]!) }
}
