/** Captions that a judge was asked about, and how many of them it scored. */
export interface JudgeCount {
  scored: number
  asked: number
  /** Why the last one without a score has none. */
  reason: string | null
}

type Counted = { [K in keyof JudgeStats]: JudgeStats[K] extends number ? K : never }[keyof JudgeStats]
type Counter = Counted | 'breakerOpened' | 'cost'

/** What a judge has counted since its start, as plain data: states of several processes add up. */
export interface JudgeState {
  counts: Readonly<Record<Counter, number>>
  /** Of its last calls, in milliseconds. */
  latencies: Float64Array
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
  lastFailure: string | undefined
  readonly #latencies = new Float64Array(2048)
  #timed = 0

  addUnjudged(reason: string | undefined): void {
    this.unjudged++
    this.lastFailure = reason
  }

  addLatency(ms: number): void {
    this.#latencies[this.#timed++ % this.#latencies.length] = ms
  }

  state(price: { costPerMillionIn: number; costPerMillionOut: number }, breakerOpened: number): JudgeState {
    const cost = (this.tokensIn * price.costPerMillionIn + this.tokensOut * price.costPerMillionOut) / 1e6
    const { lastFailure = null, ...counts } = { ...this, breakerOpened, cost }
    return { counts, latencies: this.#latencies.slice(0, this.#timed), reason: lastFailure }
  }
}

/** Null: none of them has a judge. */
export function sumStates(states: readonly (JudgeState | null)[]): JudgeState | null {
  const all = states.filter((state) => state !== null)
  if (all.length <= 1) return all[0] ?? null
  const names = Object.keys(all[0]!.counts) as Counter[]
  const total = (name: Counter) => all.reduce((sum, { counts }) => sum + counts[name], 0)
  return {
    counts: Object.fromEntries(names.map((name) => [name, total(name)])) as JudgeState['counts'],
    latencies: Float64Array.from(all.flatMap(({ latencies }) => [...latencies])),
    reason: all.find(({ reason }) => reason !== null)?.reason ?? null,
  }
}

export function judgeCount({ counts, reason }: JudgeState): JudgeCount {
  return { scored: counts.judged, asked: counts.judged + counts.unjudged, reason }
}

/** The p-th part of the calls took no longer, in milliseconds. */
function latency({ latencies }: JudgeState, p: number): number {
  const n = latencies.length
  return n === 0 ? 0 : latencies.slice().sort()[Math.min(n - 1, Math.floor(p * n))]!
}

/** As logged. Shares are of what they count among; 0 if nothing was counted. */
export function judgeMetrics(state: JudgeState): Record<string, number> {
  const { counts: c } = state
  const share = (part: number, whole: number) => (whole > 0 ? part / whole : 0)
  return {
    'judge/calls': c.calls,
    'judge/retries': c.retries,
    'judge/failures': c.failures,
    'judge/cache_hit': share(c.cacheHits, c.cacheHits + c.cacheMisses),
    'judge/latency_p50': latency(state, 0.5),
    'judge/latency_p95': latency(state, 0.95),
    'judge/judged': c.judged,
    'judge/unjudged': c.unjudged,
    'judge/unparsed': c.unparsed,
    'judge/unjudgeable': c.unjudgeable,
    'judge/cut': c.cut,
    'judge/injection': c.injection,
    'judge/canary_fail': share(c.canaryFails, c.canaries),
    'judge/raw': share(c.raw, c.asked),
    'judge/positive': share(c.positive, c.asked),
    'judge/negative': share(c.negative, c.negativeCount),
    'judge/recognised': share(c.recognised, c.asked),
    'judge/tokens_in': c.tokensIn,
    'judge/tokens_out': c.tokensOut,
    'judge/cost': c.cost,
    'judge/breaker_opened': c.breakerOpened,
  }
}
