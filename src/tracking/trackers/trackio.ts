// trackio: fragments of lines in its inbox, which its dashboard takes over and knows by their log_id.
import { randomBytes } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { atomicWrite, sha256 } from '../../core/index.ts'
import type { Interval, Metrics } from '../events.ts'
import { encodeLine } from '../json-lines.ts'
import { meansOf, type TrackedRun, type Tracker } from './tracker.ts'

/** A fragment is written when it has this many lines or is this old. */
const maxLines = 50
const maxMs = 5000

export function trackioFolder(environment: NodeJS.ProcessEnv = process.env): string {
  const { TRACKIO_DIR, HF_HOME } = environment
  return TRACKIO_DIR || join(HF_HOME || join(homedir(), '.cache', 'huggingface'), 'trackio')
}

export class TrackioTracker implements Tracker {
  readonly #inbox: string
  readonly #run: TrackedRun
  readonly #runId: string
  readonly #project: string
  #lines: unknown[] = []
  #since = 0
  #sequence = 0
  #first = true

  constructor(folder: string, run: TrackedRun, project = process.env.TRACKIO_PROJECT ?? 'roundtrip') {
    this.#inbox = join(folder, 'inbox', randomBytes(8).toString('hex'))
    mkdirSync(this.#inbox, { recursive: true })
    this.#run = run
    this.#project = project
    this.#runId = sha256(run.dir).slice(0, 16)
  }

  step(step: number, metrics: Metrics, now: number): void {
    this.#add('step', step, metrics, now)
  }

  eval(step: number, metrics: Readonly<Record<string, Interval>>, now: number): void {
    this.#add('eval', step, meansOf(metrics), now)
  }

  #add(what: string, step: number, metrics: Metrics, now: number): void {
    if (this.#lines.length === 0) this.#since = performance.now()
    this.#lines.push({
      v: 1,
      kind: 'metric',
      project: this.#project,
      run: this.#run.name,
      run_id: this.#runId,
      metrics,
      step,
      timestamp: new Date(now).toISOString(),
      config: this.#first ? this.#run.settings : null,
      log_id: `${this.#runId}-${what}-${step}`,
    })
    this.#first = false
    if (this.#lines.length >= maxLines || performance.now() - this.#since >= maxMs) this.#flush()
  }

  /** Under another name first: the dashboard never sees half a fragment. */
  #flush(): void {
    if (this.#lines.length === 0) return
    const path = join(this.#inbox, `${String(this.#sequence++).padStart(8, '0')}.jsonl`)
    atomicWrite(path, this.#lines.map(encodeLine).join(''), false)
    this.#lines = []
  }

  close(): void {
    this.#flush()
  }
}
