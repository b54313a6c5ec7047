// Prompts contain hundreds of the same added token in a row, one per image patch. A tokenizer splits a text at added tokens first, so a
// run of n of them always gives n ids. It is enough to encode one.

import type { EncodeOptions, Tokenizer } from './base-tokenizer.ts'
import type { PromptText } from './prompts.ts'

/** The ids of a prompt, in which `token`, an added token, may occur many times in a row. */
export function encodeRuns(
  tokenizer: Pick<Tokenizer, 'encode' | 'requireId'>,
  { text, plain }: PromptText,
  token: string,
  options: Omit<EncodeOptions, 'plain'> = {},
): Int32Array {
  const id = tokenizer.requireId(token)
  const short = shortened(text, plain, token)
  const ids = tokenizer.encode(short.text, { ...options, plain: short.plain })
  const single = ids.reduce((n, one) => n + (one === id ? 1 : 0), 0)
  if (single !== short.runs.length) return tokenizer.encode(text, { ...options, plain }) // somebody's words became the token
  const out = new Int32Array(ids.length + short.runs.reduce((sum, n) => sum + n - 1, 0))
  let [at, run] = [0, 0]
  for (const one of ids) {
    const count = one === id ? short.runs[run++]! : 1
    out.fill(one, at, at + count)
    at += count
  }
  return out
}

/** One token for each run outside of the words of others, and how many there were. */
function shortened(text: string, plain: PromptText['plain'], token: string): PromptText & { runs: number[] } {
  const pattern = new RegExp(`(?:${token.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')})+`, 'g')
  const runs: number[] = []
  const one = (run: string) => {
    runs.push(run.length / token.length)
    return token
  }
  const ranges: [number, number][] = []
  let [out, at] = ['', 0]
  for (const [start, end] of plain) {
    out += text.slice(at, start).replace(pattern, one)
    ranges.push([out.length, out.length + end - start])
    out += text.slice(start, end)
    at = end
  }
  return { text: out + text.slice(at).replace(pattern, one), plain: ranges, runs }
}
