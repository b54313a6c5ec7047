// Drifts that are tricks rather than learning. The table is the only place of the thresholds; docs/watch.md repeats it, tested.
import type { EvalEvent, SampleRef } from '../events.ts'
import { apartFrom, fewRecords } from '../statistics.ts'
import { examplesOf, groupedBy, type ItemName, itemKinds } from './items.ts'
import type { Traits } from './traits.ts'

/** Steps with samples at the start and at the end that are compared. */
export const windowSteps = 5
/** A share says nothing about fewer records. */
const fewestRecords = 4
const shownSamples = 4

interface AlarmRule {
  item: ItemName
  /** Which side of `limit` is the trick. */
  side: 'above' | 'below'
  limit: number
  /** Least change since the first steps: a difference of a share, a factor of a ratio. */
  change: number
  /** Only while the reward rises and the overlap with the records' masks does not: the masks of a run that learns change too. */
  rewardAlone?: true
  advice: string
}

export const alarmRules: Readonly<Record<string, AlarmRule>> = {
  'whole-image': {
    ...{ item: 'whole', side: 'above', limit: 0.3, change: 0.2 },
    advice: "add a term that compares with the record's mask (iou), or remove the one that grows with the area",
  },
  'mask-grows': {
    ...{ item: 'area', side: 'above', limit: 1.5, change: 1.5, rewardAlone: true },
    advice: 'the reward pays for area: add an iou term, or raise rl.beta',
  },
  'mask-shrinks': {
    ...{ item: 'area', side: 'below', limit: 0.5, change: 1.5, rewardAlone: true },
    advice: 'the reward pays for small masks: add an iou term, or raise rl.beta',
  },
  'empty-mask': {
    ...{ item: 'empty', side: 'above', limit: 0.3, change: 0.2 },
    advice: 'an empty mask scores too well: set iou.empty to 0 and check terms that punish pixels',
  },
  'no-mask': {
    ...{ item: 'noMask', side: 'above', limit: 0.3, change: 0.2 },
    advice: 'answers lose their [SEG] or cannot be read: add a format term, or lower the learning rate',
  },
  'same-answer': {
    ...{ item: 'same', side: 'above', limit: 0.3, change: 0.2 },
    advice: 'the reward does not depend on the record: add a term that compares with it',
  },
  'no-target': {
    ...{ item: 'noTarget', side: 'above', limit: 0.5, change: 0.25 },
    advice: 'placing no point scores too well: lower points.reward.abstainBonus, or the learning rate',
  },
  'length-limit': {
    ...{ item: 'cut', side: 'above', limit: 0.3, change: 0.2 },
    advice: 'the reward pays for length: add a length term or shaping, or raise rl.maxCompletionLength',
  },
  'repeated-word': {
    ...{ item: 'repeated', side: 'above', limit: 0.3, change: 0.2 },
    advice: 'the reward counts words it has counted before: score each once, or add meteor or a judge',
  },
}

/** The alarm that compares evaluations instead of samples. */
export const heldOutAlarm = 'held-out-falls'
const heldOutAdvice =
  'the reward no longer measures what the evaluation does: stop, go back to an earlier checkpoint, and compare the two'
/** Metrics of an evaluation of which more is better. */
const betterHigher = /(meteor|iou|gain|seg_rate|none_right|format|improved)$/

export interface Alarm {
  kind: string
  task: string
  step: number
  text: string
  advice: string
  samples: readonly SampleRef[]
}

/** What is logged and shown: what happens, and what to do. */
export const alarmText = ({ text, advice }: Alarm) => (advice === '' ? text : `${text}. Suggestion: ${advice}`)

/** Prefix of an alarm's kind in warnings. */
export const alarmPrefix = 'alarm/'

