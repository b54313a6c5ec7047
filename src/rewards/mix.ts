import { inTime, Mismatch, messageOf, refuseAt, Unavailable } from '../core/index.ts'
import { cleanCaption, countWords, lengthFactor } from './caption.ts'
import type { LengthShaping } from './config.ts'
import type { Answer, Reward, Score, Term } from './reward.ts'

export interface ScoredRow {
  /** Weighted mean of the parts, shaped; null: no reward, advantage 0, out of the group's mean. */
  total: Score
  /** Every term unweighted, by the reward's name. */
  parts: Record<string, Score>
  /** The terms the total is the weighted mean of, shaped as it is; null values if it is null. */
  counted: readonly { name: string; weight: number; value: Score }[]
  /** Terms that the whole group lost; equal in all rows of a group. */
  dropped: readonly string[]
  /** What is known of the answer besides its scores, for the log; counts nothing. */
  metrics?: Readonly<Record<string, number>>
}

export interface ScoreOptions {
  /** For a term the group lost: the remaining terms alone, no reward at all, or an error. */
  onUnavailable?: 'meteor' | 'skip' | 'stop'
  shaping?: { of: 'caption' | 'captionPrime'; length: LengthShaping }
  /** A reward that has not answered by then is an error; absent: it may take for ever. */
  timeoutSeconds?: number
}

function check(value: unknown, reward: Reward, answer: Answer): Score {
  if (value === null) return null
  const [low, high] = reward.range
  if (typeof value === 'number' && Number.isFinite(value) && value >= low && value <= high) return value
  const text = typeof value === 'string' ? `the text ${JSON.stringify(value)}` : null
  const got = text ?? (typeof value === 'number' || value === undefined ? String(value) : value)
  const expected = `a number from ${low} to ${high}, or null for "could not be scored"`
  return refuseAt(`sample ${answer.id}`)(`reward ${reward.name}`, expected, got)
}

/** One reward over one group. An error is reported with the reward's name; it never counts as a score. */
export async function scoreColumn(
  reward: Reward,
  answers: readonly Answer[],
  { timeoutSeconds }: Pick<ScoreOptions, 'timeoutSeconds'> = {},
): Promise<Score[]> {
  let values: readonly Score[]
  try {
    const asked = async () =>
      'scoreBatch' in reward ? await reward.scoreBatch(answers) : await Promise.all(answers.map((a) => reward.score(a)))
    values = await within(timeoutSeconds, asked(), reward.name)
  } catch (error) {
    if (error instanceof Mismatch) throw error
    const where = `group of sample ${answers[0]?.id}`
    throw new Mismatch(
      { where, field: `reward ${reward.name}`, expected: 'scores', got: messageOf(error) },
      { cause: error },
    )
  }
  if (!Array.isArray(values) || values.length !== answers.length) {
    const got = Array.isArray(values) ? values.length : typeof values
    throw new Mismatch({ where: `reward ${reward.name}`, expected: `${answers.length} scores, one per answer`, got })
  }
  return answers.map((answer, i) => check(values[i], reward, answer))
}

/** The value, or an error once the time is over; whatever comes later is dropped. */
async function within<T>(seconds: number | undefined, value: Promise<T>, name: string): Promise<T> {
  if (seconds === undefined) return value
  const hint = 'raise rewards.timeoutSeconds, or look at what the reward waits for'
  const late = () => refuseAt('rewards')(`reward ${name}`, 'scores', `none in ${seconds} s`, hint)
  // the engine's thread keeps the process alive; once it has ended, nobody waits
  return inTime(value, seconds * 1000, late, false)
}

interface Column {
  term: Term
  values: Score[]
}

/** Weighted mean over the columns, or null where one of them has no value for the row. */
function meanOf(columns: readonly Column[], row: number): Score {
  if (columns.length === 1) return columns[0]!.values[row] ?? null // exactly the value, not w * v / w
  let sum = 0
  let weights = 0
  for (const { term, values } of columns) {
    const value = values[row]
    if (value === null || value === undefined) return null
    sum += term.weight * value
    weights += term.weight
  }
  return weights > 0 ? sum / weights : null
}

function shapeFactor(answer: Answer, shaping: ScoreOptions['shaping']): number {
  return shaping ? lengthFactor(countWords(cleanCaption(answer[shaping.of] ?? '')), shaping.length) : 1
}

