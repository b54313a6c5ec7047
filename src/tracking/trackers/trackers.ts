// Several trackers as one. A failure becomes a warning; an unreachable tracker is dropped, or stops the run (`reportTimeout`).
import { basename, join, resolve } from 'node:path'
import { inTime, messageOf } from '../../core/index.ts'
import type { Interval, Metrics, Sample, SampleLine } from '../events.ts'
import { MlflowTracker } from './mlflow.ts'
import { pictureOf } from './pictures.ts'
import { TensorboardTracker } from './tensorboard.ts'
import type { Delivery, Picture, TrackedRun, Tracker, TrackerName } from './tracker.ts'
import { TrackioTracker, trackioFolder } from './trackio.ts'
import { WandbTracker } from './wandb.ts'

/** Pictures of the first step and of each that is a multiple: they cost more than numbers. */
const pictureSteps = 25
const picturesAtOnce = 4
/** So many failures in a row, over so long, are more than a short outage. */
const outage = { failures: 5, ms: 10 * 60_000 }
const closeMs = 15_000

type Leaf = string | number | boolean
const secret = /(api_?key|secret|password|token|authorization)$/i

/** Settings by their full name; lists as text; secrets are left out. */
export function flatSettings(value: unknown, prefix = ''): Record<string, Leaf> {
  const flat: Record<string, Leaf> = {}
  for (const [key, inner] of Object.entries((value ?? {}) as Record<string, unknown>)) {
    const name = prefix === '' ? key : `${prefix}.${key}`
    if (secret.test(key)) continue
    if (typeof inner === 'string' || typeof inner === 'number' || typeof inner === 'boolean') flat[name] = inner
    else if (inner === null || Array.isArray(inner)) flat[name] = JSON.stringify(inner)
    else if (typeof inner === 'object') Object.assign(flat, flatSettings(inner, name))
  }
  return flat
}

export interface TrackersOptions {
  dir: string
  config: unknown
  resumedAt?: number
  /** Folders below the run folder. */
  folders: { images: string; tensorboard: string; wandb: string }
  notice(kind: string, text: string): void
  /** Trackers that somebody asked for: the run is to end when one fails for this long. Others are left alone. */
  asked?: { names: readonly TrackerName[]; seconds: number }
  /** Another way to open a tracker, for tests. */
  open?(name: TrackerName): Tracker
}

function open(name: TrackerName, run: TrackedRun, options: TrackersOptions, now: number): Tracker {
  if (name === 'tensorboard') return new TensorboardTracker(join(run.dir, options.folders.tensorboard), run, now)
  if (name === 'wandb') return new WandbTracker(join(process.env.WANDB_DIR ?? run.dir, options.folders.wandb), run, now)
  if (name === 'trackio') return new TrackioTracker(trackioFolder(), run)
  const uri = process.env.MLFLOW_TRACKING_URI
  if (!uri) throw new Error('MLFLOW_TRACKING_URI is not set')
  return new MlflowTracker(uri, run)
}

interface OpenTracker {
  name: TrackerName
  tracker: Tracker
  /** In a row, and since when, by a clock that nobody sets. */
  failures: number
  since: number
  /** When it failed last; a failure soon after another is not reported again. */
  last: number
}

/** A tracker that has failed for as long as the run may bear. */
export interface AwayTracker {
  name: TrackerName
  seconds: number
  /** What the last attempt said. */
  reason: string
}

export class Trackers {
  #trackers: OpenTracker[] = []
  #work: Promise<void> = Promise.resolve()
  /** Pictures that are being rendered. */
  #pending = 0
  #pictured = { step: -1, tasks: new Set<string>() }
  #away: AwayTracker | null = null
  readonly #options: TrackersOptions

  constructor(names: readonly TrackerName[], options: TrackersOptions) {
    this.#options = options
    const { dir, config, resumedAt } = options
    const run: TrackedRun = {
      dir: resolve(dir),
      name: basename(resolve(dir)),
      settings: flatSettings(config),
      resumedAt,
    }
    for (const name of new Set(names)) {
      try {
        const tracker = options.open?.(name) ?? open(name, run, options, Date.now())
        this.#trackers.push({ name, tracker, failures: 0, since: 0, last: Number.NEGATIVE_INFINITY })
      } catch (error) {
        options.notice('tracker', `${name}: could not be opened: ${messageOf(error)}`)
      }
    }
  }

