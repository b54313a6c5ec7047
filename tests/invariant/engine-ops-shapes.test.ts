// Ops that move, pick or make elements: the expected array is written as an index rule.
import assert from 'node:assert/strict'
import test from 'node:test'
import * as rt from '../../src/tensor/index.ts'
import { at, bools, checkOp, count, ints, type Nd, nd, type OpCase, op, real, scalar } from './engine-reference.ts'

const a = real([2, 3])
const b = real([2, 3])
const c = real([2, 3, 4])
const off = { grad: false }
const vector = (...data: number[]): Nd => ({ shape: [data.length], data })

const moves: OpCase[] = [
  op(
    'expand',
    [real([2, 1])],
    (x) => x.expand([2, 3]),
    (x) => nd([2, 3], (i) => at(x, i)),
  ),
  op(
    'expand keep',
    [real([2, 1])],
    (x) => x.expand([4, -1, 3]),
    (x) => nd([4, 2, 3], (i) => at(x, i)),
  ),
  op(
    'cat',
    [a, b],
    (x, y) => rt.cat([x, y], { dim: 1 }),
    (x, y) => nd([2, 6], ([i, j]) => (j! < 3 ? at(x, [i!, j!]) : at(y, [i!, j! - 3]))),
  ),
  op(
    'stack',
    [a, b],
    (x, y) => rt.stack([x, y], { dim: -1 }),
    (x, y) => nd([2, 3, 2], ([i, j, k]) => at(k ? y : x, [i!, j!])),
  ),
  op(
    'chunk',
    [c],
    (x) => x.chunk(2, { dim: -1 }),
    (x) => [0, 2].map((s) => nd([2, 3, 2], ([i, j, k]) => at(x, [i!, j!, k! + s]))),
  ),
  op(
    'split',
    [c],
    (x) => x.split(3, { dim: 2 }),
    (x) => [nd([2, 3, 3], (i) => at(x, i)), nd([2, 3, 1], ([i, j]) => at(x, [i!, j!, 3]))],
  ),
  op(
    'split sizes',
    [c],
    (x) => x.split([1, 3], { dim: 2 }),
    (x) => [
      nd([2, 3, 1], (i) => x.data[(i[0]! * 3 + i[1]!) * 4]!),
      nd([2, 3, 3], ([i, j, k]) => at(x, [i!, j!, k! + 1])),
    ],
  ),
  op(
    'unbind',
    [a],
    (x) => x.unbind({ dim: 1 }),
    (x) => [0, 1, 2].map((j) => nd([2], ([i]) => at(x, [i!, j]))),
  ),
  op(
    'clone',
    [a],
    (x) => x.clone(),
    (x) => x,
  ),
  op(
    'contiguous',
    [a],
    (x) => x.t().contiguous(),
    (x) => nd([3, 2], ([i, j]) => at(x, [j!, i!])),
  ),
  op(
    'view',
    [c],
    (x) => x.view([6, -1]),
    (x) => ({ shape: [6, 4], data: x.data }),
  ),
  op(
    'reshape',
    [c],
    (x) => x.transpose(0, 1).reshape([-1]),
    (x) => ({ shape: [24], data: nd([3, 2, 4], ([i, j, k]) => at(x, [j!, i!, k!])).data }),
  ),
  op(
    'flatten',
    [c],
    (x) => x.flatten({ startDim: 1 }),
    (x) => ({ shape: [2, 12], data: x.data }),
  ),
  op(
    'squeeze',
    [real([1, 2, 1])],
    (x) => x.squeeze(),
    (x) => ({ shape: [2], data: x.data }),
  ),
  op(
    'squeeze dim',
    [real([1, 2, 1])],
    (x) => x.squeeze(-1),
    (x) => ({ shape: [1, 2], data: x.data }),
  ),
  op(
    'unsqueeze',
    [a],
    (x) => x.unsqueeze(1),
    (x) => ({ shape: [2, 1, 3], data: x.data }),
  ),
  op(
    't',
    [a],
    (x) => x.t(),
    (x) => nd([3, 2], ([i, j]) => at(x, [j!, i!])),
  ),
  op(
    'transpose',
    [c],
    (x) => x.transpose(-1, 0),
    (x) => nd([4, 3, 2], ([i, j, k]) => at(x, [k!, j!, i!])),
  ),
  op(
    'permute',
    [c],
    (x) => x.permute([2, 0, 1]),
    (x) => nd([4, 2, 3], ([i, j, k]) => at(x, [j!, k!, i!])),
  ),
  op(
    'flip',
    [a],
    (x) => x.flip([0, 1]),
    (x) => nd([2, 3], ([i, j]) => at(x, [1 - i!, 2 - j!])),
  ),
  op(
    'roll',
    [a],
    (x) => x.roll(1, { dims: 1 }),
    (x) => nd([2, 3], ([i, j]) => at(x, [i!, (j! + 2) % 3])),
  ),
  op(
    'repeat',
    [a],
    (x) => x.repeat([2, 1, 2]),
    (x) => nd([2, 2, 6], ([, i, j]) => at(x, [i!, j! % 3])),
  ),
  op(
    'repeat_interleave',
    [a],
    (x) => x.repeatInterleave(2, { dim: 0 }),
    (x) => nd([4, 3], ([i, j]) => at(x, [Math.floor(i! / 2), j!])),
  ),
  op(
    'repeat_interleave tensor',
    [a, ints([3], [2, 0, 1])],
    (x, n) => x.repeatInterleave(n, { dim: 1 }),
    (x) => nd([2, 3], ([i, j]) => at(x, [i!, [0, 0, 2][j!]!])),
  ),
  op(
    'narrow',
    [c],
    (x) => x.narrow(2, 1, 2),
    (x) => nd([2, 3, 2], ([i, j, k]) => at(x, [i!, j!, k! + 1])),
  ),
  op(
    'select',
    [c],
    (x) => x.select(1, -1),
    (x) => nd([2, 4], ([i, k]) => at(x, [i!, 2, k!])),
  ),
  op(
    'slice',
    [c],
    (x) => x.slice({ dim: 2, start: 1, step: 2 }),
    (x) => nd([2, 3, 2], ([i, j, k]) => at(x, [i!, j!, 1 + 2 * k!])),
  ),
  op(
    'tril',
    [a],
    (x) => x.tril(),
    (x) => nd([2, 3], (i) => (i[1]! <= i[0]! ? at(x, i) : 0)),
  ),
  op(
    'detach',
    [a],
    (x) => x.detach(),
    (x) => x,
    off,
  ),
  op(
    'to',
    [a],
    (x) => x.to('int64'),
    (x) => nd([2, 3], (i) => Math.trunc(at(x, i))),
    off,
  ),
  op(
    'constant_pad_nd',
    [a],
    (x) => x.constantPadNd([1, 2, 0, 1], { value: 7 }),
    (x) => nd([3, 6], ([i, j]) => (i! < 2 && j! > 0 && j! < 4 ? at(x, [i!, j! - 1]) : 7)),
  ),
]

