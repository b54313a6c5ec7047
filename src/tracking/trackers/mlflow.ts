// MLflow by its REST interface. Metrics are sent in batches during the run; an unreachable server gets them later. A resumed run
// sends from its log what the server did not get before.
import { isObject, Mismatch, messageOf, pause, readBody, redactor } from '../../core/index.ts'
import type { Interval, Metrics } from '../events.ts'
import { loggedMetrics, type Reached, readReached, writeReached } from './mlflow-reached.ts'
import { type Delivery, meansOf, type TrackedRun, type Tracker } from './tracker.ts'

const metricsAtOnce = 1000
const paramsAtOnce = 100
const flushMs = 3000
const answerMs = 10_000
const maxWaiting = 100_000
const longestParam = 500
/** A reply has a few kilobytes. */
const maxReplyBytes = 1 << 20
/** Milliseconds between the attempts at the end of a run. */
const lastPauses = [200, 1000]
/** Before any step is there: not even the settings, or they alone. */
const [nothing, settingsOnly] = [-2, -1]

interface Metric {
  key: string
  value: number | string
  timestamp: number
  step: number
}

class Refused extends Error {
  readonly status: number

  constructor(status: number, text: string) {
    super(text)
    this.status = status
  }
}

type Answer = Record<string, unknown>

/** MLflow allows few characters in names. */
const nameOf = (key: string) => key.replace(/[^\w\-. /]/g, '_').slice(0, 250)

/** Protobuf's JSON writes numbers that are none as strings. */
const jsonNumber = (value: number) => (Number.isFinite(value) ? value : String(value))

/** fetch says "fetch failed", and why in its cause. */
function reasonOf(error: unknown): string {
  const { message, code } = ((error as Error).cause ?? {}) as { message?: string; code?: string }
  return message || code || messageOf(error)
}

const metricsOf = (step: number, values: Metrics, timestamp: number): Metric[] =>
  Object.entries(values).map(([key, value]) => ({ key: nameOf(key), value: jsonNumber(value), timestamp, step }))

export class MlflowTracker implements Tracker {
  readonly #base: string
  readonly #headers: Record<string, string>
  /** For text of the server that reaches a log or a file: it may write the token or the password back. */
  readonly #redact: (text: string) => string
  readonly #run: TrackedRun
  #waiting: Metric[] = []
  /** What the server has, of this start and those before; null: it does not know the run yet. */
  #reached: Reached | null
  #greeted = false
  /** The last step with given metrics, and the last whose metrics are read from the run's log. */
  #last: number
  #logged: number
  #sending: Promise<void> | undefined
  #sentAt = Number.NEGATIVE_INFINITY

  constructor(uri: string, run: TrackedRun, environment: NodeJS.ProcessEnv = process.env) {
    const url = URL.canParse(uri) ? new URL(uri) : undefined
    if (!url || !/^https?:$/.test(url.protocol)) {
      throw new Mismatch({ where: 'mlflow', field: 'MLFLOW_TRACKING_URI', expected: 'an http address', got: 'another' })
    }
    const user = decodeURIComponent(url.username) || environment.MLFLOW_TRACKING_USERNAME
    const password = decodeURIComponent(url.password) || environment.MLFLOW_TRACKING_PASSWORD
    const token = environment.MLFLOW_TRACKING_TOKEN
    const login = user && Buffer.from(`${user}:${password ?? ''}`).toString('base64')
    const basic = login && `Basic ${login}`
    this.#redact = redactor([token, password, login])
    this.#headers = { 'Content-Type': 'application/json' }
    if (token || basic) this.#headers.Authorization = token ? `Bearer ${token}` : basic!
    this.#base = `${url.origin}${url.pathname.replace(/\/$/, '')}/api/2.0/mlflow`
    this.#run = run
    this.#last = this.#logged = run.resumedAt ?? settingsOnly
    this.#reached = readReached(run, this.#base)
  }

  step(step: number, metrics: Metrics, now: number): Delivery {
    return this.#add(step, metrics, now)
  }

  eval(step: number, metrics: Readonly<Record<string, Interval>>, now: number): Delivery {
    return this.#add(step, meansOf(metrics), now)
  }

  /** Never waits for the server: the answer is a promise that the run looks at beside its work. */
  #add(step: number, values: Metrics, now: number): Delivery {
    if (this.#waiting.length > maxWaiting && !this.#sending) {
      this.#waiting = [] // the run's log has them
      this.#logged = this.#last
    }
    this.#waiting.push(...metricsOf(step, values, now))
    this.#last = step
    const clock = performance.now()
    if (this.#sending || clock - this.#sentAt < flushMs) return 'waits'
    this.#sentAt = clock
    return this.#send()
  }