  /** The first tracker that is unreachable for too long. */
  get away(): AwayTracker | null {
    return this.#away
  }

  step(step: number, metrics: Metrics): void {
    const now = Date.now()
    this.#each((tracker) => tracker.step(step, metrics, now))
  }

  eval(step: number, metrics: Readonly<Record<string, Interval>>): void {
    const now = Date.now()
    this.#each((tracker) => (tracker.eval ? tracker.eval(step, metrics, now) : 'waits'))
  }

  /** The first group of each task, in the steps that are pictured. */
  samples(samples: readonly (Sample | SampleLine)[]): void {
    const { step, loop } = samples[0] ?? {}
    const wanted = this.#trackers.some(({ tracker }) => tracker.pictures)
    if (step === undefined || !wanted || (step !== 1 && step % pictureSteps !== 0)) return
    if (this.#pictured.step !== step) this.#pictured = { step, tasks: new Set() }
    if (this.#pictured.tasks.has(loop!)) return
    this.#pictured.tasks.add(loop!)
    const now = Date.now()
    const group = samples.filter((sample) => sample.loop === loop).slice(0, picturesAtOnce)
    const chosen = group.map((one): Sample => ('line' in one ? JSON.parse(Buffer.from(one.line).toString()) : one))
    this.#pending++
    this.#work = this.#work.then(async () => {
      try {
        const { dir, folders } = this.#options
        const made = await Promise.all(chosen.map((sample) => pictureOf(dir, folders.images, sample)))
        const pictures = made.filter((picture): picture is Picture => picture !== undefined)
        if (pictures.length > 0)
          this.#each((tracker) => (tracker.pictures ? tracker.pictures(step, pictures, now) : 'waits'))
      } catch (error) {
        this.#options.notice('tracker', `pictures of step ${step} could not be rendered: ${messageOf(error)}`)
      } finally {
        this.#pending--
      }
    })
  }

  /** Resolves when everything is out, or after a while without an answer. Trackers that write files are done at once. */
  async close(reason: string | undefined): Promise<void> {
    const places = this.#trackers
    const open = new Set(places)
    const end = async (place: OpenTracker) => {
      try {
        await place.tracker.close(reason, Date.now())
      } catch (error) {
        this.#options.notice('tracker', `${place.name}: at the end: ${messageOf(error)}`)
      }
      open.delete(place)
    }
    const late = () => {
      for (const { name } of open) this.#options.notice('tracker', `${name}: at the end: not done within ${closeMs} ms`)
    }
    const endAll = () => {
      this.#trackers = []
      return Promise.all(places.map(end))
    }
    await inTime(this.#pending === 0 ? endAll() : this.#work.then(endAll), closeMs, late)
  }

  /** What throws at once and what is refused later are the same to a run. */
  #each(call: (tracker: Tracker) => Delivery): void {
    for (const place of [...this.#trackers]) {
      try {
        const delivery = call(place.tracker)
        if (delivery instanceof Promise)
          delivery.then(
            () => this.#worked(place),
            (error: unknown) => this.#failed(place, error),
          )
        else if (delivery !== 'waits') this.#worked(place)
      } catch (error) {
        this.#failed(place, error)
      }
    }
  }

  #worked(place: OpenTracker): void {
    place.failures = 0
    if (this.#away?.name === place.name) this.#away = null
  }

  #failed(place: OpenTracker, error: unknown): void {
    const { notice } = this.#options
    const now = performance.now()
    if (place.failures === 0) place.since = now
    if (place.failures === 0 && now - place.last > outage.ms) notice('tracker', `${place.name}: ${messageOf(error)}`)
    place.last = now
    place.failures++
    const ms = now - place.since
    const limit = this.#maxMs(place.name)
    if (place.failures < outage.failures || ms < (limit ?? outage.ms)) return
    const minutes = Math.round(ms / 60_000)
    if (limit !== null) this.#away ??= { name: place.name, seconds: Math.round(ms / 1000), reason: messageOf(error) }
    else {
      this.#trackers = this.#trackers.filter((other) => other !== place)
      notice('tracker', `${place.name}: failed ${place.failures} times in ${minutes} minutes and is left alone now`)
    }
  }

  /** Null: the run continues without it. */
  #maxMs(name: TrackerName): number | null {
    const { asked } = this.#options
    return asked && asked.seconds > 0 && asked.names.includes(name) ? 1000 * asked.seconds : null
  }
}
