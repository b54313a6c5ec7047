// What a run holds in the middle of its steps and at their end.
import assert from 'node:assert/strict'

export interface Held {
  step: number
  rss: number
  /** JavaScript's share of it. */
  heap: number
  tensors: number
  handles: number
}

/** Garbage is collected at each of so many steps, and only those tell about memory. */
export const looks = 50

/** Throws where live tensors, open files or, of 1,000 steps or more, resident memory have grown from the third quarter to the last. */
export function flatness(held: readonly Held[]): string {
  const [from, to] = [held[Math.floor(held.length / 2)]!, held.at(-1)!]
  assert.equal(to.tensors, from.tensors, 'live tensors')
  assert.ok(to.handles <= from.handles + 2, `handles ${from.handles} to ${to.handles}`)
  const clean = held.filter(({ step }) => step % looks === 0)
  const half = clean.slice(clean.length / 2)
  const least = (of: 'rss' | 'heap') =>
    [half.slice(0, half.length / 2), half.slice(half.length / 2)].map(
      (part) => Math.min(...part.map((one) => one[of])) / 2 ** 20,
    ) as [number, number]
  const [third, last] = least('rss')
  const javascript = `of them JavaScript's ${least('heap')
    .map((mib) => mib.toFixed(0))
    .join(' to ')}`
  const text = `steps ${from.step} to ${to.step}: ${to.tensors} live tensors, ${from.handles} to ${to.handles} handles`
  if (held.length < 1000) return text
  const growth = (100 * (last - third)) / third
  const mib = `${third.toFixed(0)} to ${last.toFixed(0)} MiB, ${javascript}`
  assert.ok(growth < 1, `resident memory grew by ${growth.toFixed(2)} % in the last half: ${mib}`)
  return `${text}, ${mib}`
}
