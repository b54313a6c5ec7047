// Generation: prefill once per prompt, then one token a step for all rows. B prompts, K samples each, R = B*K rows (prompt-major),
// N longest prompt, S hidden, V vocabulary. Prompts of different length are padded on the left.
import { Mismatch, type RandomStream, spendSpareTime } from '../../core/index.ts'
import {
  greedyTokens,
  plainSampling,
  type SamplingSettings,
  sampleTokens,
  seenTokens,
  suppress,
  tokenLogps,
  truncates,
  warpScores,
} from '../../nn/index.ts'
import { cat, int64Tensor, noGrad, type Tensor, tidy, untracked } from '../../tensor/index.ts'
import { StopMatcher, type Tokenizer } from '../../text/index.ts'
import type { PromptedModel, PromptIds } from '../prompted-model.ts'
import { capturesGraphs, type DecodeStart, type Decoding } from './decoding.ts'
import { openAhead, openDecoding } from './open.ts'
import { prefill } from './plain/prefill.ts'
import { leadSteps, stepsAhead, type Taken } from './recorded/draws.ts'

/** Options of `generate`. */
export interface GenerateOptions {
  /** Samples per prompt; they share its prefill. */
  samples?: number
  maxNewTokens: number
  /** Absent: greedy. */
  sampling?: Partial<SamplingSettings>
  /** The random numbers of a row: uniform t decides its token t. Needed when sampling. */
  random?: (prompt: number, sample: number) => RandomStream
  stopStrings: readonly string[]
  /** Ids that end a row, besides the tokenizer's own. */
  stopIds?: ReadonlySet<number>
  /** Ids never drawn; the warpers choose among the others. `logps` stay those of all ids, as the loss scores them. */
  suppressIds?: readonly number[]
  /** Also give back the log-probs of the distribution that was drawn from, warpers and suppressed ids included. */
  samplerLogps?: boolean
  /** The token whose states are given back. */
  segId?: number
  /** Called after each token with the number of rows still open. */
  onStep?: (step: number, open: number) => void
}

/** One generated row. */
export interface Generated {
  prompt: number
  sample: number
  /** New tokens, the stop included. */
  ids: Int32Array
  /** Decoded with special tokens, stop text included. */
  text: string
  finished: boolean
  /** log softmax(logits / temperature) of each token as the sampler saw it; for diagnosis, it has no gradient. */
  logps: Float32Array
  /** Of the distribution that was drawn from; only when asked for. */
  samplerLogps: Float32Array | null
  /** Index in ids of each [SEG] that was read back; a [SEG] as the very last token has no state. */
  segAt: number[]
  /** States of those, [n, S]; null when there is none. */
  segStates: Tensor | null
}

interface Row {
  prompt: Int32Array
  ids: number[]
  logps: number[]
  drawn: number[]
  stop: StopMatcher
  open: boolean
  finished: boolean
  random: RandomStream | null
}

/** Half of what the device took for the last steps: the host has time for other work. */
let spareMs = 0

/** Everything under noGrad, op by op past autograd altogether; returned tensors belong to the caller's scope. */
export function generate<P extends PromptIds>(
  model: PromptedModel<P>,
  tokenizer: Tokenizer,
  prompts: readonly P[],
  options: GenerateOptions,
): Generated[] {
  if (prompts.length === 0) return []
  const work = () => tidy(() => new Generation(model, tokenizer, prompts, options).run())
  return noGrad(() => (capturesGraphs(model.decoder) ? work() : untracked(work)))
}

class Generation<P extends PromptIds> {
  readonly #model: PromptedModel<P>
  readonly #tokenizer: Tokenizer
  readonly #prompts: readonly P[]
  readonly #options: GenerateOptions
  readonly #settings: SamplingSettings
  readonly #samples: number
  readonly #rows: Row[]
  /** Rows that are still decoded, in the order of the scores. */
  #decoded: readonly Row[]
  /** For each token that was read the states [rows, S], and the rows they are of. */
  readonly #states: { hidden: Tensor; of: readonly Row[] }[] = []

  constructor(model: PromptedModel<P>, tokenizer: Tokenizer, prompts: readonly P[], options: GenerateOptions) {
    this.#model = model
    this.#tokenizer = tokenizer
    this.#prompts = prompts
    this.#options = options
    this.#settings = { ...plainSampling, ...options.sampling }
    this.#samples = options.samples ?? 1
    const longest = Math.max(...prompts.map((p) => p.ids.length))
    this.#rows = prompts.flatMap((_, b) => Array.from({ length: this.#samples }, (__, k) => this.#newRow(b, k)))
    this.#decoded = this.#rows
    const limit = model.decoder.cfg.max_position_embeddings
    const got = longest + options.maxNewTokens
    if (got > limit)
      throw new Mismatch({ where: 'generate', field: 'length', expected: `at most ${limit} positions`, got })
  }

