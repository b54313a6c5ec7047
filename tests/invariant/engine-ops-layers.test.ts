// Reductions, linear algebra, normalisation, convolutions, resizing and losses against plain loops.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { hasOp, native } from '../../src/engine/index.ts'
import * as rt from '../../src/tensor/index.ts'
import {
  at,
  bools,
  checkOp,
  type Input,
  ints,
  lines,
  type Nd,
  nd,
  type OpCase,
  op,
  real,
  reduce,
  sum,
  zip,
} from './engine-reference.ts'

const off = { grad: false }
const a = real([3, 4])
const b = real([3, 4])
const c = real([2, 3, 4])
const positive = real([3, 4], 0.3, 2)

const mean = (v: readonly number[]) => sum(v) / v.length
const variance = (v: readonly number[], correction: number) =>
  sum(v.map((x) => (x - mean(v)) ** 2)) / (v.length - correction)
const order = (v: readonly number[], sign = 1) => v.map((_, i) => i).sort((i, j) => sign * (v[i]! - v[j]!) || i - j)
const best = (v: readonly number[]) => v.indexOf(Math.max(...v))
const least = (v: readonly number[]) => v.indexOf(Math.min(...v))
const logsumexp = (v: readonly number[]) => Math.log(sum(v.map(Math.exp)))
const softmax = (v: readonly number[]) => v.map((x) => Math.exp(x - logsumexp(v)))
const running = (f: (x: number, y: number) => number) => (v: number[]) => {
  let acc: number | undefined
  return v.map((x) => {
    acc = acc === undefined ? x : f(acc, x)
    return acc
  })
}
const firstOf = (n: number, f: (v: number[]) => number[]) => (x: Nd) => {
  const rows = Array.from({ length: x.shape[0]! }, (_, i) => f(x.data.slice(i * x.shape[1]!, (i + 1) * x.shape[1]!)))
  return { shape: [x.shape[0]!, n], data: rows.flatMap((r) => r.slice(0, n)) }
}

const reductions: OpCase[] = [
  op(
    'sum',
    [c],
    (x) => x.sum(),
    (x) => reduce(x, null, sum),
  ),
  op(
    'sum dim',
    [c],
    (x) => x.sum([0, -1], { keepdim: true }),
    (x) => reduce(x, [0, 2], sum, true),
  ),
  op(
    'mean',
    [c],
    (x) => x.mean(),
    (x) => reduce(x, null, mean),
  ),
  op(
    'mean dim',
    [c],
    (x) => x.mean(1),
    (x) => reduce(x, 1, mean),
  ),
  op(
    'amax',
    [c],
    (x) => x.amax({ dim: [1, 2] }),
    (x) => reduce(x, [1, 2], (v) => Math.max(...v)),
  ),
  op(
    'max',
    [a],
    (x) => x.max(),
    (x) => Math.max(...x.data),
  ),
  op(
    'max dim',
    [a],
    (x) => x.max(1),
    (x) => [reduce(x, 1, (v) => Math.max(...v)), reduce(x, 1, best)],
  ),
  op(
    'min',
    [a],
    (x) => x.min(),
    (x) => Math.min(...x.data),
  ),
  op(
    'min dim',
    [a],
    (x) => x.min(0, { keepdim: true }),
    (x) => [reduce(x, 0, (v) => Math.min(...v), true), reduce(x, 0, least, true)],
  ),
  op(
    'argmax',
    [a],
    (x) => x.argmax(),
    (x) => best(x.data),
    off,
  ),
  op(
    'argmax dim',
    [a],
    (x) => x.argmax({ dim: 1 }),
    (x) => reduce(x, 1, best),
    off,
  ),
  op(
    'all',
    [bools([2, 2], [1, 1, 0, 1])],
    (x) => x.all(),
    () => 0,
    off,
  ),
  op(
    'all dim',
    [bools([2, 2], [1, 1, 0, 1])],
    (x) => x.all(1),
    () => nd([2], ([i]) => 1 - i!),
    off,
  ),
  op(
    'logsumexp',
    [a],
    (x) => x.logsumexp(1),
    (x) => reduce(x, 1, logsumexp),
  ),
  op(
    'norm',
    [a],
    (x) => x.norm(),
    (x) => Math.hypot(...x.data),
  ),
  op(
    'norm dim',
    [a],
    (x) => x.norm(1, [1]),
    (x) => reduce(x, 1, (v) => sum(v.map(Math.abs))),
  ),
  op(
    'std',
    [a],
    (x) => x.std(1, { correction: 1 }),
    (x) => reduce(x, 1, (v) => Math.sqrt(variance(v, 1))),
  ),
  op(
    'quantile',
    [a],
    (x) => x.quantile(0.4, { dim: 1 }),
    (x) =>
      reduce(x, 1, (v) => {
        const s = v.toSorted((p, q) => p - q)
        return s[1]! + 0.2 * (s[2]! - s[1]!)
      }),
  ),
  op(
    'cumsum',
    [a],
    (x) => x.cumsum(1),
    (x) =>
      lines(
        x,
        1,
        running((p, q) => p + q),
      ),
  ),
  op(
    'sort',
    [a],
    (x) => x.sort(),
    (x) => [lines(x, 1, (v) => order(v).map((i) => v[i]!)), lines(x, 1, (v) => order(v))],
  ),
  op(
    'sort stable',
    [ints([5], [2, 1, 2, 0, 1])],
    (x) => x.sort({ stable: true, descending: true }),
    (x) => [lines(x, 0, (v) => order(v, -1).map((i) => v[i]!)), lines(x, 0, (v) => order(v, -1))],
    off,
  ),
  op(
    'topk',
    [a],
    (x) => x.topk(2),
    (x) => [firstOf(2, (v) => order(v, -1).map((i) => v[i]!))(x), firstOf(2, (v) => order(v, -1))(x)],
  ),
  op(
    'softmax',
    [a],
    (x) => x.softmax(-1),
    (x) => lines(x, 1, softmax),
  ),
  op(
    'log_softmax',
    [a],
    (x) => x.logSoftmax(0),
    (x) => lines(x, 0, (v) => softmax(v).map(Math.log)),
  ),
]

