// Two models on the same held-out records: the change of every metric, and the records that changed most.
import type { Example } from '../data/index.ts'
import { encodePng } from '../image/index.ts'
import { type Evaluator, type RecordRatios, type RecordScore, recordRatios } from '../tasks/index.ts'
import { type Pair, type Pairs, pairedBootstrap, type RatioChange, type Sums } from '../tracking/index.ts'
import type { RunConfig } from './config.ts'
import { type EvaluateModelOptions, evaluateModel, type ModelEvaluation } from './evaluate-model.ts'
import type { Host } from './host.ts'

/** Records that gained, and that lost, that are shown. */
const shownRecords = 8
/** Draws of records: 50,000 resamples of 240, fewer of more. */
const draws = 1.2e7

export interface ModelSide {
  config: RunConfig
  options: EvaluateModelOptions
}

/** A record under one model. */
export interface RecordRow {
  id: string
  /** The id, and its number if several records have it. */
  key: string
  /** Records of one unit are resampled together. */
  unit: string
  ratios: RecordRatios
  shown: RecordScore['shown']
}

export interface RecordChange extends Omit<Pair, 'samples'> {
  change: number
  shown: [RecordScore['shown'], RecordScore['shown']]
  /** PNG, base64. */
  image?: string
}

export interface ModelComparison extends Pick<Pairs, 'wins' | 'losses' | 'ties'> {
  records: number
  /** The metric that wins, losses and changes are about. */
  main: string
  metrics: Record<string, RatioChange>
  /** Largest gain first. */
  changes: RecordChange[]
}

function unitSums(rows: readonly RecordRow[], units: ReadonlyMap<string, number>, name: string): Sums[] {
  const sums = Array.from(units, () => ({ above: 0, below: 0 }))
  for (const { unit, ratios } of rows) {
    const [above, below] = ratios[name] ?? [0, 0]
    sums[units.get(unit)!]!.above += above
    sums[units.get(unit)!]!.below += below
  }
  return sums
}

const ratioValue = (ratio: readonly [number, number] | null | undefined) => (ratio ? ratio[0] / ratio[1] : Number.NaN)

/** Rows of both models; a record that only one has is left out. */
export function compareRows(
  before: readonly RecordRow[],
  after: readonly RecordRow[],
  main: string,
  seed: number,
): ModelComparison {
  const known = new Map(before.map((row) => [row.key, row]))
  const pairs = after.flatMap((row) => (known.has(row.key) ? [[known.get(row.key)!, row] as const] : []))
  const [a, b] = [pairs.map(([row]) => row), pairs.map(([, row]) => row)]
  const units = new Map([...new Set(b.map(({ unit }) => unit))].map((unit, i) => [unit, i]))
  const names = [...new Set([...a, ...b].flatMap(({ ratios }) => Object.keys(ratios)))]
  const resamples = Math.round(Math.min(100_000, Math.max(2000, draws / Math.max(1, units.size))))
  const sums = names.map((name) => ({ before: unitSums(a, units, name), after: unitSums(b, units, name) }))
  const metrics = pairedBootstrap(sums, { seed, resamples }).map((change, i) => [names[i]!, change])
  const changes = pairs.flatMap(([was, is]): RecordChange[] => {
    const [from, to] = [ratioValue(was.ratios[main]), ratioValue(is.ratios[main])]
    const change = to - from
    return Number.isNaN(change) ? [] : [{ id: is.id, before: from, after: to, change, shown: [was.shown, is.shown] }]
  })
  const count = (is: (by: number) => boolean) => changes.filter(({ change }) => is(change)).length
  return {
    ...{ records: pairs.length, main, metrics: Object.fromEntries(metrics) },
    ...{ wins: count((by) => by > 0), losses: count((by) => by < 0), ties: count((by) => by === 0) },
    changes: changes.sort((x, y) => y.change - x.change),
  }
}

/** Images of the records that moved most so far: none is kept for the others. */
class MovedImages {
  #kept: { id: string; change: number; png: string }[] = []

  async add(id: string, change: number, { image }: Example): Promise<void> {
    if (!(Math.abs(change) > 0) || !this.#isAmong(change)) return
    const png = Buffer.from(await encodePng(image)).toString('base64')
    this.#kept = [...this.#kept, { id, change, png }].sort((a, b) => b.change - a.change)
    this.#kept = this.#kept.filter((_, i, all) => i < shownRecords || i >= all.length - shownRecords)
  }

  #isAmong(change: number): boolean {
    const all = this.#kept
    return (
      all.length < 2 * shownRecords || change > all[shownRecords - 1]!.change || change < all.at(-shownRecords)!.change
    )
  }

  get byId(): Map<string, string> {
    return new Map(this.#kept.map(({ id, png }) => [id, png]))
  }
}

export interface ComparedModels extends ModelComparison {
  sides: [ModelEvaluation, ModelEvaluation]
}

/** Evaluates one model after the other; `config.seed` of the first decides the resamples. Null: stopped before the last record. */
export async function compareModels(
  [first, second]: readonly [ModelSide, ModelSide],
  host: Pick<Host, 'progress' | 'stopping'>,
): Promise<ComparedModels | null> {
  const [a, b]: [RecordRow[], RecordRow[]] = [[], []]
  const [timesA, timesB] = [new Map<string, number>(), new Map<string, number>()]
  let main = ''
  const images = new MovedImages()
  const rowsOf = (scores: readonly RecordScore[], evaluator: Evaluator, times: Map<string, number>) => {
    main ||= evaluator.main ?? Object.keys(scores[0] ? recordRatios(evaluator, scores[0]) : {})[0] ?? ''
    return scores.map((score): RecordRow => {
      times.set(score.id, (times.get(score.id) ?? 0) + 1)
      const key = `${score.id}#${times.get(score.id)}`
      return {
        id: score.id,
        key,
        unit: evaluator.unitOf?.(score) ?? key,
        ratios: recordRatios(evaluator, score),
        shown: score.shown,
      }
    })
  }
  const before = await evaluateModel(first.config, first.options, host, (scores, _, evaluator) =>
    a.push(...rowsOf(scores, evaluator, timesA)),
  )
  if (before.stopped) return null
  const known = new Map(a.map((row) => [row.key, ratioValue(row.ratios[main])]))
  const after = await evaluateModel(second.config, second.options, host, async (scores, examples, evaluator) => {
    const rows = rowsOf(scores, evaluator, timesB)
    b.push(...rows)
    for (const [i, row] of rows.entries())
      await images.add(row.id, ratioValue(row.ratios[main]) - (known.get(row.key) ?? Number.NaN), examples[i]!)
  })
  if (after.stopped) return null
  const found = compareRows(a, b, main, first.config.seed)
  const pngs = images.byId
  const changes = found.changes.map((one) => (pngs.has(one.id) ? { ...one, image: pngs.get(one.id)! } : one))
  return { ...found, changes, sides: [before, after] }
}