  #newRow(b: number, k: number): Row {
    const { sampling, random, stopIds, stopStrings } = this.#options
    const expected = 'a stream per row when sampling'
    if (sampling && !random) throw new Mismatch({ where: 'generate', field: 'random', expected, got: 'none' })
    const ids = new Set([...this.#tokenizer.eosIds, ...(stopIds ?? [])])
    const stop = new StopMatcher(this.#tokenizer, { stopIds: ids, stopStrings })
    const plain = { ids: [], logps: [], drawn: [], stop, open: true, finished: false }
    return { ...plain, prompt: this.#prompts[b]!.ids, random: sampling ? random!(b, k) : null }
  }

  run(): Generated[] {
    const { logits, ...start } = this.#prefill()
    try {
      if (this.#options.maxNewTokens > 0) this.#take(logits)
      const ahead = capturesGraphs(this.#model.decoder) && !truncates(this.#settings)
      if (this.#options.maxNewTokens > 1 && this.#open > 0) ahead ? this.#decodeAhead(start) : this.#decode(start)
    } finally {
      start.cache.dispose()
    }
    return this.#rows.map((row, r) => this.#result(row, r))
  }

  #decode(start: DecodeStart): void {
    const { maxNewTokens, onStep } = this.#options
    const decoding = openDecoding(this.#model.decoder, start, maxNewTokens)
    try {
      for (let t = 1; t < maxNewTokens && this.#open > 0; t++) {
        this.#leave(decoding)
        const { hidden, logits } = decoding.run(this.#decoded.map((row) => row.ids.at(-1)!))
        this.#states.push({ hidden, of: this.#decoded })
        this.#take(logits)
        onStep?.(t, this.#open)
      }
    } finally {
      decoding.dispose()
    }
  }

  /** The device draws; what it drew after the end of a row is dropped. */
  #decodeAhead(start: DecodeStart): void {
    const { maxNewTokens, sampling, suppressIds } = this.#options
    const plan = { temperature: sampling ? this.#settings.temperature : null, never: suppressIds ?? [] }
    const first = this.#rows.map((row) => row.ids.at(-1)!)
    const decoding = openAhead(this.#model.decoder, start, maxNewTokens, { plan, first })
    try {
      let [numbers, started] = [this.#numbers(1), 0]
      for (let t = 1; t < maxNewTokens && this.#open > 0; t += stepsAhead) {
        const [open, startedAt] = [this.#rows.map((row) => row.open), performance.now()]
        const steps = Math.min(stepsAhead, maxNewTokens - t)
        decoding.start(steps - started, started > 0 ? null : numbers, open)
        const look = decoding.look(steps)
        numbers = this.#numbers(t + stepsAhead) // while the device works
        started = Math.max(0, Math.min(leadSteps, maxNewTokens - t - steps))
        if (started > 0) decoding.start(started, numbers, open)
        spendSpareTime(spareMs)
        const taken = look()
        spareMs = (performance.now() - startedAt) / 2
        this.#takeSteps(t, taken)
      }
    } finally {
      decoding.dispose()
    }
  }

  /** The numbers that decide the tokens of the steps from t to the next look, [steps, R]; none when greedy. */
  #numbers(t: number): Float64Array | null {
    if (!this.#options.sampling) return null
    const R = this.#rows.length
    const steps = Math.max(0, Math.min(stepsAhead, this.#options.maxNewTokens - t))
    const uniform = (i: number) => this.#rows[i % R]!.random!.uniformAt(t + Math.floor(i / R))
    return Float64Array.from({ length: steps * R }, (_, i) => uniform(i))
  }

  #takeSteps(t: number, { ids, logps, drawnLogps, hidden }: Taken): void {
    const R = this.#rows.length
    for (let i = 0; i < hidden.size(0) && this.#open > 0; i++) {
      this.#states.push({ hidden: hidden.select(0, i), of: this.#rows })
      this.#rows.forEach((row, r) => {
        const at = i * R + r
        if (row.open && this.#options.samplerLogps) row.drawn.push(drawnLogps[at]!)
        this.#append(row, ids[at]!, logps[at]!)
      })
      this.#options.onStep?.(t + i, this.#open)
    }
  }

  /** Finished rows leave once they are a quarter: the others are copied closer together. */
  #leave(decoding: Decoding): void {
    const open = [...this.#decoded.keys()].filter((r) => this.#decoded[r]!.open)
    if (!decoding.keepRows || open.length > 0.75 * this.#decoded.length) return
    decoding.keepRows(open)
    this.#decoded = open.map((r) => this.#decoded[r]!)
  }

  get #open(): number {
    return this.#rows.reduce((n, row) => n + (row.open ? 1 : 0), 0)
  }

  /** Reads the prompts; the K samples of one share what was read. */
  #prefill(): DecodeStart & { logits: Tensor } {
    const room = capturesGraphs(this.#model.decoder) ? 0 : this.#options.maxNewTokens
    const read = prefill(this.#model, this.#prompts, room)
    if (this.#samples === 1) return { ...read, rows: null }
    const prompt = this.#rows.map((_, r) => Math.floor(r / this.#samples))
    const rows = int64Tensor(prompt, { device: read.logits.device })
    const [logits, valid] = [read.logits.indexSelect(0, rows), read.valid?.indexSelect(0, rows) ?? null]
    return { ...read, rows, logits, valid, next: prompt.map((b) => read.next[b]!) }
  }

  /** Chooses the next token of every row from its scores [R, V]. */
  #take(logits: Tensor): void {
    const [ids, logps, drawn] = tidy(() => {
      const scores = this.#scores(logits)
      const t = this.#decoded[0]!.ids.length
      const uniforms = () => Float64Array.from(this.#decoded, (row) => row.random!.uniformAt(t))
      const chosen = this.#options.sampling ? sampleTokens(scores, uniforms()) : greedyTokens(scores)
      const safe = chosen.clamp({ min: 0 })
      const own = this.#options.samplerLogps ? tokenLogps(scores, safe).numbers() : null
      const logps = tokenLogps(logits, safe, this.#settings.temperature).numbers()
      return [chosen.numbers(), logps, own] as [number[], number[], number[] | null]
    })
    this.#decoded.forEach((row, r) => {
      if (drawn && row.open) row.drawn.push(drawn[r]!)
      this.#append(row, ids[r]!, logps[r]!)
    })
  }

  #scores(logits: Tensor): Tensor {
    const { suppressIds } = this.#options
    const { device } = logits
    const rows = () => this.#decoded.map((row) => [...row.prompt, ...row.ids])
    const penalised = this.#settings.repetitionPenalty !== 1
    const seen = penalised ? seenTokens(rows(), logits.size(-1), device) : undefined
    // before the warpers: what they keep must be left to draw from
    const allowed = suppressIds?.length ? suppress(logits, int64Tensor(suppressIds, { device })) : logits
    return this.#options.sampling ? warpScores(allowed, this.#settings, seen) : allowed
  }

  #append(row: Row, id: number, logp: number): void {
    if (!row.open) {
      row.ids.push(this.#tokenizer.padId ?? 0) // the row continues as padding; #result cuts it
      return
    }
    if (id < 0) {
      const [field, got] = [`row ${this.#rows.indexOf(row)}`, 'NaN or infinity']
      const hint = 'the weights or the input are not finite'
      throw new Mismatch({ where: 'generate', field, expected: 'finite scores', got, hint })
    }
    row.ids.push(id)
    row.logps.push(logp)
    if (row.stop.feed(id) === 'stop') {
      row.open = false
      row.finished = true
    }
  }

  #result(row: Row, r: number): Generated {
    const ids = Int32Array.from(row.ids.slice(0, row.logps.length))
    const hasState = (j: number) => j < this.#states.length && j < ids.length - 1
    const segAt = [...ids.keys()].filter((j) => ids[j] === this.#options.segId && hasState(j))
    const states = segAt.map((j) => {
      const { hidden, of } = this.#states[j]!
      return hidden.narrow(0, of.indexOf(row), 1)
    })
    return {
      prompt: Math.floor(r / this.#samples),
      sample: r % this.#samples,
      ids,
      text: ids.length > 0 ? this.#tokenizer.decode(ids) : '',
      finished: row.finished,
      logps: Float32Array.from(row.logps),
      samplerLogps: this.#options.samplerLogps ? Float32Array.from(row.drawn) : null,
      segAt,
      segStates: states.length > 0 ? cat(states) : null,
    }
  }
}