function crosses({ item, side, limit, change }: AlarmRule, first: readonly Traits[], last: readonly Traits[]): boolean {
  const { unit, of } = itemKinds[item]
  const after = of(last)
  if (!(side === 'above' ? after >= limit : after <= limit)) return false
  const before = of(first)
  const [far, moved] = unit === 'ratio' ? [after / before, change] : [1 + after - before, 1 + change]
  return side === 'above' ? far >= moved : far <= 1 / moved
}

/** Whether the mean over groups is higher by more than two standard errors. */
export function rises(item: 'reward' | 'iou', before: readonly Traits[], after: readonly Traits[]): boolean {
  const [a, b] = [before, after].map((window) => {
    const groups = groupedBy(window, ({ step, id }) => `${step} ${id}`)
    const means = groups.map((group) => itemKinds[item].of(group)).filter(Number.isFinite)
    const mean = means.reduce((x, y) => x + y, 0) / means.length
    const spread = means.reduce((sum, x) => sum + (x - mean) ** 2, 0) / Math.max(1, means.length - 1)
    return { mean, error: spread / means.length }
  }) as [{ mean: number; error: number }, { mean: number; error: number }]
  return b.mean - a.mean > 2 * Math.sqrt(a.error + b.error)
}

const percent = (value: number) => `${Math.round(100 * value)} %`

/** A value of an item as it is read. */
export function valueText(name: ItemName | 'entropy', value: number): string {
  if (Number.isNaN(value)) return '-'
  return name !== 'entropy' && itemKinds[name].unit === 'share' ? percent(value) : value.toPrecision(3)
}

/** Alarms of one task: its first answers against its last ones. */
export function alarmsOf(first: readonly Traits[], last: readonly Traits[]): Alarm[] {
  if (new Set(last.map(({ id }) => id)).size < fewestRecords || first.length === 0) return []
  const isAlone = () => rises('reward', first, last) && !rises('iou', first, last)
  return Object.entries(alarmRules).flatMap(([kind, rule]) => {
    const { item, side, rewardAlone, advice } = rule
    if (!crosses(rule, first, last) || (rewardAlone && !isAlone())) return []
    const examples = examplesOf(item, last, side === 'above')
    const step = Math.max(...last.map((one) => one.step))
    const task = last[0]!.loop
    const text = describe(item, first, last, examples)
    return [{ kind, task, step, text, advice, samples: examples.slice(0, shownSamples).map(refOf) }]
  })
}

const refOf = ({ step, loop, id, k }: Traits): SampleRef => ({ step, loop, id, k })

function describe(
  item: ItemName,
  first: readonly Traits[],
  last: readonly Traits[],
  examples: readonly Traits[],
): string {
  const value = (name: ItemName) =>
    [first, last].map((window) => valueText(name, itemKinds[name].of(window))).join(' to ')
  const records = [...new Set(examples.map(({ id }) => id))]
  const named = `${records.slice(0, shownSamples).join(', ')}${records.length > shownSamples ? ` and ${records.length - shownSamples} more` : ''}`
  return `${last[0]!.loop}: ${itemKinds[item].title}: ${value(item)}, reward ${value('reward')}; records ${named}`
}

/** A held-out metric whose interval is below the first one's, while the reward of the samples rises. */
export function heldOutFalls(evals: readonly EvalEvent[], rewardRises: boolean): Alarm | null {
  const [first, last] = [evals[0], evals.at(-1)]
  if (!first || !last || first === last || !rewardRises || first.records < fewRecords) return null
  const lower = Object.keys(first.metrics).filter((name) => {
    const [before, after] = [first.metrics[name]!, last.metrics[name]]
    return betterHigher.test(name) && after && apartFrom(before, after) === 'lower'
  })
  if (lower.length === 0) return null
  const values = lower.map(
    (name) => `${name} ${first.metrics[name]!.mean.toFixed(3)} to ${last.metrics[name]!.mean.toFixed(3)}`,
  )
  const text = `the reward rises while held-out metrics fall: ${values.join(', ')}`
  return { kind: heldOutAlarm, task: '', step: last.step, text, advice: heldOutAdvice, samples: [] }
}