const m45 = real([4, 5])

const algebra: OpCase[] = [
  op(
    'matmul',
    [c, m45],
    (x, y) => x.matmul(y),
    (x, y) => nd([2, 3, 5], ([n, i, j]) => sum([0, 1, 2, 3].map((k) => at(x, [n!, i!, k]) * at(y, [k, j!])))),
  ),
  op(
    'linear',
    [c, real([5, 4]), real([5])],
    (x, w, bias) => x.linear(w, { bias }),
    (x, w, bias) =>
      nd([2, 3, 5], ([n, i, j]) => bias.data[j!]! + sum([0, 1, 2, 3].map((k) => at(x, [n!, i!, k]) * at(w, [j!, k])))),
  ),
  op(
    'layer_norm',
    [a, real([4]), real([4])],
    (x, weight, bias) => x.layerNorm([4], { weight, bias, eps: 1e-3 }),
    (x, w, bias) =>
      zip(
        (v, p, q) => v * p + q,
        lines(x, 1, (v) => v.map((e) => (e - mean(v)) / Math.sqrt(variance(v, 0) + 1e-3))),
        w,
        bias,
      ),
  ),
]

interface Conv {
  stride?: number
  padding?: number
  dilation?: number
  groups?: number
}
const or0 = (x: Nd, i: number[]) => (i.every((v, d) => v >= 0 && v < x.shape[d]!) ? at(x, i) : 0)
function conv2d(x: Nd, w: Nd, bias: Nd, { stride = 1, padding = 0, dilation = 1, groups = 1 }: Conv): Nd {
  const [n, , h, wide] = x.shape as [number, number, number, number]
  const [out, perGroup, kh, kw] = w.shape as [number, number, number, number]
  const size = (s: number, k: number) => Math.floor((s + 2 * padding - dilation * (k - 1) - 1) / stride) + 1
  return nd([n, out, size(h, kh), size(wide, kw)], ([b, o, i, j]) => {
    let total = bias.data[o!]!
    const group = Math.floor(o! / (out / groups))
    for (let k = 0; k < perGroup * kh * kw; k++) {
      const [ch, p, q] = [Math.floor(k / (kh * kw)), Math.floor(k / kw) % kh, k % kw]
      const place = [
        b!,
        group * perGroup + ch,
        i! * stride + p * dilation - padding,
        j! * stride + q * dilation - padding,
      ]
      total += or0(x, place) * at(w, [o!, ch, p, q])
    }
    return total
  })
}
function convTranspose2d(x: Nd, w: Nd, bias: Nd, stride: number, padding: number): Nd {
  const [n, inputs, h, wide] = x.shape as [number, number, number, number]
  const [, out, kh, kw] = w.shape as [number, number, number, number]
  const size = (s: number, k: number) => (s - 1) * stride - 2 * padding + k
  return nd([n, out, size(h, kh), size(wide, kw)], ([b, o, i, j]) => {
    let total = bias.data[o!]!
    for (let ch = 0; ch < inputs; ch++)
      for (let p = 0; p < h; p++)
        for (let q = 0; q < wide; q++)
          total += at(x, [b!, ch, p, q]) * or0(w, [ch, o!, i! + padding - p * stride, j! + padding - q * stride])
    return total
  })
}
function pool(x: Nd, size: number, stride: number, padding: number, f: (v: number[]) => number, pad: number): Nd {
  const out = (s: number) => Math.floor((s + 2 * padding - size) / stride) + 1
  return nd([x.shape[0]!, x.shape[1]!, out(x.shape[2]!), out(x.shape[3]!)], ([b, ch, i, j]) => {
    const window = Array.from({ length: size * size }, (_, k) => [
      b!,
      ch!,
      i! * stride + Math.floor(k / size) - padding,
      j! * stride + (k % size) - padding,
    ])
    return f(window.map((p) => (p.every((v, d) => v >= 0 && v < x.shape[d]!) ? at(x, p) : pad)))
  })
}