const rows = ints([2, 2], [1, 0, 2, 2])
const mask = bools([2, 3], [1, 0, 1, 0, 0, 1])
const pick = ints([2], [2, 0])
const cells = ints([2], [0, 1])
const patch = (x: Nd, changes: [number[], (old: number) => number][]): Nd => {
  const out = [...x.data]
  for (const [i, f] of changes) out[i[0]! * x.shape[1]! + i[1]!] = f(out[i[0]! * x.shape[1]! + i[1]!]!)
  return { shape: x.shape, data: out }
}
const copyThen =
  (run: (x: rt.Tensor, ...rest: rt.Tensor[]) => rt.Tensor) =>
  (x: rt.Tensor, ...rest: rt.Tensor[]) => {
    const copy = x.clone()
    assert.equal(run(copy, ...rest), copy)
    return copy
  }
const scattered = (x: Nd, s: Nd, add: boolean) =>
  patch(
    x,
    [0, 1].flatMap((i) =>
      [0, 1].map(
        (j) =>
          [[i, rows.data[2 * i + j]!], (old: number) => (add ? old : 0) + at(s, [i, j])] as [
            number[],
            (old: number) => number,
          ],
      ),
    ),
  )
const unique = ints([2, 2], [1, 0, 2, 0])
const scatteredUnique = (x: Nd, value: (i: number, j: number) => number) =>
  patch(
    x,
    [0, 1].flatMap((i) =>
      [0, 1].map((j) => [[i, unique.data[2 * i + j]!], () => value(i, j)] as [number[], () => number]),
    ),
  )

