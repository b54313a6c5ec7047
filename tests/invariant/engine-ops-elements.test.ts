// Element-wise ops: values by Math in float64, gradients by differences.
import test from 'node:test'
import { type Tensor as T, where } from '../../src/tensor/index.ts'
import { bools, checkOp, type Input, ints, type Nd, nd, type OpCase, op, real, zip } from './engine-reference.ts'

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x))
const softplus = (x: number) => Math.log1p(Math.exp(x))

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

/** Inverse of erf by bisection. */
function erfinv(y: number): number {
  let low = -4
  let high = 4
  for (let i = 0; i < 80; i++) {
    const middle = (low + high) / 2
    if (erf(middle) < y) low = middle
    else high = middle
  }
  return (low + high) / 2
}

/** Logarithm of gamma: Stirling after shifting the argument up. */
function lgamma(x: number): number {
  let shift = 0
  let z = x
  for (; z < 15; z++) shift -= Math.log(z)
  const series = 1 / (12 * z) - 1 / (360 * z ** 3) + 1 / (1260 * z ** 5) - 1 / (1680 * z ** 7)
  return shift + (z - 0.5) * Math.log(z) - z + 0.5 * Math.log(2 * Math.PI) + series
}

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
const inside = real(square, -0.9, 0.9)

const unaries: OpCase[] = [
  unary('abs', (x) => x.abs(), Math.abs, away(0)),
  unary('acos', (x) => x.acos(), Math.acos, inside),
  unary('asin', (x) => x.asin(), Math.asin, inside),
  unary('atan', (x) => x.atan(), Math.atan),
  unary('ceil', (x) => x.ceil(), Math.ceil, away(-1, 0, 1)),
  unary('cos', (x) => x.cos(), Math.cos),
  unary('cosh', (x) => x.cosh(), Math.cosh),
  unary('erf', (x) => x.erf(), erf),
  unary(
    'erfc',
    (x) => x.erfc(),
    (x) => 1 - erf(x),
  ),
  unary('erfinv', (x) => x.erfinv(), erfinv, inside, { tolerance: 1e-9 }),
  unary('exp', (x) => x.exp(), Math.exp),
  unary(
    'exp2',
    (x) => x.exp2(),
    (x) => 2 ** x,
  ),
  unary('expm1', (x) => x.expm1(), Math.expm1),
  unary('floor', (x) => x.floor(), Math.floor, away(-1, 0, 1)),
  unary(
    'frac',
    (x) => x.frac(),
    (x) => x - Math.trunc(x),
    away(-1, 0, 1),
  ),
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
  unary(
    'hardtanh',
    (x) => x.hardtanh(),
    (x) => Math.min(1, Math.max(-1, x)),
    away(-1, 1),
  ),
  unary(
    'elu',
    (x) => x.elu({ alpha: 0.7 }),
    (x) => (x > 0 ? x : 0.7 * Math.expm1(x)),
    away(0),
  ),
  unary(
    'leaky_relu',
    (x) => x.leakyRelu({ negativeSlope: 0.1 }),
    (x) => (x > 0 ? x : 0.1 * x),
    away(0),
  ),
  unary('lgamma', (x) => x.lgamma(), lgamma, positive, { tolerance: 1e-9 }),
  unary('log', (x) => x.log(), Math.log, positive),
  unary('log10', (x) => x.log10(), Math.log10, positive),
  unary('log1p', (x) => x.log1p(), Math.log1p, positive),
  unary('log2', (x) => x.log2(), Math.log2, positive),
  unary(
    'log_sigmoid',
    (x) => x.logSigmoid(),
    (x) => -softplus(-x),
  ),
  unary(
    'logit',
    (x) => x.logit(),
    (x) => Math.log(x / (1 - x)),
    real(square, 0.1, 0.9),
  ),
  unary(
    'mish',
    (x) => x.mish(),
    (x) => x * Math.tanh(softplus(x)),
  ),
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
  unary(
    'selu',
    (x) => x.selu(),
    (x) => 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * Math.expm1(x)),
    away(0),
  ),
  unary('sigmoid', (x) => x.sigmoid(), sigmoid),
  unary('sign', (x) => x.sign(), Math.sign, away(0)),
  unary(
    'silu',
    (x) => x.silu(),
    (x) => x * sigmoid(x),
  ),
  unary('sin', (x) => x.sin(), Math.sin),
  unary('sinh', (x) => x.sinh(), Math.sinh),
  unary(
    'softplus',
    (x) => x.softplus({ beta: 2 }),
    (x) => softplus(2 * x) / 2,
  ),
  unary('sqrt', (x) => x.sqrt(), Math.sqrt, positive),
  unary(
    'square',
    (x) => x.square(),
    (x) => x * x,
  ),
  unary('tan', (x) => x.tan(), Math.tan, inside),
  unary('tanh', (x) => x.tanh(), Math.tanh),
  unary(
    'threshold',
    (x) => x.threshold(0.5, -3),
    (x) => (x > 0.5 ? x : -3),
    away(0.5),
  ),
  unary('trunc', (x) => x.trunc(), Math.trunc, away(-1, 0, 1)),
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
    'rsub',
    (x) => x.rsub(3, { alpha: 2 }),
    (x) => 3 - 2 * x,
  ),
  unary(
    'logical_not',
    (x) => x.logicalNot(),
    (x) => Number(x === 0),
    { ...real([3]), data: [0, 2, -1] },
    off,
  ),
  unary(
    'bitwise_not',
    (x) => x.bitwiseNot(),
    (x) => ~x,
    ints([4], [0, 1, -7, 1023]),
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
    'isinf',
    [special],
    (x) => x.isinf(),
    each((x) => Number(Math.abs(x) === Number.POSITIVE_INFINITY)),
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
const bits = [ints([4], [12, 10, -3, 255]), ints([4], [10, 6, 7, 15])]
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
  op('atan2', [a, b], (x, y) => x.atan2(y), two(Math.atan2)),
  op('maximum', [a, b], (x, y) => x.maximum(y), two(Math.max)),
  op('minimum', [a, b], (x, y) => x.minimum(y), two(Math.min)),
  op('max other', [a, b], (x, y) => x.max(y), two(Math.max)),
  op('min other', [a, b], (x, y) => x.min(y), two(Math.min)),
  op('clamp_max tensor', [a, b], (x, y) => x.clampMax(y), two(Math.min)),
  op('clamp_min tensor', [a, b], (x, y) => x.clampMin(y), two(Math.max)),
  op(
    'fmod',
    [a, b],
    (x, y) => x.fmod(y),
    two((x, y) => x % y),
    off,
  ),
  op(
    'fmod scalar',
    [a],
    (x) => x.fmod(0.7),
    each((x) => x % 0.7),
  ),
  op('remainder', [a, b], (x, y) => x.remainder(y), two(mod), off),
  op(
    'remainder scalar',
    [a],
    (x) => x.remainder(0.7),
    each((x) => mod(x, 0.7)),
  ),
  op(
    'floor_divide',
    [a, b],
    (x, y) => x.floorDivide(y),
    two((x, y) => Math.floor(x / y)),
    off,
  ),
  op(
    'logaddexp',
    [a, b],
    (x, y) => x.logaddexp(y),
    two((x, y) => Math.log(Math.exp(x) + Math.exp(y))),
  ),
  op(
    'xlogy',
    [a, b],
    (x, y) => x.xlogy(y),
    two((x, y) => x * Math.log(y)),
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
    'addcmul',
    [a, b, a],
    (x, y, z) => x.addcmul(y, z, { value: 0.5 }),
    (x, y, z) => zip((p, q, r) => p + 0.5 * q * r, x, y, z),
  ),
  op(
    'addcdiv',
    [a, a, b],
    (x, y, z) => x.addcdiv(y, z),
    (x, y, z) => zip((p, q, r) => p + q / r, x, y, z),
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
    'logical_xor',
    [flags, a],
    (x, y) => x.logicalXor(y),
    two((x, y) => Number((x !== 0) !== (y !== 0))),
    off,
  ),
  op(
    'bitwise_and',
    bits,
    (x, y) => x.bitwiseAnd(y),
    two((x, y) => x & y),
    off,
  ),
  op(
    'bitwise_and scalar',
    [bits[0]!],
    (x) => x.bitwiseAnd(6),
    each((x) => x & 6),
    off,
  ),
  op(
    'bitwise_or',
    bits,
    (x, y) => x.bitwiseOr(y),
    two((x, y) => x | y),
    off,
  ),
  op(
    'bitwise_or scalar',
    [bits[0]!],
    (x) => x.bitwiseOr(6),
    each((x) => x | 6),
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
    'abs_',
    [a],
    same((x) => x.abs_()),
    each(Math.abs),
  ),
  op(
    'exp_',
    [a],
    same((x) => x.exp_()),
    each(Math.exp),
  ),
  op(
    'sqrt_',
    [positive],
    same((x) => x.sqrt_()),
    each(Math.sqrt),
  ),
  op(
    'relu_',
    [a],
    same((x) => x.relu_()),
    each((x) => Math.max(0, x)),
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
    'sub_',
    [a, b],
    same((x, y) => x.sub_(y!)),
    two((x, y) => x - y),
  ),
  op(
    'mul_',
    [a, b],
    same((x, y) => x.mul_(y!)),
    two((x, y) => x * y),
  ),
  op(
    'div_',
    [a, b],
    same((x, y) => x.div_(y!)),
    two((x, y) => x / y),
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
  op(
    'addcdiv_',
    [a, a, b],
    same((x, y, z) => x.addcdiv_(y!, z!, { value: 2 })),
    (x, y, z) => zip((p, q, r) => p + (2 * q) / r, x, y, z),
  ),
  op(
    'masked_fill_',
    [a, flags],
    same((x, m) => x.maskedFill_(m!, 4)),
    two((x, m) => (m ? 4 : x)),
  ),
]

for (const row of [...unaries, ...specials, ...binaries, ...places])
  test(`${row.name} equals the closed form, its gradient the differences`, () => checkOp(row))
