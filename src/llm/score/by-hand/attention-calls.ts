// Attention of packed tokens without padding. The completions of a prompt share its keys, so there are three calls: prompts over
// themselves, completions over themselves, completions over their prompt. The last two are joined by their log-sum-exp.
import { type Sequences, tensor } from '../../../tensor/index.ts'

export type Span = readonly [from: number, count: number]

/** One call: rows of the packed tokens that are queries and that are keys, and where sequences begin among them. */
interface Call {
  readonly queries: Span
  readonly keys: Span
  readonly queryStarts: readonly number[]
  readonly keyStarts: readonly number[]
  readonly causal: boolean
}

export type AttentionCall = Pick<Call, 'queries' | 'keys'> & Sequences

/** A prompt's length, and of each of its completions what is read: at least one token each. */
export interface Lengths {
  readonly prompt: number
  readonly read: readonly number[]
}

/** How tokens are packed: each prompt with its only completion after it, or all prompts first and then all completions. */
export interface Packing {
  readonly tokens: number
  readonly shared: boolean
  /** Row of each prompt's first token, and of each completion's, over all prompts. */
  readonly promptStarts: readonly number[]
  readonly readStarts: readonly number[]
  readonly calls: readonly Call[]
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0)

/** Where stretches of these lengths begin, and where the last ends. */
export function startsOf(lengths: readonly number[], from = 0): number[] {
  const out = [from]
  for (const n of lengths) out.push(out.at(-1)! + n)
  return out
}

export function packingOf(rows: readonly Lengths[]): Packing {
  return rows.some(({ read }) => read.length > 1) ? sharedPacking(rows) : plainPacking(rows)
}

function plainPacking(rows: readonly Lengths[]): Packing {
  const starts = startsOf(rows.map(({ prompt, read }) => prompt + sum(read)))
  const all = [0, starts.at(-1)!] as const
  return {
    tokens: all[1],
    shared: false,
    promptStarts: starts.slice(0, -1),
    readStarts: rows.flatMap(({ prompt, read }, r) => read.map(() => starts[r]! + prompt)),
    calls: [{ queries: all, keys: all, queryStarts: starts, keyStarts: starts, causal: true }],
  }
}

function sharedPacking(rows: readonly Lengths[]): Packing {
  const prompts = startsOf(rows.map((r) => r.prompt))
  const reads = startsOf(rows.flatMap((r) => r.read))
  const groups = startsOf(rows.map((r) => sum(r.read)))
  const [P, C] = [prompts.at(-1)!, reads.at(-1)!]
  const [ofPrompts, ofReads] = [[0, P] as const, [P, C] as const]
  return {
    tokens: P + C,
    shared: true,
    promptStarts: prompts.slice(0, -1),
    readStarts: reads.slice(0, -1).map((at) => P + at),
    calls: [
      { queries: ofPrompts, keys: ofPrompts, queryStarts: prompts, keyStarts: prompts, causal: true },
      { queries: ofReads, keys: ofReads, queryStarts: reads, keyStarts: reads, causal: true },
      { queries: ofReads, keys: ofPrompts, queryStarts: groups, keyStarts: prompts, causal: false },
    ],
  }
}

/** The calls with what they need on the device. */
export function attentionCalls({ calls }: Packing, device: string): AttentionCall[] {
  const put = (starts: readonly number[]) => tensor(Int32Array.from(starts), { device })
  const longest = (starts: readonly number[]) => Math.max(...starts.slice(1).map((at, i) => at - starts[i]!))
  return calls.map(({ queryStarts, keyStarts, ...call }) => {
    const starts = { queryStarts: put(queryStarts), keyStarts: put(keyStarts) }
    return { ...call, ...starts, longestQuery: longest(queryStarts), longestKey: longest(keyStarts) }
  })
}
