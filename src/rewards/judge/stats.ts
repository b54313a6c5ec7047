/** Captions that a judge was asked about, and how many of them it scored. */
export interface JudgeCount {
  scored: number
  asked: number
  /** Why the last one without a score has none. */
  reason: string | null
}

/** Counts of a judge since its start, and the latencies of its last calls. */
export class JudgeStats {
  calls = 0
  retries = 0
  failures = 0
  cacheHits = 0
  cacheMisses = 0
  judged = 0
  unjudged = 0
  unparsed = 0
  unjudgeable = 0
  cut = 0
  injection = 0
  canaries = 0
  canaryFails = 0
  tokensIn = 0
  tokensOut = 0
  recognised = 0
  asked = 0
  raw = 0
  positive = 0
  negative = 0
  negativeCount = 0
  /** Why the last caption without a score has none. */
  lastReason: string | undefined
  readonly #latencies = new Float64Array(2048)
  #timed = 0

  addUnjudged(reason: string | undefined): void {
    this.unjudged++
    this.lastReason = reason
  }

  count(): JudgeCount {
    return { scored: this.judged, asked: this.judged + this.unjudged, reason: this.lastReason ?? null }
  }

  addLatency(ms: number): void {
    this.#latencies[this.#timed++ % this.#latencies.length] = ms
  }

  /** The p-th part of the last 2,048 calls took no longer, in milliseconds. */
  latency(p: number): number {
    const n = Math.min(this.#timed, this.#latencies.length)
    if (n === 0) return 0
    return this.#latencies.slice(0, n).sort()[Math.min(n - 1, Math.floor(p * n))]!
  }

  /** As logged. Shares are of what they count among; 0 if nothing was counted. */
  metrics(price: { costPerMillionIn: number; costPerMillionOut: number }): Record<string, number> {
    const share = (part: number, whole: number) => (whole > 0 ? part / whole : 0)
    return {
      'judge/calls': this.calls,
      'judge/retries': this.retries,
      'judge/failures': this.failures,
      'judge/cache_hit': share(this.cacheHits, this.cacheHits + this.cacheMisses),
      'judge/latency_p50': this.latency(0.5),
      'judge/latency_p95': this.latency(0.95),
      'judge/judged': this.judged,
      'judge/unjudged': this.unjudged,
      'judge/unparsed': this.unparsed,
      'judge/unjudgeable': this.unjudgeable,
      'judge/cut': this.cut,
      'judge/injection': this.injection,
      'judge/canary_fail': share(this.canaryFails, this.canaries),
      'judge/raw': share(this.raw, this.asked),
      'judge/positive': share(this.positive, this.asked),
      'judge/negative': share(this.negative, this.negativeCount),
      'judge/recognised': share(this.recognised, this.asked),
      'judge/tokens_in': this.tokensIn,
      'judge/tokens_out': this.tokensOut,
      'judge/cost': (this.tokensIn * price.costPerMillionIn + this.tokensOut * price.costPerMillionOut) / 1e6,
    }
  }
}
