// Element-wise ops: values by Math in float64, gradients by differences.
import test from 'node:test'
import { type Tensor as T, where } from '../../src/tensor/index.ts'
import { bools, checkOp, type Input, ints, type Nd, nd, type OpCase, op, real, zip } from './engine-reference.ts'

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x))

/** erf by its Taylor series, and its complement. */
function erf(x: number): number {
  let term = x
  let total = x
  for (let n = 1; n < 120; n++) {
    term *= (-x * x) / n
    total += term / (2 * n + 1)
  }
  return (2 / Math.sqrt(Math.PI)) * total
}
const normal = (x: number) => 0.5 * (1 + erf(x / Math.SQRT2))

/** Half to even, as IEEE and torch have it. */
function roundEven(x: number): number {
  const floor = Math.floor(x)
  const rest = x - floor
  return rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor
}

const each = (f: (x: number) => number) => (a: Nd) => zip(f, a)
const square = [2, 3]

/** One input, one function of Math. */
function unary(
  name: string,
  run: (x: T) => unknown,
  f: (x: number) => number,
  input: Input = real(square),
  more = {},
): OpCase {
  return op(name, [input], run, each(f), more)
}
const off = { grad: false }
const away = (...points: number[]) => real(square, -2, 2, points)
const positive = real(square, 0.2, 3)