const picks: OpCase[] = [
  op(
    'gather',
    [a, rows],
    (x, i) => x.gather(1, i),
    (x, r) => nd([2, 2], (i) => at(x, [i[0]!, at(r, i)])),
  ),
  op(
    'index_select',
    [a, pick],
    (x, i) => x.indexSelect(1, i),
    (x, p) => nd([2, 2], ([i, j]) => at(x, [i!, p.data[j!]!])),
  ),
  op(
    'index',
    [a, cells, pick],
    (x, i, j) => x.index([i, j]),
    (x, i, j) => nd([2], ([k]) => at(x, [i.data[k!]!, j.data[k!]!])),
  ),
  op(
    'index null',
    [a, pick],
    (x, j) => x.index([null, j]),
    (x, j) => nd([2, 2], ([i, k]) => at(x, [i!, j.data[k!]!])),
  ),
  op(
    'index mask',
    [a, mask],
    (x, m) => x.index([m]),
    (x) => vector(x.data[0]!, x.data[2]!, x.data[5]!),
  ),
  op(
    'index_copy',
    [a, pick, real([2, 2])],
    (x, p, s) => x.indexCopy(1, p, s),
    (x, p, s) =>
      patch(
        x,
        [0, 1].flatMap((i) => [0, 1].map((k) => [[i, p.data[k]!], () => at(s, [i, k])] as [number[], () => number])),
      ),
  ),
  op(
    'index_copy_',
    [a, ints([1], [1]), real([1, 3])],
    copyThen((x, p, s) => x.indexCopy_(0, p!, s!)),
    (x, _, s) => nd([2, 3], (i) => (i[0] === 1 ? s.data[i[1]!]! : at(x, i))),
  ),
  op(
    'index_fill',
    [a, pick],
    (x, p) => x.indexFill(1, p, 5),
    (x) => nd([2, 3], (i) => (i[1] === 1 ? at(x, i) : 5)),
  ),
  op(
    'masked_select',
    [a, mask],
    (x, m) => x.maskedSelect(m),
    (x) => vector(x.data[0]!, x.data[2]!, x.data[5]!),
  ),
  op(
    'scatter',
    [a, unique, real([2, 2])],
    (x, i, s) => x.scatter(1, i, s),
    (x, _, s) => scatteredUnique(x, (i, j) => at(s, [i, j])),
  ),
  op(
    'scatter value',
    [a, unique],
    (x, i) => x.scatter(1, i, 6),
    (x) => scatteredUnique(x, () => 6),
  ),
  op(
    'scatter_',
    [a, unique, real([2, 2])],
    copyThen((x, i, s) => x.scatter_(1, i!, s!)),
    (x, _, s) => scatteredUnique(x, (i, j) => at(s, [i, j])),
    off,
  ),
  op(
    'scatter_add',
    [a, rows, real([2, 2])],
    (x, i, s) => x.scatterAdd(1, i, s),
    (x, _, s) => scattered(x, s, true),
  ),
  op(
    'nonzero',
    [mask],
    (m) => m.nonzero(),
    () => ({ shape: [3, 2], data: [0, 0, 0, 2, 1, 2] }),
    off,
  ),
  op(
    'searchsorted',
    [{ ...real([3]), data: [-1, 0, 1] }, real([4])],
    (e, x) => rt.searchsorted(e, x),
    (e, x) => nd([4], ([i]) => e.data.filter((v) => v < x.data[i!]!).length),
    off,
  ),
]

