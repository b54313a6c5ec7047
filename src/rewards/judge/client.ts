// One chat completion from an OpenAI-compatible server, with retries of our own around the official client: its timeout
// ends with the headers, it follows redirects, and it knows nothing of the other requests.
import type OpenAI from 'openai'
import { log, Mismatch, messageOf, stream, timerMs } from '../../core/index.ts'
import type { JudgeConfig } from '../config.ts'
import { Breaker, Gate, Pacer, sleep } from './flow.ts'
import type { JudgeStats } from './stats.ts'

export interface ChatRequest {
  /** Empty: the request is one user message. */
  system: string
  user: string
  maxTokens: number
  temperature?: number
  /** Asks the server for JSON of this schema; a server that refuses is asked without it from then on. */
  schema?: { name: string; schema: Record<string, unknown> }
}

/** The judge gave no usable reply. `fatal` means that asking again cannot help. */
export class JudgeFailure extends Error {
  readonly status: number | undefined
  readonly fatal: boolean
  readonly retryAfterMs: number | undefined

  constructor(message: string, info: { status?: number; fatal?: boolean; retryAfterMs?: number } = {}) {
    super(message)
    this.name = 'JudgeFailure'
    this.status = info.status
    this.fatal = info.fatal ?? false
    this.retryAfterMs = info.retryAfterMs
  }
}

const passing = new Set([408, 409, 425, 429])
/** A chat reply is a few kilobytes; more is not a judge. */
const maxBodyBytes = 1 << 20

function retryAfter(headers: Headers | undefined): number | undefined {
  const value = headers?.get('retry-after')
  if (!value) return undefined
  const seconds = Number(value)
  const ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - Date.now()
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined
}

async function readCapped(response: Response): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of response.body ?? []) {
    size += part.length
    if (size > maxBodyBytes) throw new JudgeFailure(`reply of more than ${maxBodyBytes} bytes`)
    parts.push(part)
  }
  return new Uint8Array(Buffer.concat(parts))
}

/** Like fetch, but never follows a redirect (the key would travel) and never reads without end. */
async function guardedFetch(url: string | URL | Request, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, { ...init, redirect: 'manual' })
  if (response.status >= 300 && response.status < 400) {
    await response.body?.cancel()
    const target = response.headers.get('location') ?? 'nowhere'
    throw new JudgeFailure(`redirected to ${target}; redirects are not followed`, {
      status: response.status,
      fatal: true,
    })
  }
  const body = await readCapped(response)
  return new Response(body.length > 0 ? body : null, { status: response.status, headers: response.headers })
}

/** The HTTP status that the client's error carries, if it is about one. */
function statusOf(error: unknown): number | undefined {
  const status = error instanceof Error && 'status' in error ? error.status : undefined
  return typeof status === 'number' ? status : undefined
}

function causeOf(error: unknown): JudgeFailure | undefined {
  for (let e: unknown = error; e instanceof Error; e = e.cause) if (e instanceof JudgeFailure) return e
  return undefined
}

export class JudgeClient {
  readonly #config: JudgeConfig
  readonly #stats: JudgeStats
  readonly #key: string
  /** Loaded at the first call: a run without a judge does not pay for it. */
  #api: Promise<OpenAI> | undefined
  readonly #gate: Gate
  readonly #pacer: Pacer
  readonly #breaker: Breaker
  readonly #jitter = stream('judge-jitter', process.pid)
  #takesSchema = true

  constructor(config: JudgeConfig, stats: JudgeStats, env: NodeJS.ProcessEnv = process.env) {
    this.#config = config
    this.#stats = stats
    this.#key = env[config.apiKeyEnv]?.trim() || 'none'
    this.#gate = new Gate(config.maxConcurrency)
    this.#pacer = new Pacer(config.requestsPerMinute)
    this.#breaker = new Breaker(config.breakerFailures, config.breakerOpenMs)
  }

  async #load(): Promise<OpenAI> {
    const { default: Client } = await import('openai')
    return new Client({
      baseURL: this.#config.baseUrl,
      apiKey: this.#key,
      adminAPIKey: null,
      organization: null,
      project: null,
      maxRetries: 0,
      timeout: timerMs(this.#config.timeoutMs),
      logLevel: 'off',
      fetch: guardedFetch,
    })
  }

  get breakerOpened(): number {
    return this.#breaker.opened
  }

  /** Text with the key taken out: a server may echo it, and what it says reaches logs and files. */
  redact(text: string): string {
    return this.#key === 'none' ? text : text.replaceAll(this.#key, '[key]')
  }

  /** One tiny completion: a wrong address, key or model is told before the run starts. */
  async health(): Promise<void> {
    const { baseUrl, model, apiKeyEnv } = this.#config
    const host = new URL(baseUrl).hostname
    if (!['localhost', '127.0.0.1', '[::1]', '::1'].includes(host)) log.info(`judge: captions are sent to ${host}`)
    try {
      await this.complete({ system: 'Reply with one word.', user: 'Say yes.', maxTokens: 4 })
    } catch (error) {
      if (!(error instanceof JudgeFailure)) throw error
      const hint = `check judge.baseUrl, judge.model (${model}) and the environment variable ${apiKeyEnv}`
      throw new Mismatch({ where: 'judge', field: baseUrl, expected: 'a chat completion', got: error.message, hint })
    }
  }

