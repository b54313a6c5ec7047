// Bounds on rounding that follow from the number formats, never from what one processor printed.
import assert from 'node:assert/strict'
import type { RunConfig } from '../../src/run/index.ts'

/** Distance from 1 to the next larger number. */
export const eps = { float32: 2 ** -23, float64: 2 ** -52 }

/**
 * Bound of the error after `work` consecutive roundings of values up to `magnitude`. Errors add up like a random walk
 * (Higham and Mary, 2019: sqrt(work) * eps); the factor 8 covers the tail over many elements.
 */
export function roundingBound(work: number, magnitude = 1, dtype: keyof typeof eps = 'float32'): number {
  return 8 * Math.sqrt(work) * eps[dtype] * magnitude
}

export const largest = (values: readonly number[]) => values.reduce((a, v) => Math.max(a, Math.abs(v)), 0)

export function farthest(a: readonly number[], b: readonly number[]): number {
  assert.equal(a.length, b.length)
  return largest(a.map((v, i) => v - b[i]!))
}

/** The same settings computed in float64. No setting of a run asks for it: it is the reference of tests. */
export function inFloat64(config: RunConfig): RunConfig {
  return { ...config, dtype: 'float64' as 'float32' }
}

export type Numbers = ReadonlyMap<string, readonly number[]>

/** Two orders of the same sums, in both formats. */
export interface BothOrders {
  one: Numbers
  other: Numbers
}

/**
 * Two orders of the same sums differ by rounding alone. How much rounding float32 leaves in a tensor is measured: it is the distance
 * of `one` from its float64 value, whatever the conditioning. In float64 the orders must agree to 1,000 times that rounding, scaled
 * by the ratio of the formats (a relative 1e-12 for a well conditioned tensor). In float32 `other` must be within 64 times of it:
 * the ratio of two errors has heavy tails.
 */
export function assertSameSums(single: BothOrders, double: BothOrders): void {
  for (const [name, exact] of double.one) {
    const floor = largest(exact)
    const error = Math.max(farthest(single.one.get(name)!, exact), eps.float32 * floor)
    const far64 = farthest(double.other.get(name)!, exact)
    const bound64 = 1000 * (eps.float64 / eps.float32) * error
    assert.ok(far64 <= bound64, `${name} in float64: off by ${far64}, limit ${bound64}`)
    const far32 = farthest(single.other.get(name)!, exact)
    assert.ok(far32 <= 64 * error, `${name} in float32: ${far32} from float64, the other order ${error}`)
  }
}
