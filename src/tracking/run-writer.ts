import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import {
  atomicWrite,
  atomicWriteJson,
  log,
  Mismatch,
  parseJson,
  readTextFile,
  requireBelow,
  requireOwnFolder,
  sha256,
} from '../core/index.ts'
import { BufferedLines } from './buffered-lines.ts'
import type { EvalEvent, Metrics, RunEvent, Sample, SampleLine, SampleRef } from './events.ts'
import { noRoomError } from './json-lines.ts'
import { runFiles } from './run-files.ts'
import type { TrackerName } from './trackers/tracker.ts'
import { type AwayTracker, Trackers } from './trackers/trackers.ts'

/** Where the files end whose lines the seed decides; a checkpoint stores it and a resume cuts back to it. */
export interface RunPosition {
  events: number
  samples: number
  /** Absent in older checkpoints. */
  evaluations?: number
}

export interface RunWriterOptions {
  /** Also write TensorBoard event files under tensorboard/; the same as 'tensorboard' in `reportTo`. */
  tensorboard?: boolean
  /** Trackers that get the metrics too. */
  reportTo?: readonly TrackerName[]
  /** Seconds that one of `reportTo` may fail before `trackerAway` says so; 0: it is left alone after a while. */
  reportTimeout?: number
}

export interface NewRun extends RunWriterOptions {
  /** The resolved configuration. */
  config: unknown
  /** Versions, device, host: what the machine was. */
  environment: unknown
}

/** `Sample.image` of a record: the name of its picture. */
export function imageName(id: string): string {
  return `${id.replace(/[^A-Za-z0-9_-]+/g, '_').slice(0, 40)}-${sha256(id).slice(0, 8)}.png`
}

/** The one writer of a run folder. Every line is on its way to the disk when its call returns. */
export class RunWriter {
  readonly dir: string
  readonly #events: BufferedLines
  readonly #samples: BufferedLines
  readonly #evaluations: BufferedLines
  readonly #timing: BufferedLines
  /** config.json and environment.json as they are, to put them back where somebody deletes the folder. */
  readonly #described = new Map<string, string>()
  #trackers: Trackers | undefined
  #stopped: string | undefined
  #step = 0
  #closed = false

  private constructor(dir: string) {
    this.dir = dir
    for (const name of [runFiles.events, runFiles.samples, runFiles.evaluations, runFiles.timing]) {
      if (existsSync(join(dir, name))) requireBelow(dir, name) // opening cuts a file: never one that a link leads to elsewhere
    }
    for (const name of [runFiles.images, runFiles.tensorboard, runFiles.wandb]) requireOwnFolder(dir, name)
    this.#events = new BufferedLines(join(dir, runFiles.events))
    this.#samples = new BufferedLines(join(dir, runFiles.samples))
    this.#evaluations = new BufferedLines(join(dir, runFiles.evaluations))
    this.#timing = new BufferedLines(join(dir, runFiles.timing))
    for (const file of this.#files) {
      if (file.dropped > 0) log.warn(`${file.path}: cut off ${file.dropped} bytes of a torn last line`)
    }
    for (const name of [runFiles.config, runFiles.environment]) {
      const path = join(dir, name)
      if (existsSync(path)) this.#described.set(path, readTextFile(path))
    }
  }

  /** A new run. A folder that already holds one is refused: nothing is overwritten. */
  static create(dir: string, run: NewRun): RunWriter {
    if (existsSync(join(dir, runFiles.events))) {
      throw new Mismatch({
        where: dir,
        expected: 'a folder without a run',
        got: `one that holds ${runFiles.events}`,
        hint: 'resume that run or choose another output folder',
      })
    }
    mkdirSync(dir, { recursive: true })
    refuseLostLog(dir)
    writeJson(join(dir, runFiles.config), run.config)
    writeJson(join(dir, runFiles.environment), run.environment)
    const writer = new RunWriter(dir)
    writer.#time('start', 0)
    writer.#track(run, run.config)
    return writer
  }

