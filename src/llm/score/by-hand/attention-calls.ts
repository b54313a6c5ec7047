// Attention of packed tokens without padding. The completions of a prompt share its keys, so there are two calls: prompts and completions
// over themselves, and completions, which are the last rows, over their prompt. Those are joined by their log-sum-exp.
import { type Sequences, tensor } from '../../../tensor/index.ts'

export type Span = readonly [from: number, count: number]

/** One call: rows of the packed tokens that are queries and that are keys, and where sequences begin among them. */
interface Call {
  readonly queries: Span
  readonly keys: Span
  readonly queryStarts: readonly number[]
  readonly keyStarts: readonly number[]
  readonly causal: boolean
  /** The key rows come twice, and sequences begin among both. */
  readonly twice?: boolean
}

export type AttentionCall = Pick<Call, 'queries' | 'keys' | 'twice'> & Sequences

/** A prompt's length, and of each of its completions what is read: at least one token each. */
export interface Lengths {
  readonly prompt: number
  readonly read: readonly number[]
  /**
   * Its first `at` tokens are those of an earlier prompt and are read there alone; what is read of a completion begins with a copy of the
   * other ones. All branches of a prompt begin at the same token.
   */
  readonly branch?: { readonly of: number; readonly at: number }
}

/** How tokens are packed: each prompt with its only completion after it, or all prompts first and then all completions. */
export interface Packing {
  readonly tokens: number
  readonly shared: boolean
  /** Row of each prompt's first token, also of a branch's; and the first row of each completion, over all prompts. */
  readonly promptStarts: readonly number[]
  readonly readStarts: readonly number[]
  /** Prompts in the order of their completions. */
  readonly order: readonly number[]
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
  return rows.some(({ read, branch }) => branch || read.length > 1) ? sharedPacking(rows) : plainPacking(rows)
}

function plainPacking(rows: readonly Lengths[]): Packing {
  const starts = startsOf(rows.map(({ prompt, read }) => prompt + sum(read)))
  const all = [0, starts.at(-1)!] as const
  return {
    tokens: all[1],
    shared: false,
    promptStarts: starts.slice(0, -1),
    readStarts: rows.flatMap(({ prompt, read }, r) => read.map(() => starts[r]! + prompt)),
    order: [...rows.keys()],
    calls: [{ queries: all, keys: all, queryStarts: starts, keyStarts: starts, causal: true }],
  }
}

function sharedPacking(rows: readonly Lengths[]): Packing {
  const trunks = [...rows.keys()].filter((r) => !rows[r]!.branch)
  const branches = trunks.map((r) => [...rows.keys()].filter((b) => rows[b]!.branch?.of === r))
  const order = [...trunks, ...branches.flat()]
  const prompts = startsOf(trunks.map((r) => rows[r]!.prompt))
  const P = prompts.at(-1)!
  const own = [
    ...prompts,
    ...startsOf(
      order.flatMap((r) => rows[r]!.read),
      P,
    ).slice(1),
  ] // of prompts, then of completions
  const T = own.at(-1)!
  const numRead = (some: readonly number[]) => sum(some.flatMap((r) => rows[r]!.read))
  const starts = startsOf(
    order.map((r) => numRead([r])),
    P,
  )
  const twice = order.length > trunks.length
  // the second time a prompt is two sequences: what its branches see, and the rest, which nobody does
  const seen = branches.map((some, t) => (some.length > 0 ? rows[some[0]!]!.branch!.at : rows[trunks[t]!]!.prompt))
  const again = twice ? branches.flatMap((some) => [numRead(some), 0]) : []
  const keysAgain = twice ? seen.flatMap((n, t) => [n, rows[trunks[t]!]!.prompt - n]) : []
  return {
    tokens: T,
    shared: true,
    promptStarts: rows.map(({ branch }, r) => prompts[trunks.indexOf(branch?.of ?? r)]!),
    readStarts: rows.flatMap(({ read }, r) => startsOf(read, starts[order.indexOf(r)]!).slice(0, -1)),
    order,
    calls: [
      { queries: [0, T], keys: [0, T], queryStarts: own, keyStarts: own, causal: true },
      {
        ...{ queries: [P, T - P], keys: [0, P], causal: false, twice },
        queryStarts: startsOf([...trunks.map((r) => numRead([r])), ...again]),
        keyStarts: startsOf([...trunks.map((r) => rows[r]!.prompt), ...keysAgain]),
      },
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
