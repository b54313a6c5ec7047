// A run folder followed while it grows: only what is new is read, nothing stays open, nothing is written.

import { type Stats, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { counted, isObject, type JsonObject, Mismatch, messageOf, tryJsonObject } from '../core/index.ts'
import type { RunEvent, TaskName, TimingLine } from './events.ts'
import { LineFollower, type LineSink } from './line-follower.ts'
import { MetricTable } from './metric-table.ts'
import { findTasks, toEvent, toTiming } from './parse.ts'
import { readDescription, runFiles } from './run-files.ts'
import { startFacts } from './run-reader.ts'
import { SampleIndex } from './sample-index.ts'

/** Bytes of a file read in one call of `poll`: a few tens of milliseconds, so that a server answers in between. */
const bytesAtOnce = 8 << 20

type NotStep = Exclude<RunEvent, { t: 'step' }>
interface Placed<T> {
  value: T
  start: number
}

/** Undefined for a file that is missing or cannot be asked for now. */
function statsOf(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false })
  } catch {
    return undefined // reading it reports why
  }
}

/** Lines of a file as steps with numbers and other events; both can be cut back to an offset. */
class EventSink<T> implements LineSink {
  readonly metrics = new MetricTable()
  others: Placed<T>[] = []
  bad = 0
  readonly #convert: (line: JsonObject) => T | undefined

  constructor(convert: (line: JsonObject) => T | undefined) {
    this.#convert = convert
  }

  line(bytes: Buffer, start: number): void {
    const line = tryJsonObject(bytes.toString())
    if (line?.t === 'step' && typeof line.step === 'number') {
      this.metrics.add(line.step, isObject(line.metrics) ? line.metrics : {}, start)
      return
    }
    const value = line && this.#convert(line)
    if (value) this.others.push({ value, start })
    else this.bad++
  }

  cut(offset: number): void {
    this.metrics.cutAt(offset)
    this.others = this.others.filter(({ start }) => start < offset)
    if (offset === 0) this.bad = 0
  }
}

/** A run folder read to its end. */
export function followWhole(dir: string): FollowedRun {
  if (!statsOf(join(dir, runFiles.events)))
    throw new Mismatch({ where: dir, expected: `a run folder with ${runFiles.events}`, got: 'none' })
  const run = new FollowedRun(dir)
  while (run.poll());
  return run
}

export class FollowedRun {
  readonly dir: string
  readonly name: string
  readonly samples: SampleIndex
  /** Records of each evaluation, as samples of a task with the round's name. */
  readonly evaluations: SampleIndex
  /** Grows with every change of anything but the samples. */
  version = 0
  /** Grows with every change of the samples. */
  samplesVersion = 0
  /** False until all samples are indexed. */
  samplesWhole = false
  config: unknown = {}
  environment: unknown = {}
  readonly #events = new EventSink<RunEvent>(toEvent)
  readonly #timing = new EventSink<TimingLine>(toTiming)
  readonly #files: Record<'events' | 'timing' | 'evaluations' | 'samples', LineFollower>
  /** Size and time of each description that was read. */
  readonly #described = new Map<string, string>()
  /** Why a file could not be read at the last look, by name. */
  readonly #unread = new Map<string, string>()