  /** Opens a run to resume from a checkpoint: later lines, and the note that the run stopped, are cut off. */
  static resume(dir: string, step: number, position: RunPosition | undefined, options: RunWriterOptions): RunWriter {
    if (!existsSync(join(dir, runFiles.events))) {
      throw new Mismatch({ where: dir, expected: `a run folder with ${runFiles.events}`, got: 'none' })
    }
    const writer = new RunWriter(dir)
    if (position) writer.truncateTo(position)
    else writer.truncateAfter(step)
    writer.#step = Math.max(0, step)
    writer.#time('resume', step)
    const described = writer.#described.get(join(dir, runFiles.config))
    writer.#track(options, described === undefined ? {} : parseJson(described, join(dir, runFiles.config)), step)
    return writer
  }

  #track(options: RunWriterOptions, config: unknown, resumedAt?: number): void {
    const names = [...(options.tensorboard ? (['tensorboard'] as const) : []), ...(options.reportTo ?? [])]
    if (names.length === 0) return
    const notice = (kind: string, text: string) => {
      log.warn(text)
      if (!this.#closed) this.notice(kind, text)
    }
    const asked = { names: options.reportTo ?? [], seconds: options.reportTimeout ?? 0 }
    this.#trackers = new Trackers(names, { dir: this.dir, config, resumedAt, folders: runFiles, notice, asked })
  }

  /** A tracker that has failed for longer than it may. */
  get trackerAway(): AwayTracker | null {
    return this.#trackers?.away ?? null
  }

  get #files(): BufferedLines[] {
    return [this.#events, this.#samples, this.#evaluations, this.#timing]
  }

  /** Facts the seed and the data decide: at the beginning of a run, and where a resumed run changes them. */
  start(facts: Readonly<Record<string, unknown>>, step = 0): void {
    this.#event({ t: 'start', step, facts })
  }

  /** `timing` takes what a clock or an allocator decides: seconds, tokens per second, bytes in use. */
  step(step: number, metrics: Metrics, timing: Metrics = {}): void {
    this.#step = step
    this.#event({ t: 'step', step, metrics })
    this.#time('step', step, timing)
    this.#trackers?.step(step, { ...metrics, ...timing })
  }

  /** `rows`: each record as a sample of a task with the round's name. */
  eval(step: number, name: string, records: number, metrics: EvalEvent['metrics'], rows: readonly Sample[] = []): void {
    if (rows.length > 0) this.#put(this.#evaluations, ...rows)
    this.#event({ t: 'eval', step, name, records, metrics })
    this.#trackers?.eval(step, metrics)
  }

  warning(step: number, kind: string, text: string, count = 1, samples?: readonly SampleRef[]): void {
    this.#event({ t: 'warning', step, kind, text, count, ...(samples && { samples }) })
  }

  /** The same for facts that belong to no step: logged at the current step. */
  notice(kind: string, text: string, count = 1): void {
    this.warning(this.#step, kind, text, count)
  }

  /** To be noted before the checkpoint is written, so that the checkpoint's own position includes the note. */
  checkpoint(step: number, name: string): void {
    this.#event({ t: 'checkpoint', step, name })
  }

  /** Size of samples.jsonl. */
  get sampleBytes(): number {
    return this.#samples.size
  }

  samples(samples: readonly (Sample | SampleLine)[]): void {
    if (samples.length === 0) return
    this.#put(this.#samples, ...samples.map((sample) => ('line' in sample ? sample.line : sample)))
    this.#trackers?.samples(samples)
  }

  #imagePath(id: string): string {
    return join(this.dir, runFiles.images, imageName(id))
  }