/** When every term is lost, their substitutes score the group; several terms may share one. */
async function substitutes(lost: readonly Column[], answers: readonly Answer[]): Promise<Column[]> {
  const out: Column[] = []
  for (const { term } of lost) {
    const { fallback } = term.reward
    if (fallback)
      out.push({ term: { reward: fallback, weight: term.weight }, values: await scoreColumn(fallback, answers) })
  }
  return out
}

function checkTerms(terms: readonly Term[]): void {
  const names = terms.map((t) => t.reward.name)
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  const refuse = refuseAt('rewards')
  if (twice !== undefined) refuse(twice, 'one term of a name', names)
  const bad = terms.find((t) => !(t.weight > 0 && Number.isFinite(t.weight)))
  if (bad) refuse(bad.reward.name, 'a positive weight', String(bad.weight))
}

/**
 * Scores one group: the answers to one prompt. Which terms count is decided once for all its rows: rewards on different
 * scales inside a group would turn a server's luck into advantage.
 */
export async function scoreGroup(
  terms: readonly Term[],
  given: readonly Answer[],
  options: ScoreOptions = {},
): Promise<ScoredRow[]> {
  checkTerms(terms)
  if (given.length === 0) return []
  const unique = new Set(given.map((a) => a.text)).size / given.length
  const answers = given.map((answer) => (answer.text === undefined ? answer : { ...answer, unique }))
  const columns = await Promise.all(
    terms.map(async (term) => ({ term, values: await scoreColumn(term.reward, answers, options) })),
  )
  const lost = columns.filter(({ term, values }) => term.reward.nullMeans === 'group' && values.includes(null))
  const dropped = lost.map((c) => c.term.reward.name)
  const onUnavailable = options.onUnavailable ?? 'meteor'
  if (lost.length > 0 && onUnavailable === 'stop') {
    const hint = 'onUnavailable is stop; meteor or skip continue without it'
    throw new Unavailable({
      where: `group of sample ${answers[0]!.id}`,
      field: dropped.join(', '),
      expected: 'a score for every sample',
      got: 'none',
      hint,
    })
  }
  let counted = columns.filter((c) => !lost.includes(c))
  if (lost.length > 0 && onUnavailable === 'skip') counted = []
  else if (counted.length === 0) counted = await substitutes(lost, answers)
  return answers.map((answer, row) => {
    const mean = meanOf(counted, row)
    const parts = Object.fromEntries([...columns, ...counted].map((c) => [c.term.reward.name, c.values[row] ?? null]))
    const shaped = (value: Score) =>
      mean === null || value === null ? null : value * shapeFactor(answer, options.shaping)
    const terms = counted.map(({ term, values }) => ({
      name: term.reward.name,
      weight: term.weight,
      value: shaped(values[row] ?? null),
    }))
    return { total: shaped(mean), parts, counted: terms, dropped, ...metricsOf(answer) }
  })
}

function metricsOf({ maskConfidence: sure }: Answer): Pick<ScoredRow, 'metrics'> {
  return sure ? { metrics: { 'mask_confidence/iou': sure.iou, 'mask_confidence/object': sure.object } } : {}
}

/** Ends a run whose judge is unreachable too often: above `fraction` of the groups of the last `steps` steps. */
export class AvailabilityWatch {
  readonly #fraction: number
  readonly #steps: number
  readonly #history: { step: number; groups: number; lost: number }[] = []

  constructor(fraction: number, steps = 50) {
    this.#fraction = fraction
    this.#steps = steps
  }

  /** `step`: calls of one step count together, however many tasks it scores. */
  record(step: number, groups: number, lost: number): void {
    const last = this.#history.at(-1)
    if (last?.step === step) Object.assign(last, { groups: last.groups + groups, lost: last.lost + lost })
    else this.#history.push({ step, groups, lost })
    if (this.#history.length > this.#steps) this.#history.shift()
    const all = this.#history.reduce((n, h) => n + h.groups, 0)
    const bad = this.#history.reduce((n, h) => n + h.lost, 0)
    // A few bad groups at the very start are not yet a rate.
    if (all < 20 || bad <= this.#fraction * all) return
    throw new Unavailable({
      where: `rewards, last ${this.#history.length} steps`,
      field: 'judge.maxUnavailableFraction',
      expected: `at most ${this.#fraction} of the groups without a judge`,
      got: `${bad} of ${all}`,
      hint: "look at the judge's server, or set judge.onUnavailable and this fraction to what the run can bear",
    })
  }
}