const f64 = { dtype: 'float64' } as const
const makes: OpCase[] = [
  op(
    'arange',
    [],
    () => rt.arange(4),
    () => vector(0, 1, 2, 3),
    off,
  ),
  op(
    'arange start',
    [],
    () => rt.arange(2, 5, f64),
    () => vector(2, 3, 4),
    off,
  ),
  op(
    'arange step',
    [],
    () => rt.arange(1, 2, { step: 0.25, ...f64 }),
    () => vector(1, 1.25, 1.5, 1.75),
    off,
  ),
  op(
    'full',
    [],
    () => rt.full([2, 2], 1.5, f64),
    () => nd([2, 2], () => 1.5),
    off,
  ),
  op(
    'zeros',
    [],
    () => rt.zeros([3]),
    () => vector(0, 0, 0),
    off,
  ),
  op(
    'ones',
    [],
    () => rt.ones([0, 3]),
    () => ({ shape: [0, 3], data: [] }),
    off,
  ),
  op(
    'ones_like',
    [a],
    (x) => x.onesLike(),
    () => nd([2, 3], () => 1),
    off,
  ),
  op(
    'empty',
    [],
    () => rt.empty([2, 0]),
    () => ({ shape: [2, 0], data: [] }),
    off,
  ),
]

for (const row of [...moves, ...picks, ...makes])
  test(`${row.name} follows its index rule, its gradient the differences`, () => checkOp(row))

test('the check itself catches a wrong value, a wrong shape and a wrong gradient', () => {
  assert.throws(
    () =>
      checkOp(
        op(
          'wrong',
          [a],
          (x) => x.mul(1.001),
          (x) => x,
        ),
      ),
    /element 0/,
  )
  assert.throws(
    () =>
      checkOp(
        op(
          'wrong',
          [a],
          (x) => x.t(),
          (x) => x,
        ),
      ),
    /shape/,
  )
  const half = (x: rt.Tensor) => x.mul(0.5).add(x.detach().mul(0.5))
  assert.throws(() => checkOp(op('wrong', [a], half, (x) => x)), /gradient of input 0/)
})

test('random ops draw from their range, and the same again with the same generator', () => {
  rt.tidy(() => {
    const g = new rt.Generator(7)
    const twice = (draw: () => rt.Tensor) => {
      const first = draw().numbers()
      g.seed(7)
      g.seed(7)
      const [second, third] = [draw(), g.seed(7) && draw()].map((t) => t.numbers())
      assert.deepEqual(second, third)
      return [...first, ...second!]
    }
    const mean = (v: number[]) => v.reduce((x, y) => x + y, 0) / v.length
    const spread = (v: number[]) => Math.sqrt(mean(v.map((x) => (x - mean(v)) ** 2)))
    const normal = twice(() => rt.randn([4000], { generator: g }))
    assert.ok(Math.abs(mean(normal)) < 0.05 && Math.abs(spread(normal) - 1) < 0.05)
    const inPlace = twice(() => rt.empty([4000]).normal_({ mean: 3, std: 2, generator: g }))
    assert.ok(Math.abs(mean(inPlace) - 3) < 0.1 && Math.abs(spread(inPlace) - 2) < 0.1)
    const dropped = rt.ones([4000]).dropout(0.25, true).numbers()
    assert.ok(dropped.every((v) => v === 0 || Math.abs(v - 4 / 3) < 1e-6) && Math.abs(mean(dropped) - 1) < 0.05)
    assert.deepEqual(rt.ones([3]).dropout(0.5, false).numbers(), [1, 1, 1])
  })
})

test('equal compares values and shapes', () => {
  rt.tidy(() => {
    const x = rt.tensor([1, 2])
    assert.equal(x.equal(rt.tensor([1, 2])), true)
    assert.equal(x.equal(rt.tensor([1, 3])), false)
    assert.equal(scalar(1).data.length, count([]))
  })
})
