// What training did to the answers of a run: the first steps against the last ones, over time, and record by record. Everything is
// read from the run's folder; report, live page and terminal show the same object.
import { pushTo } from '../../core/index.ts'
import type { ReadSample, TaskName } from '../events.ts'
import type { FollowedRun } from '../follow.ts'
import type { SampleIndex } from '../sample-index.ts'
import { type Alarm, alarmPrefix, alarmsOf, windowSteps } from './alarms.ts'
import { examplesOf, type ItemName, itemKinds, itemNames, itemsOf, type WordShift, wordShifts } from './items.ts'
import { type Pairs, pairsOf } from './pairs.ts'
import { type Traits, traitsOf } from './traits.ts'

/** Answers of a window that are read, and of each place over time: a run of any size takes a fraction of a second. */
const maxAnswers = 640
const maxAnswersOverTime = 48
const maxPlaces = 12
const recordsNamed = 8

export interface BehaviourItem {
  name: ItemName | 'entropy'
  title: string
  unit: 'share' | 'ratio' | 'number'
  before: number
  after: number
  /** At the steps of `TaskBehaviour.steps`. */
  over: number[]
  /** Records of the last steps with the most of it. */
  records: string[]
}

export interface TaskBehaviour extends TaskName {
  /** First and last step of both windows. */
  before: [number, number]
  after: [number, number]
  /** Answers of both windows. */
  answers: [number, number]
  steps: number[]
  items: BehaviourItem[]
  gained: WordShift[]
  lost: WordShift[]
}

export interface Behaviour {
  alarms: Alarm[]
  tasks: TaskBehaviour[]
  pairs: Pairs | null
}

/** Rows of a task by step, in order. */
function rowsByStep(index: SampleIndex, task: string): Map<number, number[]> {
  const wanted = index.tasks.find(task)
  const rows = new Map<number, number[]>()
  for (let row = 0; row < index.count; row++) {
    if (index.task.at(row) === wanted) pushTo(rows, index.step.at(row), row)
  }
  return rows
}

interface Window {
  steps: [number, number]
  answers: Traits[]
}

/** Samples of the first steps of each task, and of its last ones. */
export function windowSamples(index: SampleIndex): ReadSample[] {
  return index.tasks.list.flatMap((task) => {
    const byStep = [...rowsByStep(index, task).values()]
    const last = byStep.slice(Math.max(windowSteps, byStep.length - windowSteps))
    return index.read([...byStep.slice(0, windowSteps), ...last].flat())
  })
}

class TaskReader {
  readonly steps: number[]
  readonly #index: SampleIndex
  readonly #rows: Map<number, number[]>

  constructor(index: SampleIndex, task: string) {
    this.#index = index
    this.#rows = rowsByStep(index, task)
    this.steps = [...this.#rows.keys()].sort((a, b) => a - b)
  }

  /** Answers of `count` steps from place `from`; groups are cut off at `limit`. */
  window(from: number, count: number, limit: number): Window {
    const steps = this.steps.slice(from, from + count)
    const rows = steps.flatMap((step) => this.#rows.get(step)!).slice(0, limit)
    return { steps: [steps[0]!, steps.at(-1)!], answers: this.#index.read(rows).map(traitsOf) }
  }
}

/** Places of up to `maxPlaces` windows from the first to the last. */
function placesOf(windows: number): number[] {
  const count = Math.min(maxPlaces, windows)
  const places = Array.from({ length: count }, (_, i) => Math.round((i * (windows - 1)) / Math.max(1, count - 1)))
  return [...new Set(places)]
}

function entropyOf(run: FollowedRun, task: string, windows: readonly Window[]): BehaviourItem[] {
  const { steps, values } = run.metrics.series(`${task}/entropy`)
  const over = windows.map(({ steps: [from, to] }) => {
    const own = values.filter((value, i) => steps[i]! >= from && steps[i]! <= to && Number.isFinite(value))
    return own.reduce((a, b) => a + b, 0) / own.length
  })
  const [before, after] = [over[0] ?? Number.NaN, over.at(-1) ?? Number.NaN]
  const title = 'entropy of a token, nats'
  return over.some(Number.isFinite)
    ? [{ name: 'entropy', title, unit: 'number', before, after, over, records: [] }]
    : []
}

function taskBehaviour(run: FollowedRun, task: TaskName): { shown: TaskBehaviour; alarms: Alarm[] } | null {
  const reader = new TaskReader(run.samples, task.name)
  const size = Math.min(windowSteps, Math.floor(reader.steps.length / 2))
  if (size === 0) return null
  const lastAt = reader.steps.length - size
  const [first, last] = [reader.window(0, size, maxAnswers), reader.window(lastAt, size, maxAnswers)]
  const windows = placesOf(lastAt + 1).map((at) => reader.window(at, size, maxAnswersOverTime))
  const [before, after, over] = [itemsOf(first.answers), itemsOf(last.answers), windows.map((w) => itemsOf(w.answers))]
  const items = itemNames.flatMap((name): BehaviourItem[] => {
    if (Number.isNaN(before[name]) && Number.isNaN(after[name])) return []
    const examples = examplesOf(name, last.answers, !(after[name] < before[name]))
    const records = [...new Set(examples.map(({ id }) => id))].slice(0, recordsNamed)
    const { title, unit } = itemKinds[name]
    return [{ name, title, unit, before: before[name], after: after[name], over: over.map((o) => o[name]), records }]
  })
  const shown: TaskBehaviour = {
    ...task,
    ...{ before: first.steps, after: last.steps, answers: [first.answers.length, last.answers.length] },
    steps: windows.map(({ steps }) => steps[1]),
    items: [...items, ...entropyOf(run, task.name, windows)],
    gained: wordShifts(first.answers, last.answers, 1),
    lost: wordShifts(first.answers, last.answers, -1),
  }
  return { shown, alarms: size < windowSteps ? [] : alarmsOf(first.answers, last.answers) }
}

/** Alarms that the run raised while it trained. */
export function raisedAlarms(run: FollowedRun): Alarm[] {
  return run.events.flatMap((event): Alarm[] => {
    if (event.t !== 'warning' || !event.kind.startsWith(alarmPrefix)) return []
    const kind = event.kind.slice(alarmPrefix.length)
    const samples = event.samples ?? []
    return [{ kind, task: samples[0]?.loop ?? '', step: event.step, text: event.text, advice: '', samples }]
  })
}

/** Also those of the last steps that the run did not raise, such as one of an older version. */
function allAlarms(run: FollowedRun, now: readonly Alarm[]): Alarm[] {
  const raised = raisedAlarms(run)
  const isKnown = (alarm: Alarm) => raised.some(({ kind, task }) => kind === alarm.kind && task === alarm.task)
  return [...raised, ...now.filter((alarm) => !isKnown(alarm))]
}

export function behaviourOf(run: FollowedRun): Behaviour {
  const tasks = run.tasks.flatMap((task) => taskBehaviour(run, task) ?? [])
  return {
    alarms: allAlarms(
      run,
      tasks.flatMap(({ alarms }) => alarms),
    ),
    tasks: tasks.map(({ shown }) => shown),
    pairs: pairsOf(run),
  }
}
