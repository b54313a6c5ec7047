// One chat completion with retries, a rate limit and a circuit breaker around it.
import { log, Mismatch, messageOf, pause, redactor, stream, timerMs } from '../../core/index.ts'
import type { JudgeConfig } from '../config.ts'
import { JudgeFailure, postChat } from './chat.ts'
import { Breaker, Gate, Pacer } from './flow.ts'
import type { JudgeStats } from './stats.ts'
import { type JudgeTarget, judgeTarget } from './target.ts'

export interface ChatRequest {
  /** Empty: the request is one user message. */
  system: string
  user: string
  maxTokens: number
  temperature?: number
  /** Asks the server for JSON of this schema; a server that refuses is asked without it from then on. */
  schema?: { name: string; schema: Record<string, unknown> }
}

/** The key of a target, as a header takes it; servers without keys get the word none. */
function readKey(variable: string, env: NodeJS.ProcessEnv): string {
  const key = env[variable]?.trim() || 'none'
  if (/^[\x21-\x7e]+$/.test(key)) return key
  const expected = 'a key of printable ASCII characters without spaces'
  throw new Mismatch({ where: 'environment', field: variable, expected, got: 'other characters' })
}

export class JudgeClient {
  readonly #config: JudgeConfig
  readonly #stats: JudgeStats
  readonly #key: string
  /** For text that reaches a log or a file: a server may write the key back. Replies are parsed as they came. */
  readonly redact: (text: string) => string
  readonly #target: JudgeTarget
  readonly #gate: Gate
  readonly #pacer: Pacer
  readonly #breaker: Breaker
  readonly #jitter = stream('judge-jitter', process.pid)
  #takesSchema = true

  constructor(config: JudgeConfig, stats: JudgeStats, env: NodeJS.ProcessEnv = process.env) {
    this.#config = config
    this.#stats = stats
    this.#target = judgeTarget(config, env)
    this.#key = readKey(this.#target.keyVariable, env)
    this.redact = redactor([this.#key])
    this.#gate = new Gate(config.maxConcurrency)
    this.#pacer = new Pacer(config.requestsPerMinute)
    this.#breaker = new Breaker(config.breakerFailures, config.breakerOpenMs)
  }

  get breakerOpened(): number {
    return this.#breaker.opened
  }

  /** One tiny completion: a wrong address, key or model is reported before the run starts. */
  async health(): Promise<void> {
    const { baseUrl, host, isLocal, model, keyVariable } = this.#target
    if (!isLocal) log.info(`judge: captions are sent to ${host}`)
    try {
      await this.complete({ system: 'Reply with one word.', user: 'Say yes.', maxTokens: 4 })
    } catch (error) {
      if (!(error instanceof JudgeFailure)) throw error
      const hint = `check judge.baseUrl, judge.model (${model}) and the environment variable ${keyVariable}`
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
    await pause(Math.max(backoff, this.#pauseOf(failure)))
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
      const ms = this.#pauseOf(failure)
      if (ms > 0) this.#pacer.pause(ms)
      throw failure
    }
  }

  async #once(request: ChatRequest): Promise<string> {
    const signal = AbortSignal.timeout(timerMs(this.#config.timeoutMs))
    const start = performance.now()
    this.#stats.calls++
    try {
      return await this.#send(request, signal)
    } catch (error) {
      if (signal.aborted) throw new JudgeFailure(`no reply within ${this.#config.timeoutMs} ms`)
      throw error
    } finally {
      this.#stats.addLatency(performance.now() - start)
    }
  }

  async #send(request: ChatRequest, signal: AbortSignal): Promise<string> {
    const schema = this.#takesSchema ? request.schema : undefined
    const { model, baseUrl } = this.#target
    const system = request.system === '' ? [] : [{ role: 'system', content: request.system }]
    const body = {
      model,
      messages: [...system, { role: 'user', content: request.user }],
      temperature: request.temperature ?? 0,
      top_p: 1,
      max_tokens: request.maxTokens,
      ...(schema ? { response_format: { type: 'json_schema', json_schema: schema } } : {}),
    }
    try {
      return this.#textOf(await postChat({ baseUrl, key: this.#key }, body, signal))
    } catch (error) {
      const refused = error instanceof JudgeFailure && [400, 422].includes(error.status ?? 0)
      if (!schema || !refused) throw error
      this.#takesSchema = false
      return this.#send(request, signal)
    }
  }

  /** The reply may have any shape. */
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
    return message.content
  }

  #explain(error: unknown): JudgeFailure {
    const short = (text: string) => this.redact(text).slice(0, 300)
    if (error instanceof JudgeFailure) return new JudgeFailure(short(error.message), error)
    // fetch wraps the socket's error: the innermost one says what happened.
    let inner: unknown = error
    while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause
    return new JudgeFailure(short(`no readable reply: ${messageOf(inner)}`))
  }
}
