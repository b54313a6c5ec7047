// Laws that hold for any shape, stride, broadcast and dtype, checked on random ones.
import assert from 'node:assert/strict'
import test from 'node:test'
import fc from 'fast-check'
import { cat, type DType, expectNoLeak, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'
import { at, broadcast, count, type Nd, nd, reduce, sum, zip } from './engine-reference.ts'

const runs = { numRuns: 60, seed: 4 }
const size = fc.integer({ min: 0, max: 4 })
const shape = fc.array(size, { minLength: 0, maxLength: 4 })
const whole = fc.integer({ min: -9, max: 9 })
const dtype = fc.constantFrom<DType>('float32', 'float64', 'int64', 'int32', 'int16', 'int8', 'bfloat16')

/** An array of small whole numbers, exact in every dtype. */
const arrayOf = (s: readonly number[]) =>
  fc.array(whole, { minLength: count(s), maxLength: count(s) }).map((data): Nd => ({ shape: s, data }))
const anyArray = shape.chain(arrayOf)
/** Two shapes that broadcast: some dimensions dropped or set to 1. */
const pair = shape.chain((s) => {
  const side = fc.tuple(
    fc.array(fc.boolean(), { minLength: s.length, maxLength: s.length }),
    fc.integer({ min: 0, max: s.length }),
  )
  const squash = side.map(([ones, drop]) => s.map((n, i) => (ones[i] ? 1 : n)).slice(drop))
  return fc.tuple(squash.chain(arrayOf), squash.chain(arrayOf))
})

const put = (a: Nd, d: DType) => tensor(Float64Array.from(a.data), a.shape, { dtype: d })

/** The same values in other memory: transposed and back, or every second element of a larger tensor. */
function restride(t: Tensor, how: number): Tensor {
  if (how === 1 && t.ndim > 1) return t.transpose(0, -1).contiguous().transpose(0, -1)
  if (how === 2 && t.ndim > 0) {
    const doubled = cat([t.unsqueeze(-1), t.unsqueeze(-1).add(1)], { dim: -1 })
    return doubled.select(-1, 0)
  }
  return t
}

function same(got: Tensor, want: Nd): void {
  assert.deepEqual([...got.shape], [...want.shape])
  assert.deepEqual(
    got.numbers().map((v) => v + 0),
    want.data.map((v) => v + 0),
  )
}
const law = (body: () => void) => expectNoLeak(() => tidy(() => body()))

test('add, sub, mul, maximum broadcast like loops, for every dtype, stride and empty shape', () => {
  fc.assert(
    fc.property(pair, dtype, fc.integer({ min: 0, max: 2 }), ([a, b], d, how) => {
      law(() => {
        const [x, y] = [restride(put(a, d), how), put(b, d)]
        same(
          x.add(y),
          zip((p, q) => p + q, a, b),
        )
        same(
          x.sub(y),
          zip((p, q) => p - q, a, b),
        )
        same(x.maximum(y), zip(Math.max, a, b))
        if (d !== 'int8')
          same(
            x.mul(y),
            zip((p, q) => p * q, a, b),
          )
        assert.deepEqual([...x.lt(y).shape], broadcast(a.shape, b.shape))
      })
    }),
    runs,
  )
})

test('sum over any dimensions equals the loops, also over none and over empty ones', () => {
  const cases = anyArray.chain((a) => fc.tuple(fc.constant(a), fc.subarray(a.shape.map((_, i) => i)), fc.boolean()))
  fc.assert(
    fc.property(cases, fc.integer({ min: 0, max: 2 }), ([a, dims, keepdim], how) => {
      law(() => {
        const x = restride(put(a, 'float64'), how)
        const all = dims.length === 0 ? a.shape.map((_, i) => i) : dims
        same(x.sum(dims, { keepdim }), reduce(a, all, sum, keepdim))
        same(x.sum(), reduce(a, null, sum))
      })
    }),
    runs,
  )
})

test('permute, reshape, flip and slice move elements and lose none', () => {
  const cases = anyArray.chain((a) =>
    fc.tuple(
      fc.constant(a),
      fc.shuffledSubarray(
        a.shape.map((_, i) => i),
        { minLength: a.shape.length },
      ),
    ),
  )
  fc.assert(
    fc.property(cases, dtype, ([a, order], d) => {
      law(() => {
        const x = put(a, d)
        const moved = nd(
          order.map((k) => a.shape[k]!),
          (i) =>
            at(
              a,
              a.shape.map((_, k) => i[order.indexOf(k)]!),
            ),
        )
        same(x.permute(order), moved)
        same(x.permute(order).reshape([count(a.shape)]), { shape: [count(a.shape)], data: moved.data })
        same(x.flip(order).flip(order), a)
        if (a.shape.length > 0) {
          const half = Math.floor(a.shape[0]! / 2)
          same(cat([x.slice({ end: half }), x.slice({ start: half })]), a)
        }
      })
    }),
    runs,
  )
})

test('matmul equals the loops for any sizes, zero included, plain or transposed', () => {
  const sizes = fc.tuple(size, size, size)
  const cases = sizes.chain(([n, k, m]) => fc.tuple(arrayOf([n, k]), arrayOf([k, m])))
  fc.assert(
    fc.property(
      cases,
      fc.constantFrom<DType>('float32', 'float64', 'int64'),
      fc.integer({ min: 0, max: 2 }),
      ([a, b], d, how) => {
        law(() => {
          const inner = a.shape[1]!
          const want = nd([a.shape[0]!, b.shape[1]!], ([i, j]) =>
            sum(Array.from({ length: inner }, (_, k) => at(a, [i!, k]) * at(b, [k, j!]))),
          )
          same(restride(put(a, d), how).matmul(restride(put(b, d), 2 - how)), want)
        })
      },
    ),
    runs,
  )
})

test('values survive every conversion that can hold them', () => {
  fc.assert(
    fc.property(anyArray, dtype, dtype, (a, from, to) => {
      law(() => same(put(a, from).to(to).to(from), a))
    }),
    runs,
  )
})