/** Resizing one axis is a matrix: row of weights per output pixel. */
type Filter = { reach: number; weight: (distance: number) => number }
const triangle: Filter = { reach: 1, weight: (d) => Math.max(0, 1 - Math.abs(d)) }
const cubicWith = (k: number): Filter => ({
  reach: 2,
  weight(d) {
    const t = Math.abs(d)
    if (t < 1) return ((k + 2) * t - (k + 3)) * t * t + 1
    return t < 2 ? ((k * t - 5 * k) * t + 8 * k) * t - 4 * k : 0
  },
})
/** Samples at fixed taps, edges repeated. */
function taps(from: number, to: number, filter: Filter, corners: boolean): number[][] {
  return Array.from({ length: to }, (_, o) => {
    const source = corners ? (o * (from - 1)) / (to - 1) : ((o + 0.5) * from) / to - 0.5
    const center = filter.reach === 1 ? Math.max(0, source) : source
    const row = new Array<number>(from).fill(0)
    for (let i = Math.floor(center) - filter.reach + 1; i <= Math.floor(center) + filter.reach; i++)
      row[Math.min(from - 1, Math.max(0, i))]! += filter.weight(center - i)
    return row
  })
}
/** Antialiased: the filter is stretched by the scale and its weights normalised inside the image. */
function smoothTaps(from: number, to: number, filter: Filter): number[][] {
  const scale = Math.max(1, from / to)
  return Array.from({ length: to }, (_, o) => {
    const center = ((o + 0.5) * from) / to
    const low = Math.max(0, Math.trunc(center - filter.reach * scale + 0.5))
    const high = Math.min(from, Math.trunc(center + filter.reach * scale + 0.5))
    const row = Array.from({ length: from }, (_, i) =>
      i >= low && i < high ? filter.weight((i + 0.5 - center) / scale) : 0,
    )
    return row.map((w) => w / sum(row))
  })
}
function resize(x: Nd, rows: number[][], columns: number[][]): Nd {
  return nd([x.shape[0]!, x.shape[1]!, rows.length, columns.length], ([b, ch, i, j]) =>
    sum(rows[i!]!.flatMap((p, y) => columns[j!]!.map((q, k) => p * q * at(x, [b!, ch!, y, k])))),
  )
}

const img = real([1, 2, 5, 4])
const spatial: OpCase[] = [
  op(
    'conv2d',
    [img, real([2, 2, 3, 2]), real([2])],
    (x, w, bias) => x.conv2d(w, { bias, stride: 2, padding: 1 }),
    (x, w, bias) => conv2d(x, w, bias, { stride: 2, padding: 1 }),
  ),
  op(
    'conv2d groups',
    [img, real([4, 1, 2, 2]), real([4])],
    (x, w, bias) => x.conv2d(w, { bias, groups: 2, dilation: [2, 2] }),
    (x, w, bias) => conv2d(x, w, bias, { groups: 2, dilation: 2 }),
  ),
  op(
    'conv_transpose2d',
    [real([1, 2, 2, 3]), real([2, 3, 3, 2]), real([3])],
    (x, w, bias) => x.convTranspose2d(w, { bias, stride: 2, padding: 1 }),
    (x, w, bias) => convTranspose2d(x, w, bias, 2, 1),
  ),
  op(
    'max_pool2d',
    [img],
    (x) => x.maxPool2d(2, { stride: 1 }),
    (x) => pool(x, 2, 1, 0, (v) => Math.max(...v), Number.NEGATIVE_INFINITY),
  ),
  op(
    'upsample_nearest2d',
    [img],
    (x) => x.upsampleNearest2d([7, 6]),
    (x) => nd([1, 2, 7, 6], ([n, ch, i, j]) => at(x, [n!, ch!, Math.floor((i! * 5) / 7), Math.floor((j! * 4) / 6)])),
  ),
  op(
    'upsample_bilinear2d',
    [img],
    (x) => x.upsampleBilinear2d([7, 3], false),
    (x) => resize(x, taps(5, 7, triangle, false), taps(4, 3, triangle, false)),
  ),
  op(
    'upsample_bilinear2d corners',
    [img],
    (x) => x.upsampleBilinear2d([3, 6], true),
    (x) => resize(x, taps(5, 3, triangle, true), taps(4, 6, triangle, true)),
  ),
  op(
    'upsample_bicubic2d',
    [img],
    (x) => x.upsampleBicubic2d([7, 3], false),
    (x) => resize(x, taps(5, 7, cubicWith(-0.75), false), taps(4, 3, cubicWith(-0.75), false)),
  ),
  op(
    '_upsample_bilinear2d_aa',
    [img],
    (x) => x._upsampleBilinear2dAa([2, 6], false),
    (x) => resize(x, smoothTaps(5, 2, triangle), smoothTaps(4, 6, triangle)),
    { tolerance: 1e-6 },
  ),
]

