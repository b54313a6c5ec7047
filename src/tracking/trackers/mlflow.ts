// MLflow by its REST interface. Figures go out in batches while the run goes on; a server that is away gets them later.
import { Mismatch, messageOf } from '../../core/index.ts'
import type { Interval, Metrics } from '../events.ts'
import type { TrackedRun, Tracker } from './tracker.ts'

const metricsAtOnce = 1000
const paramsAtOnce = 100
const flushMs = 3000
const answerMs = 10_000
const mostWaiting = 100_000
const longestParam = 500
/** Milliseconds between the attempts at the end of a run. */
const lastPauses = [200, 1000]

interface Metric {
  key: string
  value: number | string
  timestamp: number
  step: number
}

type Answer = Record<string, unknown>

/** MLflow allows few characters in names. */
const nameOf = (key: string) => key.replace(/[^\w\-. /]/g, '_').slice(0, 250)

/** Protobuf's JSON writes numbers that are none as strings. */
const jsonNumber = (value: number) => (Number.isFinite(value) ? value : String(value))

export class MlflowTracker implements Tracker {
  readonly #base: string
  readonly #headers: Record<string, string>
  readonly #run: TrackedRun
  #waiting: Metric[] = []
  #runId: string | undefined
  #sending: Promise<void> | undefined
  #sentAt = 0

  constructor(uri: string, run: TrackedRun, environment: NodeJS.ProcessEnv = process.env) {
    const url = URL.canParse(uri) ? new URL(uri) : undefined
    if (!url || !/^https?:$/.test(url.protocol)) {
      throw new Mismatch({ where: 'mlflow', field: 'MLFLOW_TRACKING_URI', expected: 'an http address', got: 'another' })
    }
    const user = decodeURIComponent(url.username) || environment.MLFLOW_TRACKING_USERNAME
    const password = decodeURIComponent(url.password) || environment.MLFLOW_TRACKING_PASSWORD
    const token = environment.MLFLOW_TRACKING_TOKEN
    const basic = user && `Basic ${Buffer.from(`${user}:${password ?? ''}`).toString('base64')}`
    this.#headers = { 'Content-Type': 'application/json' }
    if (token || basic) this.#headers.Authorization = token ? `Bearer ${token}` : basic!
    this.#base = `${url.origin}${url.pathname.replace(/\/$/, '')}/api/2.0/mlflow`
    this.#run = run
  }

  step(step: number, metrics: Metrics, now: number): Promise<void> | undefined {
    return this.#add(step, Object.entries(metrics), now)
  }

  eval(step: number, metrics: Readonly<Record<string, Interval>>, now: number): Promise<void> | undefined {
    const means = Object.entries(metrics).map(([key, { mean }]): [string, number] => [`eval/${key}`, mean])
    return this.#add(step, means, now)
  }

  /** Never waits for the server: the answer is a promise that the run looks at beside its work. */
  #add(step: number, values: readonly [string, number][], now: number): Promise<void> | undefined {
    if (this.#waiting.length + values.length > mostWaiting)
      throw new Error(`${mostWaiting} figures wait for the server`)
    for (const [key, value] of values)
      this.#waiting.push({ key: nameOf(key), value: jsonNumber(value), timestamp: now, step })
    if (this.#sending || now - this.#sentAt < flushMs) return undefined
    this.#sentAt = now
    return this.#send()
  }

  #send(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined
    })
    return this.#sending
  }

  async #sendAll(): Promise<void> {
    this.#runId ??= await this.#create()
    while (this.#waiting.length > 0) {
      const metrics = this.#waiting.slice(0, metricsAtOnce)
      await this.#ask('runs/log-batch', { run_id: this.#runId, metrics })
      this.#waiting.splice(0, metrics.length)
    }
  }

  async #create(): Promise<string> {
    const experiment = await this.#experiment(process.env.MLFLOW_EXPERIMENT_NAME ?? 'roundtrip')
    const made = await this.#ask('runs/create', {
      experiment_id: experiment,
      run_name: this.#run.name,
      start_time: Date.now(),
      tags: [{ key: 'mlflow.source.name', value: 'roundtrip' }],
    })
    const id = (made.run as { info?: { run_id?: unknown } } | undefined)?.info?.run_id
    if (typeof id !== 'string') throw new Error('the server gave the run no id')
    const params = Object.entries(this.#run.settings).map(([key, value]) => {
      return { key: nameOf(key), value: String(value).slice(0, longestParam) }
    })
    for (let at = 0; at < params.length; at += paramsAtOnce) {
      await this.#ask('runs/log-batch', { run_id: id, params: params.slice(at, at + paramsAtOnce) })
    }
    return id
  }

  async #experiment(name: string): Promise<string> {
    const found = await this.#ask(`experiments/get-by-name?experiment_name=${encodeURIComponent(name)}`)
    const known = (found.experiment as { experiment_id?: unknown } | undefined)?.experiment_id
    const id = known ?? (await this.#ask('experiments/create', { name })).experiment_id
    if (typeof id !== 'string') throw new Error('the server gave the experiment no id')
    return id
  }

  /** GET without a body, else POST. An experiment that is not there is an empty answer; all other refusals throw. */
  async #ask(path: string, body?: unknown): Promise<Answer> {
    const answer = await fetch(`${this.#base}/${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: this.#headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      redirect: 'error', // a key in the header goes to the named server alone
      signal: AbortSignal.timeout(answerMs),
    })
    if (answer.status === 404 && body === undefined) return {}
    if (!answer.ok) throw new Error(`${path.split('?')[0]}: ${answer.status} ${(await answer.text()).slice(0, 200)}`)
    return (await answer.json()) as Answer
  }

  async #sendAtLast(): Promise<void> {
    for (const pause of lastPauses) {
      try {
        return await this.#send()
      } catch {
        await new Promise((done) => setTimeout(done, pause)) // the last attempt tells why
      }
    }
    return this.#send()
  }

  async close(reason: string | undefined, now: number): Promise<void> {
    await this.#sending?.catch(() => {}) // told when it happened; what it left is sent now
    await this.#sendAtLast()
    const status = reason === undefined ? 'FAILED' : reason === 'done' ? 'FINISHED' : 'KILLED'
    try {
      await this.#ask('runs/update', { run_id: this.#runId, status, end_time: now })
    } catch (error) {
      throw new Error(`the end of the run: ${messageOf(error)}`)
    }
  }
}