  hasImage(id: string): boolean {
    return (statSync(this.#imagePath(id), { throwIfNoEntry: false })?.size ?? 0) > 0
  }

  /** Keeps a record's image for the report, once. */
  image(id: string, png: Uint8Array): void {
    if (this.hasImage(id)) return
    const path = this.#imagePath(id)
    mkdirSync(dirname(path), { recursive: true })
    inRoom(path, png.length, () => atomicWrite(path, png, false))
  }

  stop(step: number, reason: string): void {
    this.#stopped = reason
    this.#event({ t: 'stop', step, reason })
    this.#time('stop', step)
  }

  /**
   * Synced to the disk first: a checkpoint never points past what survives a power loss. Lines that waited for room are
   * written if there is some now, else they follow it. A folder that was deleted under the run is put back first.
   */
  position(): RunPosition {
    this.#checkPlace()
    for (const file of this.#files) if (file.waiting > 0) this.#put(file)
    this.#events.sync()
    this.#samples.sync()
    this.#evaluations.sync()
    return { events: this.#events.size, samples: this.#samples.size, evaluations: this.#evaluations.size }
  }

  truncateTo(position: RunPosition): void {
    this.#events.truncateTo(position.events)
    this.#samples.truncateTo(position.samples)
    if (position.evaluations !== undefined) this.#evaluations.truncateTo(position.evaluations)
  }

  /** Cuts off all that is of a later step, and the note that the run stopped. */
  truncateAfter(step: number): void {
    const isLater = (line: Record<string, unknown>) => line.t === 'stop' || Number(line.step) > step
    this.#events.truncateBefore(isLater)
    this.#samples.truncateBefore(isLater)
    this.#evaluations.truncateBefore(isLater)
  }

  /** The files are closed when the call returns; the promise waits for trackers that answer over the network. */
  async close(): Promise<void> {
    const closing = this.#trackers?.close(this.#stopped)
    this.#trackers = undefined
    this.#closeFiles()
    await closing
  }

  #closeFiles(): void {
    this.#closed = true
    for (const file of this.#files) {
      const missing = file.waiting + file.lost
      if (missing > 0) log.warn(`${file.path}: ${missing} lines are not in the file: there was no room for them`)
    }
    for (const file of this.#files) file.close()
  }

  #event(event: RunEvent): void {
    this.#put(this.#events, event)
  }

  /** Lines that had to wait are reported once they are written: such a log differs from an undisturbed one by the warning. */
  #put(file: BufferedLines, ...values: readonly unknown[]): void {
    const late = file.put(...values)
    if (late === 0) return
    const text = `${basename(file.path)}: there was no room on the disk; these lines were written late`
    this.notice('log-late', text, late)
  }

  #checkPlace(): void {
    const files = this.#files
    const replaced = files.find((file) => file.place() === 'other')
    if (replaced) {
      throw new Mismatch({
        where: replaced.path,
        expected: 'the log this run writes',
        got: 'another file of that name',
        hint: 'two runs use one output folder, or the folder was replaced; choose another output folder',
      })
    }
    const gone = files.filter((file) => file.place() === 'gone')
    if (gone.length === 0) return
    mkdirSync(this.dir, { recursive: true })
    for (const file of gone) file.putBack()
    for (const [path, text] of this.#described) if (!existsSync(path)) atomicWrite(path, text)
    const names = gone.map((file) => basename(file.path)).join(', ')
    log.warn(`${this.dir}: ${names}: deleted while the run was writing; put back`)
    this.notice('log-deleted', `${names}: deleted while the run was writing; put back`, gone.length)
  }

  #time(t: string, step: number, metrics?: Metrics): void {
    this.#put(this.#timing, { t, step, time: Date.now(), ...(metrics && { metrics }) })
  }
}

/** Checkpoints without a log are of a run whose log was lost: a new run among them would mix the two. */
function refuseLostLog(dir: string): void {
  const checkpoint = readdirSync(dir).find((name) => /^checkpoint_step_\d+$/.test(name))
  if (checkpoint === undefined) return
  throw new Mismatch({
    where: dir,
    expected: 'a folder without a run',
    got: `${checkpoint} and no ${runFiles.events}`,
    hint: 'the log of an earlier run was lost; put it back to resume that run, or choose another output folder',
  })
}

function inRoom(path: string, bytes: number, write: () => void): void {
  try {
    write()
  } catch (error) {
    throw noRoomError(error, path, bytes)
  }
}

function writeJson(path: string, value: unknown): void {
  inRoom(path, JSON.stringify(value)?.length ?? 0, () => atomicWriteJson(path, value))
}