  /** The reply's text, possibly empty; a JudgeFailure after the last attempt. */
  async complete(request: ChatRequest): Promise<string> {
    const admission = this.#breaker.admit()
    if (admission === 'refused') {
      this.#stats.failures++
      throw new JudgeFailure('not asked: the last calls all failed')
    }
    try {
      const text = await this.#withRetries(request)
      this.#breaker.succeed()
      return text
    } catch (error) {
      this.#breaker.fail(admission)
      this.#stats.failures++
      throw error
    }
  }

  async #withRetries(request: ChatRequest): Promise<string> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#gate.run(() => this.#inTurn(request))
      } catch (error) {
        if (!(error instanceof JudgeFailure) || error.fatal || attempt >= this.#config.retries) throw error
        this.#stats.retries++
        await this.#wait(error, attempt)
      }
    }
  }

  async #wait(failure: JudgeFailure, attempt: number): Promise<void> {
    const backoff = this.#config.retryBaseMs * 2 ** attempt * (0.8 + 0.4 * this.#jitter.uniform())
    await sleep(Math.max(backoff, this.#pauseOf(failure)))
  }

  #pauseOf(failure: JudgeFailure): number {
    return Math.min(failure.retryAfterMs ?? 0, this.#config.retryAfterMaxMs)
  }

  async #inTurn(request: ChatRequest): Promise<string> {
    await this.#pacer.turn()
    try {
      return await this.#once(request)
    } catch (error) {
      const failure = this.#explain(error)
      // "Too many" and "busy" concern every request, so the next must not slip through before the pause.
      const pause = this.#pauseOf(failure)
      if (pause > 0) this.#pacer.pause(pause)
      throw failure
    }
  }

  async #once(request: ChatRequest): Promise<string> {
    const abort = new AbortController()
    const timer = setTimeout(() => abort.abort(), timerMs(this.#config.timeoutMs))
    const start = performance.now()
    this.#stats.calls++
    try {
      return await this.#send(request, abort.signal)
    } catch (error) {
      if (abort.signal.aborted) throw new JudgeFailure(`no reply within ${this.#config.timeoutMs} ms`)
      throw error
    } finally {
      clearTimeout(timer)
      this.#stats.addLatency(performance.now() - start)
    }
  }

  async #send(request: ChatRequest, signal: AbortSignal): Promise<string> {
    const schema = this.#takesSchema ? request.schema : undefined
    try {
      this.#api ??= this.#load()
      const reply = await (await this.#api).chat.completions.create(
        {
          model: this.#config.model,
          messages: [
            ...(request.system === '' ? [] : [{ role: 'system' as const, content: request.system }]),
            { role: 'user', content: request.user },
          ],
          temperature: request.temperature ?? 0,
          top_p: 1,
          max_tokens: request.maxTokens,
          ...(schema ? { response_format: { type: 'json_schema' as const, json_schema: schema } } : {}),
        },
        { signal },
      )
      return this.#textOf(reply)
    } catch (error) {
      const refused = [400, 422].includes(statusOf(error) ?? 0)
      if (!schema || !refused) throw error
      this.#takesSchema = false
      return this.#send(request, signal)
    }
  }

  /** The network's word is not trusted to have the client's types. */
  #textOf(reply: unknown): string {
    const body = reply as { choices?: unknown; usage?: { prompt_tokens?: unknown; completion_tokens?: unknown } } | null
    if (typeof body !== 'object' || body === null || !Array.isArray(body.choices) || body.choices.length === 0) {
      throw new JudgeFailure('reply without a choice')
    }
    const count = (n: unknown) => (typeof n === 'number' && n >= 0 ? n : 0)
    this.#stats.tokensIn += count(body.usage?.prompt_tokens)
    this.#stats.tokensOut += count(body.usage?.completion_tokens)
    const message = (body.choices[0] as { message?: { content?: unknown; refusal?: unknown } } | null)?.message
    if (typeof message?.refusal === 'string' && message.refusal !== '') return ''
    if (typeof message?.content !== 'string') throw new JudgeFailure('reply without text')
    return this.redact(message.content)
  }

  #explain(error: unknown): JudgeFailure {
    const known = causeOf(error)
    if (known) return new JudgeFailure(this.redact(known.message), known)
    const status = statusOf(error)
    if (status !== undefined) {
      const fatal = status < 500 && !passing.has(status)
      const { headers } = error as { headers?: Headers }
      return new JudgeFailure(this.redact(messageOf(error)).slice(0, 300), {
        status,
        fatal,
        retryAfterMs: retryAfter(headers),
      })
    }
    // The client wraps fetch's error, which wraps the socket's: the innermost one says what happened.
    let inner: unknown = error
    while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause
    return new JudgeFailure(this.redact(`no readable reply: ${messageOf(inner)}`).slice(0, 300))
  }
}
