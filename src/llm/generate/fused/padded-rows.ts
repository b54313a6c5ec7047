// Rows of a step vary a little from call to call: equal phrases are asked once, empty masks not at all. Recorded steps are bound to a number
// of rows, so that few numbers are used and rows without a meaning fill up the rest. R rows, P prompts.
import { tensor } from '../../../tensor/index.ts'
import type { DecodeStart } from '../decoding.ts'
import type { Taken } from '../recorded/draws.ts'
import { promptOfRows } from './caches.ts'
import { PackedCache } from './packed-cache.ts'

/** 1, 2, 4, 8, 16, and multiples of 16 above. */
export function roundedRows(rows: number): number {
  return rows > 16 ? Math.ceil(rows / 16) * 16 : 2 ** Math.ceil(Math.log2(rows))
}

/** The list with its last element repeated. */
export const filled = <T>(list: readonly T[], length: number): T[] => [
  ...list,
  ...new Array<T>(length - list.length).fill(list.at(-1)!),
]

/** More rows that continue the last one's prompt, and more prompts that nobody continues. The new index belongs to the current scope. */
export function withMoreRows(start: DecodeStart): DecodeStart {
  const { cache, lengths, next } = start
  if (!(cache instanceof PackedCache) || !lengths) return start
  const [R, P] = [roundedRows(next.length), roundedRows(cache.batch)]
  cache.fillUp(P)
  const index = Int32Array.from(filled(promptOfRows(start), R))
  return { ...start, lengths: filled(lengths, P), next: filled(next, R), rows: tensor(index) }
}

/** The prompt of each unit of neighbouring rows where one of them is open, else -1; rows that fill up never are. */
export function openUnits(prompts: readonly number[], rows: number, open: readonly boolean[]): number[] {
  const share = rows / prompts.length
  return prompts.map((prompt, u) => (open.slice(u * share, (u + 1) * share).includes(true) ? prompt : -1))
}

/** Numbers [steps, R] with more columns. */
export function widened(numbers: Float64Array, from: number, to: number): Float64Array {
  if (from === to) return numbers
  const steps = numbers.length / from
  const out = new Float64Array(steps * to).fill(0.5)
  for (let i = 0; i < steps; i++) out.set(numbers.subarray(i * from, (i + 1) * from), i * to)
  return out
}

/** What the first rows took. */
export function ofRows({ ids, logps, drawnLogps, hidden }: Taken, from: number, to: number): Taken {
  if (from === to) return { ids, logps, drawnLogps, hidden }
  const first = (list: readonly number[]) => list.filter((_, i) => i % from < to)
  return { ids: first(ids), logps: first(logps), drawnLogps: first(drawnLogps), hidden: hidden.narrow(1, 0, to) }
}