  #send(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined
    })
    return this.#sending
  }

  async #sendAll(): Promise<void> {
    const reached = await this.#greet()
    await this.#sendKept(reached)
    while (this.#waiting.length > 0) {
      const metrics = this.#waiting.slice(0, metricsAtOnce)
      await this.#ask('runs/log-batch', { run_id: reached.run_id, metrics })
      this.#waiting.splice(0, metrics.length)
      this.#note(reached, this.#waiting.length > 0 ? this.#waiting[0]!.step - 1 : this.#last)
    }
  }

  /** The run as the server knows it: that of an earlier start, or a new one. */
  async #greet(): Promise<Reached> {
    if (this.#reached && !this.#greeted && !(await this.#goesOn(this.#reached))) this.#reached = null
    this.#reached ??= { server: this.#base, run_id: await this.#create(), sent: nothing }
    this.#greeted = true
    if (this.#reached.sent === nothing) await this.#sendSettings(this.#reached)
    return this.#reached
  }

  /** False when the server has no such run any more. */
  async #goesOn({ run_id }: Reached): Promise<boolean> {
    try {
      await this.#ask('runs/update', { run_id, status: 'RUNNING' })
      return true
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return false
      throw error
    }
  }

  /** What is in the log and did not reach the server: of earlier starts, or too much to wait in memory. */
  async #sendKept(reached: Reached): Promise<void> {
    const until = this.#logged
    if (reached.sent >= until) return
    let metrics: Metric[] = []
    const send = async (sent: number) => {
      for (; metrics.length > 0; metrics = metrics.slice(metricsAtOnce))
        await this.#ask('runs/log-batch', { run_id: reached.run_id, metrics: metrics.slice(0, metricsAtOnce) })
      this.#note(reached, sent)
    }
    for (const { step, time, values } of loggedMetrics(this.#run.dir, reached.sent, until)) {
      const added = metricsOf(step, values, time)
      if (metrics.length + added.length > metricsAtOnce) await send(step - 1)
      metrics.push(...added)
    }
    await send(until)
  }

  #note(reached: Reached, sent: number): void {
    if (sent <= reached.sent) return
    reached.sent = sent
    writeReached(this.#run, reached)
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
    if (typeof id !== 'string' || this.#redact(id) !== id) throw new Error('the server gave the run no id')
    return id
  }

  async #sendSettings(reached: Reached): Promise<void> {
    const params = Object.entries(this.#run.settings).map(([key, value]) => {
      return { key: nameOf(key), value: String(value).slice(0, longestParam) }
    })
    for (let at = 0; at < params.length; at += paramsAtOnce) {
      await this.#ask('runs/log-batch', { run_id: reached.run_id, params: params.slice(at, at + paramsAtOnce) })
    }
    this.#note(reached, settingsOnly)
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
    try {
      return await this.#fetch(path, body)
    } catch (error) {
      const text = `${path.split('?')[0]}: ${this.#redact(reasonOf(error)).slice(0, 200)}`
      throw error instanceof Refused ? new Refused(error.status, text) : new Error(text)
    }
  }

  async #fetch(path: string, body: unknown): Promise<Answer> {
    const answer = await fetch(`${this.#base}/${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: this.#headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      redirect: 'error', // a key in the header goes to the named server alone
      signal: AbortSignal.timeout(answerMs),
    })
    const { text, whole } = await readBody(answer, maxReplyBytes)
    if (answer.status === 404 && body === undefined) return {}
    if (!answer.ok) throw new Refused(answer.status, `${answer.status} ${text}`)
    if (!whole) throw new Error(`reply of more than ${maxReplyBytes} bytes`)
    const reply: unknown = JSON.parse(text)
    return isObject(reply) ? reply : {}
  }

  async #sendAtLast(): Promise<void> {
    for (const ms of lastPauses) {
      try {
        return await this.#send()
      } catch {
        await pause(ms) // the last attempt reports why
      }
    }
    return this.#send()
  }

  async close(reason: string | undefined, now: number): Promise<void> {
    await this.#sending?.catch(() => {}) // reported when it happened; the rest is sent now
    await this.#sendAtLast()
    const status = reason === undefined ? 'FAILED' : reason === 'done' ? 'FINISHED' : 'KILLED'
    try {
      await this.#ask('runs/update', { run_id: this.#reached?.run_id, status, end_time: now })
    } catch (error) {
      throw new Error(`the end of the run: ${messageOf(error)}`)
    }
  }
}
