import assert from 'node:assert/strict'
import { test } from 'node:test'
import { farthest, roundingBound } from '../../tests/support/rounding.ts'
import { attention, resizeMaps } from './compat.ts'
import { tidy } from './scope.ts'
import { type Tensor, tensor } from './tensor.ts'

const [B, H, K, L, D] = [2, 6, 2, 5, 4]
const numbers = (length: number, phase: number) => Float32Array.from({ length }, (_, i) => Math.sin(phase + 2 * i))
const query = (T: number) => numbers(B * H * T * D, 1)
/** More columns than are attended to, as in a cache. */
const [keys, values] = [numbers(B * K * (L + 2) * D, 2), numbers(B * K * (L + 2) * D, 3)]

/** By the definition in float64: head h reads the keys of group h / (H / K). `added`: what the mask adds to a score. */
function expected(T: number, added: (b: number, h: number, t: number, j: number) => number): number[] {
  const q = query(T)
  return Array.from({ length: B * H * T * D }, (_, at) => {
    const [d, t] = [at % D, Math.floor(at / D) % T]
    const [h, b] = [Math.floor(at / (D * T)) % H, Math.floor(at / (D * T * H))]
    const row = (j: number) => ((b * K + Math.floor(h / (H / K))) * (L + 2) + j) * D
    const weights = Array.from({ length: L }, (_, j) => {
      const dot = [0, 1, 2, 3].reduce((sum, i) => sum + q[((b * H + h) * T + t) * D + i]! * keys[row(j) + i]!, 0)
      return Math.exp(dot / Math.sqrt(D) + added(b, h, t, j))
    })
    const total = weights.reduce((a, w) => a + w, 0)
    return weights.reduce((sum, w, j) => sum + (w / total) * values[row(j) + d]!, 0)
  })
}

const cached = (data: Float32Array) => tensor(data, [B, K, L + 2, D]).slice({ dim: 2, end: L })
const sees = (b: number, h: number, t: number, j: number) => (b + h + t + j) % 3 > 0
const masked = (b: number, h: number, t: number, j: number) => (sees(b, h, t, j) ? 0 : Number.NEGATIVE_INFINITY)

/** [B, heads, T, L] */
function maskOf<R>(heads: number, T: number, value: (b: number, h: number, t: number, j: number) => R): R[] {
  return Array.from({ length: B * heads * T * L }, (_, i) =>
    value(Math.floor(i / (L * T * heads)), Math.floor(i / (L * T)) % heads, Math.floor(i / L) % T, i % L),
  )
}

for (const T of [1, 3])
  test(`grouped heads, ${T} at a time: a head attends to the keys of its group, whatever its mask`, () => {
    const check = (mask: Tensor | null, added: Parameters<typeof expected>[1]) => {
      const q = tensor(query(T), [B, H, T, D])
      const got = attention(q, cached(keys), cached(values), { mask, groupedHeads: true })
      assert.deepEqual(got.shape, [B, H, T, D])
      assert.ok(farthest(got.flatten().numbers(), expected(T, added)) < roundingBound(L + D))
    }
    tidy(() => {
      check(null, () => 0)
      const all = tensor(Float32Array.from(maskOf(1, T, masked)), [B, 1, T, L])
      check(all, (b, _, t, j) => masked(b, 0, t, j))
      const seen = tensor(Uint8Array.from(maskOf(1, T, sees), Number), [B, 1, T, L], { dtype: 'bool' })
      check(seen, (b, _, t, j) => masked(b, 0, t, j))
      check(tensor(Float32Array.from(maskOf(H, T, masked)), [B, H, T, L]), masked)
    })
  })

test('resized maps: every map by its own, as bilinear interpolation between the centres of pixels', () => {
  const [maps, h, w, height, width] = [6, 3, 4, 7, 5]
  const data = numbers(maps * h * w, 4)
  /** The two pixels beside a centre and how near the second is. */
  const beside = (at: number, from: number, to: number): [number, number, number] => {
    const centre = Math.max(0, ((at + 0.5) * from) / to - 0.5)
    return [Math.floor(centre), Math.min(Math.floor(centre) + 1, from - 1), centre % 1]
  }
  const want = Array.from({ length: maps * height * width }, (_, i) => {
    const [y0, y1, down] = beside(Math.floor(i / width) % height, h, height)
    const [x0, x1, right] = beside(i % width, w, width)
    const at = (y: number, x: number) => data[(Math.floor(i / (height * width)) * h + y) * w + x]!
    return (
      (1 - down) * (at(y0, x0) * (1 - right) + at(y0, x1) * right) +
      down * (at(y1, x0) * (1 - right) + at(y1, x1) * right)
    )
  })
  for (const [B, C] of [
    [6, 1],
    [2, 3],
  ] as const)
    tidy(() => {
      const wider = tensor(data, [B, C, h, w]).transpose(2, 3).contiguous().transpose(2, 3) // rows that are not contiguous
      const got = resizeMaps(wider, height, width)
      assert.deepEqual(got.shape, [B, C, height, width])
      assert.ok(farthest(got.flatten().numbers(), want) < roundingBound(4))
    })
})