  constructor(dir: string) {
    this.dir = dir
    this.name = basename(resolve(dir))
    this.samples = new SampleIndex(join(dir, runFiles.samples))
    this.evaluations = new SampleIndex(join(dir, runFiles.evaluations))
    this.#files = {
      events: new LineFollower(join(dir, runFiles.events), this.#events),
      timing: new LineFollower(join(dir, runFiles.timing), this.#timing),
      samples: new LineFollower(this.samples.path, this.samples),
      evaluations: new LineFollower(this.evaluations.path, this.evaluations),
    }
  }

  /** Reads what is new; true: there is more, call again soon. */
  poll(budget = bytesAtOnce): boolean {
    const before = this.#state()
    const samplesBefore = this.#samplesState()
    const { events, timing, evaluations, samples } = this.#files
    this.config = this.#describe(runFiles.config, this.config)
    this.environment = this.#describe(runFiles.environment, this.environment)
    // Curves first: they are what one opens the page for.
    const moreCurves = [this.#read(events, budget), this.#read(timing, budget)].includes(true)
    const more = moreCurves || this.#read(evaluations, budget) || this.#read(samples, budget)
    this.samplesWhole = !more
    if (this.#state() !== before) this.version++
    if (this.#samplesState() !== samplesBefore) this.samplesVersion++
    return more
  }

  /** A file that cannot be read now is a problem of this run, tried again at the next call. */
  #read(file: LineFollower, budget: number): boolean {
    const name = basename(file.path)
    try {
      const more = file.read(budget)
      this.#unread.delete(name)
      return more
    } catch (error) {
      this.#unread.set(name, `${name} could not be read: ${messageOf(error)}`)
      return false
    }
  }

  #state(): string {
    const files = [this.#files.events, this.#files.timing]
    const described = [...this.#described.values(), ...this.#unread.values()]
    return [...files.map((file) => `${file.offset}${file.torn ? '~' : ''}`), ...described].join(' ')
  }

  #samplesState(): string {
    return `${this.#files.samples.offset} ${this.samples.count} ${this.samplesWhole}`
  }

  /** A JSON file of the folder, read anew when its size or time changed; what it was while it cannot be read. */
  #describe(name: string, known: unknown): unknown {
    const found = statsOf(join(this.dir, name))
    const mark = found ? `${found.size} ${found.mtimeMs} ${found.ctimeMs}` : 'none'
    if (this.#described.get(name) === mark) return known
    const read = readDescription(this.dir, name)
    if ('problem' in read) {
      if (read.canChange) this.#described.delete(name)
      else this.#described.set(name, mark)
      this.#unread.set(name, read.problem)
      return {}
    }
    this.#described.set(name, mark)
    this.#unread.delete(name)
    return read.value
  }

  /** What the seed decides: losses, rewards. */
  get metrics(): MetricTable {
    return this.#events.metrics
  }

  /** What a clock or an allocator decides: seconds, bytes. */
  get timing(): MetricTable {
    return this.#timing.metrics
  }

  /** Everything but the steps. */
  get events(): NotStep[] {
    return this.#events.others.map(({ value }) => value as NotStep)
  }

  /** Starts and resumes with their times; steps are in `timing`. */
  get sessions(): TimingLine[] {
    return this.#timing.others.map(({ value }) => value)
  }

  get lastStep(): number {
    return this.metrics.lastStep
  }

  /** How the run ended; undefined while it runs, and for a run that was killed. */
  get end(): { step: number; reason: string } | undefined {
    const last = this.#events.others.at(-1)?.value
    return last?.t === 'stop' && last.step >= this.lastStep ? { step: last.step, reason: last.reason } : undefined
  }

  /** Milliseconds since 1970 of the newest file; undefined for an empty folder. */
  get lastSign(): number | undefined {
    const { events, timing, samples } = this.#files
    const times = [events, timing, samples].flatMap(({ path }) => statsOf(path)?.mtimeMs ?? [])
    return times.length > 0 ? Math.max(...times) : undefined
  }

  /** Named by the run's start; else everything that has samples or its own mean reward. */
  get tasks(): TaskName[] {
    return findTasks(startFacts(this.events), this.metrics.names, this.samples.tasks.list)
  }

  /** Messages about what could not be read. */
  get problems(): string[] {
    const problems = [...this.#unread.values()]
    for (const { path, torn, sink } of Object.values(this.#files)) {
      const [name, { bad }] = [basename(path), sink]
      // A run that is being written has a torn line now and then; it is a problem in one that ended.
      if (torn && this.end) problems.push(`${name}: the last line is torn`)
      if (bad > 0) problems.push(`${name}: ${counted(bad, 'line')} could not be read`)
    }
    const leftOut = this.metrics.leftOut + this.timing.leftOut
    if (leftOut > 0) problems.push(`${leftOut} values have more names than can be shown`)
    return problems
  }
}