const probabilities: Input = {
  ...real([3, 4]),
  data: [1, 2, 3, 4].flatMap((k) => [0.1 * k, 0.5 - 0.1 * k, 0.25]).slice(0, 12),
}
const pairs = (f: (x: number, y: number) => number) => (x: Nd, y: Nd) => mean(zip(f, x, y).data)

const losses: OpCase[] = [
  op(
    'binary_cross_entropy_with_logits',
    [a, probabilities],
    (x, y) => x.binaryCrossEntropyWithLogits(y.detach()),
    pairs((x, y) => Math.log1p(Math.exp(x)) - x * y),
    off,
  ),
]

const inLists: OpCase[] = [
  op(
    '_foreach_add_',
    [a, b],
    (x, y) => tap([x.clone(), y.clone()], (l) => rt._foreachAdd_(l, [y, x], { alpha: 2 })),
    (x, y) => [zip((p, q) => p + 2 * q, x, y), zip((p, q) => q + 2 * p, x, y)],
    off,
  ),
  op(
    '_foreach_mul_',
    [a, b],
    (x, y) => tap([x.clone(), y.clone()], (l) => rt._foreachMul_(l, 3)),
    (x, y) => [zip((p) => 3 * p, x), zip((p) => 3 * p, y)],
    off,
  ),
  op(
    '_foreach_div_',
    [a, positive],
    (x, y) => tap([x.clone()], (l) => rt._foreachDiv_(l, [y])),
    (x, y) => zip((p, q) => p / q, x, y),
    off,
  ),
  op(
    '_foreach_sqrt',
    [positive],
    (x) => rt._foreachSqrt([x]),
    (x) => zip(Math.sqrt, x),
    off,
  ),
  op(
    '_foreach_norm',
    [a, b],
    (x, y) => rt._foreachNorm([x, y]),
    (x, y) => [Math.hypot(...x.data), Math.hypot(...y.data)],
    off,
  ),
  op(
    '_foreach_addcmul_',
    [a, b],
    (x, y) => tap([x.clone()], (l) => rt._foreachAddcmul_(l, [y], [y], { value: 0.5 })),
    (x, y) => zip((p, q) => p + 0.5 * q * q, x, y),
    off,
  ),
  op(
    '_foreach_addcdiv_',
    [a, positive],
    (x, y) => tap([x.clone()], (l) => rt._foreachAddcdiv_(l, [x], [y], { value: 2 })),
    (x, y) => zip((p, q) => p + (2 * p) / q, x, y),
    off,
  ),
]
function tap(list: rt.Tensor[], change: (list: rt.Tensor[]) => void): rt.Tensor[] {
  change(list)
  return list
}

for (const row of [...reductions, ...algebra, ...spatial, ...losses, ...inLists])
  test(`${row.name} equals the loops, its gradient the differences`, () => checkOp(row))

test('every line of ops.list is an op of this libtorch', () => {
  const list = readFileSync(new URL('../../src/tensor/ops.list', import.meta.url), 'utf8')
  const missing: string[] = []
  let total = 0
  for (const line of list.split('\n').filter((l) => l && !l.startsWith('#'))) {
    const [name, overloads] = line.split(': ') as [string, string]
    for (const overload of overloads.split(' ')) {
      total++
      if (!hasOp(overload === '-' ? name : `${name}.${overload}`)) missing.push(`${name}.${overload}`)
    }
  }
  assert.ok(total > 130)
  assert.deepEqual(missing, [], `missing in torch ${native().info().version}`)
})