const unaries: OpCase[] = [
  unary('abs', (x) => x.abs(), Math.abs, away(0)),
  unary('cos', (x) => x.cos(), Math.cos),
  unary('exp', (x) => x.exp(), Math.exp),
  unary('expm1', (x) => x.expm1(), Math.expm1),
  unary(
    'gelu',
    (x) => x.gelu(),
    (x) => x * normal(x),
  ),
  unary(
    'gelu tanh',
    (x) => x.gelu({ approximate: 'tanh' }),
    (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  ),
  unary('log', (x) => x.log(), Math.log, positive),
  unary(
    'neg',
    (x) => x.neg(),
    (x) => -x,
  ),
  unary(
    'reciprocal',
    (x) => x.reciprocal(),
    (x) => 1 / x,
    positive,
  ),
  unary(
    'relu',
    (x) => x.relu(),
    (x) => Math.max(0, x),
    away(0),
  ),
  unary('round', (x) => x.round(), roundEven, { ...real([6]), data: [0.5, 1.5, -0.5, -1.2, 2.5, 1.7] }, off),
  unary(
    'rsqrt',
    (x) => x.rsqrt(),
    (x) => 1 / Math.sqrt(x),
    positive,
  ),
  unary('sigmoid', (x) => x.sigmoid(), sigmoid),
  unary(
    'silu',
    (x) => x.silu(),
    (x) => x * sigmoid(x),
  ),
  unary('sin', (x) => x.sin(), Math.sin),
  unary('sqrt', (x) => x.sqrt(), Math.sqrt, positive),
  unary(
    'square',
    (x) => x.square(),
    (x) => x * x,
  ),
  unary('tanh', (x) => x.tanh(), Math.tanh),
  unary(
    'clamp',
    (x) => x.clamp({ min: -0.5, max: 1 }),
    (x) => Math.min(1, Math.max(-0.5, x)),
    away(-0.5, 1),
  ),
  unary(
    'clamp one bound',
    (x) => x.clamp({ max: 1 }),
    (x) => Math.min(1, x),
    away(1),
  ),
  unary(
    'clamp_max',
    (x) => x.clampMax(0.3),
    (x) => Math.min(0.3, x),
    away(0.3),
  ),
  unary(
    'clamp_min',
    (x) => x.clampMin(0.3),
    (x) => Math.max(0.3, x),
    away(0.3),
  ),
  unary(
    'logical_not',
    (x) => x.logicalNot(),
    (x) => Number(x === 0),
    { ...real([3]), data: [0, 2, -1] },
    off,
  ),
]

const special: Input = {
  shape: [5],
  data: [1, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0],
  dtype: 'float',
}
const specials: OpCase[] = [
  op(
    'isfinite',
    [special],
    (x) => x.isfinite(),
    each((x) => Number(Number.isFinite(x))),
    off,
  ),
  op(
    'isnan',
    [special],
    (x) => x.isnan(),
    each((x) => Number(Number.isNaN(x))),
    off,
  ),
  op(
    'nan_to_num',
    [special],
    (x) => x.nanToNum({ nan: 7, posinf: 8, neginf: 9 }),
    () => nd([5], (_, i) => [1, 7, 8, 9, 0][i]!),
    off,
  ),
]

// [2, 3] against [3]: every binary op broadcasts
const a = real([2, 3], -2, 2, [0])
const b = real([3], 0.3, 2)
const two = (f: (x: number, y: number) => number) => (x: Nd, y: Nd) => zip(f, x, y)
const mod = (x: number, y: number) => x - y * Math.floor(x / y)
const flags = bools([2, 3], [1, 0, 1, 1, 0, 0])
const equalish = [ints([4], [1, 2, 3, 4]), ints([4], [1, 3, 3, 2])]

const binaries: OpCase[] = [
  op(
    'add',
    [a, b],
    (x, y) => x.add(y),
    two((x, y) => x + y),
  ),
  op(
    'add alpha',
    [a, b],
    (x, y) => x.add(y, { alpha: -2.5 }),
    two((x, y) => x - 2.5 * y),
  ),
  op(
    'add scalar',
    [a],
    (x) => x.add(1.25),
    each((x) => x + 1.25),
  ),
  op(
    'sub',
    [a, b],
    (x, y) => x.sub(y),
    two((x, y) => x - y),
  ),
  op(
    'sub scalar',
    [a],
    (x) => x.sub(2, { alpha: 3 }),
    each((x) => x - 6),
  ),
  op(
    'mul',
    [a, b],
    (x, y) => x.mul(y),
    two((x, y) => x * y),
  ),
  op(
    'mul scalar',
    [a],
    (x) => x.mul(-0.5),
    each((x) => -0.5 * x),
  ),
  op(
    'div',
    [a, b],
    (x, y) => x.div(y),
    two((x, y) => x / y),
  ),
  op(
    'div scalar',
    [a],
    (x) => x.div(4),
    each((x) => x / 4),
  ),
  op(
    'div floor',
    [a, b],
    (x, y) => x.div(y, { roundingMode: 'floor' }),
    two((x, y) => Math.floor(x / y)),
    off,
  ),
  op(
    'div trunc scalar',
    [a],
    (x) => x.div(0.4, { roundingMode: 'trunc' }),
    each((x) => Math.trunc(x / 0.4)),
    off,
  ),
  op(
    'pow',
    [b, a],
    (x, y) => x.pow(y),
    two((x, y) => x ** y),
  ),
  op(
    'pow scalar',
    [a],
    (x) => x.pow(3),
    each((x) => x ** 3),
  ),
  op('maximum', [a, b], (x, y) => x.maximum(y), two(Math.max)),
  op('minimum', [a, b], (x, y) => x.minimum(y), two(Math.min)),
  op('max other', [a, b], (x, y) => x.max(y), two(Math.max)),
  op('min other', [a, b], (x, y) => x.min(y), two(Math.min)),
  op('clamp_max tensor', [a, b], (x, y) => x.clampMax(y), two(Math.min)),
  op('clamp_min tensor', [a, b], (x, y) => x.clampMin(y), two(Math.max)),
  op('remainder', [a, b], (x, y) => x.remainder(y), two(mod), off),
  op(
    'remainder scalar',
    [a],
    (x) => x.remainder(0.7),
    each((x) => mod(x, 0.7)),
  ),
  op(
    'logaddexp',
    [a, b],
    (x, y) => x.logaddexp(y),
    two((x, y) => Math.log(Math.exp(x) + Math.exp(y))),
  ),
  op(
    'lerp',
    [a, b],
    (x, y) => x.lerp(y, 0.3),
    two((x, y) => x + 0.3 * (y - x)),
  ),
  op(
    'lerp tensor',
    [a, b, real([2, 1], 0, 1)],
    (x, y, w) => x.lerp(y, w),
    (x, y, w) => zip((p, q, r) => p + r * (q - p), x, y, w),
  ),
  op(
    'where',
    [flags, a, b],
    (c, x, y) => where(c, x, y),
    (c, x, y) => zip((p, q, r) => (p ? q : r), c, x, y),
  ),
  op(
    'where scalar self',
    [flags, a],
    (c, x) => where(c, 2.5, x),
    (c, x) => zip((p, q) => (p ? 2.5 : q), c, x),
  ),
  op(
    'where scalar other',
    [flags, a],
    (c, x) => where(c, x, 2.5),
    (c, x) => zip((p, q) => (p ? q : 2.5), c, x),
  ),
  op(
    'where scalars',
    [flags],
    (c) => where(c, 1.5, -1.5).to('float64'),
    each((c) => (c ? 1.5 : -1.5)),
    off,
  ),
  op(
    'where indices',
    [flags],
    (c) => where(c),
    () => [nd([3], (_, i) => [0, 0, 1][i]!), nd([3], (_, i) => [0, 2, 0][i]!)],
    off,
  ),
  op(
    'masked_fill',
    [a, flags],
    (x, m) => x.maskedFill(m, -9),
    two((x, m) => (m ? -9 : x)),
  ),
  op(
    'masked_fill tensor',
    [a, flags, real([])],
    (x, m, v) => x.maskedFill(m, v),
    (x, m, v) => zip((p, q, r) => (q ? r : p), x, m, v),
  ),
  op(
    'logical_and',
    [flags, a],
    (x, y) => x.logicalAnd(y),
    two((x, y) => Number(x !== 0 && y !== 0)),
    off,
  ),
  op(
    'logical_or',
    [flags, a],
    (x, y) => x.logicalOr(y),
    two((x, y) => Number(x !== 0 || y !== 0)),
    off,
  ),
  op(
    'eq',
    equalish,
    (x, y) => x.eq(y),
    two((x, y) => Number(x === y)),
    off,
  ),
  op(
    'ne',
    equalish,
    (x, y) => x.ne(y),
    two((x, y) => Number(x !== y)),
    off,
  ),
  op(
    'lt',
    equalish,
    (x, y) => x.lt(y),
    two((x, y) => Number(x < y)),
    off,
  ),
  op(
    'le',
    equalish,
    (x, y) => x.le(y),
    two((x, y) => Number(x <= y)),
    off,
  ),
  op(
    'gt',
    equalish,
    (x, y) => x.gt(y),
    two((x, y) => Number(x > y)),
    off,
  ),
  op(
    'ge scalar',
    [equalish[0]!],
    (x) => x.ge(2),
    each((x) => Number(x >= 2)),
    off,
  ),
]

// in place: the handle that comes back is the one that went in, and holds the new values
const same =
  (run: (x: T, ...rest: T[]) => T) =>
  (x: T, ...rest: T[]) => {
    const copy = x.clone()
    if (run(copy, ...rest) !== copy) throw new Error('an in-place op must give its own tensor back')
    return copy
  }
const places: OpCase[] = [
  op(
    'exp_',
    [a],
    same((x) => x.exp_()),
    each(Math.exp),
  ),
  op(
    'clamp_',
    [a],
    same((x) => x.clamp_({ min: 0 })),
    each((x) => Math.max(0, x)),
  ),
  op(
    'zero_',
    [a],
    same((x) => x.zero_()),
    each(() => 0),
  ),
  op(
    'fill_',
    [a],
    same((x) => x.fill_(2.5)),
    each(() => 2.5),
  ),
  op(
    'fill_ tensor',
    [a, real([])],
    same((x, v) => x.fill_(v!)),
    two((_, v) => v),
  ),
  op(
    'copy_',
    [a, b],
    same((x, y) => x.copy_(y!)),
    two((_, y) => y),
  ),
  op(
    'add_',
    [a, b],
    same((x, y) => x.add_(y!, { alpha: 2 })),
    two((x, y) => x + 2 * y),
  ),
  op(
    'mul_',
    [a, b],
    same((x, y) => x.mul_(y!)),
    two((x, y) => x * y),
  ),
  op(
    'lerp_',
    [a, b],
    same((x, y) => x.lerp_(y!, 0.9)),
    two((x, y) => x + 0.9 * (y - x)),
  ),
  op(
    'addcmul_',
    [a, a, b],
    same((x, y, z) => x.addcmul_(y!, z!)),
    (x, y, z) => zip((p, q, r) => p + q * r, x, y, z),
  ),
]

for (const row of [...unaries, ...specials, ...binaries, ...places])
  test(`${row.name} equals the closed form, its gradient the differences`, () => checkOp(row))
