// What a run holds in the middle of its steps and at their end.
import assert from 'node:assert/strict'

export interface Held {
  step: number
  rss: number
  tensors: number
  handles: number
}

/** Throws where live tensors, open files or, of 1,000 steps or more, resident memory have grown. */
export function flatness(held: readonly Held[]): string {
  const [from, to] = [held[Math.floor(held.length / 2)]!, held.at(-1)!]
  assert.equal(to.tensors, from.tensors, 'live tensors')
  assert.ok(to.handles <= from.handles + 2, `handles ${from.handles} to ${to.handles}`)
  const growth = (100 * (to.rss - from.rss)) / from.rss
  assert.ok(held.length < 1000 || growth < 1, `resident memory grew by ${growth.toFixed(2)} %`)
  const mib = ({ rss }: Held) => (rss / 2 ** 20).toFixed(0)
  return `steps ${from.step} to ${to.step}: ${to.tensors} live tensors, ${from.handles} to ${to.handles} handles, ${mib(from)} to ${mib(to)} MiB`
}
