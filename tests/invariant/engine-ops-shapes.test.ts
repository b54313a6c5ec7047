// Ops that move, pick or make elements: the expected array is written as an index rule.
import assert from 'node:assert/strict'
import test from 'node:test'
import * as rt from '../../src/tensor/index.ts'
import { at, bools, checkOp, count, ints, type Nd, nd, type OpCase, op, real, scalar } from './engine-reference.ts'

const a = real([2, 3])
const b = real([2, 3])
const c = real([2, 3, 4])
const image = real([1, 2, 3, 4])
const off = { grad: false }
const vector = (...data: number[]): Nd => ({ shape: [data.length], data })

const moves: OpCase[] = [
  op(
    'broadcast_to',
    [real([3])],
    (x) => x.broadcastTo([2, 3]),
    (x) => nd([2, 3], (i) => at(x, i)),
  ),
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
    'expand_as',
    [real([3]), a],
    (x, y) => x.expandAs(y),
    (x) => nd([2, 3], (i) => at(x, i)),
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
    'tensor_split',
    [real([5])],
    (x) => x.tensorSplit(2),
    (x) => [vector(...x.data.slice(0, 3)), vector(...x.data.slice(3))],
  ),
  op(
    'tensor_split indices',
    [real([5])],
    (x) => x.tensorSplit([1, 4]),
    (x) => [vector(...x.data.slice(0, 1)), vector(...x.data.slice(1, 4)), vector(...x.data.slice(4))],
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
    'view_as',
    [a, real([3, 2])],
    (x, y) => x.viewAs(y),
    (x) => ({ shape: [3, 2], data: x.data }),
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
    'movedim',
    [c],
    (x) => x.movedim(0, -1),
    (x) => nd([3, 4, 2], ([i, j, k]) => at(x, [k!, i!, j!])),
  ),
  op(
    'movedim list',
    [c],
    (x) => x.movedim([0, 1], [1, 2]),
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
    'unfold',
    [real([6])],
    (x) => x.unfold(0, 3, 2),
    (x) => nd([2, 3], ([i, j]) => x.data[2 * i! + j!]!),
  ),
  op(
    'diag',
    [real([3])],
    (x) => x.diag({ diagonal: 1 }),
    (x) => nd([4, 4], ([i, j]) => (j === i! + 1 ? x.data[i!]! : 0)),
  ),
  op(
    'diagonal',
    [a],
    (x) => x.diagonal({ offset: 1 }),
    (x) => nd([2], ([i]) => at(x, [i!, i! + 1])),
  ),
  op(
    'tril',
    [a],
    (x) => x.tril(),
    (x) => nd([2, 3], (i) => (i[1]! <= i[0]! ? at(x, i) : 0)),
  ),
  op(
    'triu',
    [a],
    (x) => x.triu({ diagonal: 1 }),
    (x) => nd([2, 3], (i) => (i[1]! > i[0]! ? at(x, i) : 0)),
  ),
  op(
    'detach',
    [a],
    (x) => x.detach(),
    (x) => x,
    off,
  ),
  op(
    'type_as',
    [a, ints([1], [0])],
    (x, y) => x.typeAs(y),
    (x) => nd([2, 3], (i) => Math.trunc(at(x, i))),
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
  op(
    'reflection_pad2d',
    [image],
    (x) => x.reflectionPad2d([1, 1, 1, 0]),
    (x) =>
      nd([1, 2, 4, 6], ([n, ch, i, j]) => at(x, [n!, ch!, Math.abs(i! - 1), j! === 0 ? 1 : j! === 5 ? 2 : j! - 1])),
  ),
  op(
    'replication_pad2d',
    [image],
    (x) => x.replicationPad2d([1, 0, 0, 2]),
    (x) => nd([1, 2, 5, 5], ([n, ch, i, j]) => at(x, [n!, ch!, Math.min(2, i!), Math.max(0, j! - 1)])),
  ),
  op(
    'pixel_shuffle',
    [real([1, 4, 2, 3])],
    (x) => x.pixelShuffle(2),
    (x) => nd([1, 1, 4, 6], ([, , i, j]) => at(x, [0, (i! % 2) * 2 + (j! % 2), i! >> 1, j! >> 1])),
  ),
  op(
    'pixel_unshuffle',
    [real([1, 1, 4, 6])],
    (x) => x.pixelUnshuffle(2),
    (x) => nd([1, 4, 2, 3], ([, k, i, j]) => at(x, [0, 0, 2 * i! + (k! >> 1), 2 * j! + (k! % 2)])),
  ),
  op(
    'im2col',
    [real([1, 2, 3, 3])],
    (x) => x.im2col([2, 2], [1, 1], [0, 0], [1, 1]),
    (x) => nd([1, 8, 4], ([, r, p]) => at(x, [0, r! >> 2, (p! >> 1) + ((r! >> 1) & 1), (p! & 1) + (r! & 1)])),
  ),
  op(
    'meshgrid',
    [real([2]), real([3])],
    (x, y) => rt.meshgrid([x, y], { indexing: 'ij' }),
    (x, y) => [nd([2, 3], ([i]) => x.data[i!]!), nd([2, 3], ([, j]) => y.data[j!]!)],
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
    'take_along_dim',
    [a, rows],
    (x, i) => x.takeAlongDim(i, { dim: 1 }),
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
    'index_put',
    [a, cells, pick, real([2])],
    (x, i, j, v) => x.indexPut([i, j], v),
    (x, i, j, v) =>
      patch(
        x,
        [0, 1].map((k) => [[i.data[k]!, j.data[k]!], () => v.data[k]!]),
      ),
  ),
  op(
    'index_put_',
    [a, cells, pick, real([2])],
    copyThen((x, i, j, v) => x.indexPut_([i!, j!], v!, { accumulate: true })),
    (x, i, j, v) =>
      patch(
        x,
        [0, 1].map((k) => [[i.data[k]!, j.data[k]!], (old) => old + v.data[k]!]),
      ),
  ),
  op(
    'index_add',
    [a, pick, real([2, 2])],
    (x, p, s) => x.indexAdd(1, p, s, { alpha: 2 }),
    (x, p, s) =>
      patch(
        x,
        [0, 1].flatMap((i) =>
          [0, 1].map(
            (k) => [[i, p.data[k]!], (old: number) => old + 2 * at(s, [i, k])] as [number[], (old: number) => number],
          ),
        ),
      ),
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
    'masked_scatter',
    [a, mask, real([3])],
    (x, m, s) => x.maskedScatter(m, s),
    (x, _, s) => ({ shape: x.shape, data: x.data.map((v, i) => s.data[[0, 2, 5].indexOf(i)] ?? v) }),
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
    'scatter_add_',
    [a, rows, real([2, 2])],
    copyThen((x, i, s) => x.scatterAdd_(1, i!, s!)),
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
    'one_hot',
    [pick],
    (i) => i.oneHot({ numClasses: 4 }),
    (p) => nd([2, 4], ([i, j]) => Number(p.data[i!] === j)),
    off,
  ),
  op(
    'bincount',
    [ints([5], [0, 3, 3, 1, 3])],
    (x) => x.bincount(),
    () => vector(1, 1, 0, 3),
    off,
  ),
  op(
    'bucketize',
    [real([4]), { ...real([3]), data: [-1, 0, 1] }],
    (x, e) => x.bucketize(e),
    (x, e) => nd([4], ([i]) => e.data.filter((v) => v < x.data[i!]!).length),
    off,
  ),
  op(
    'searchsorted',
    [{ ...real([3]), data: [-1, 0, 1] }, real([4])],
    (e, x) => rt.searchsorted(e, x),
    (e, x) => nd([4], ([i]) => e.data.filter((v) => v < x.data[i!]!).length),
    off,
  ),
  op(
    'embedding',
    [real([5, 2]), ints([2, 2], [4, 0, 4, 1])],
    (w, i) => rt.embedding(w, i),
    (w, r) => nd([2, 2, 2], ([i, j, k]) => at(w, [at(r, [i!, j!]), k!])),
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
    'linspace',
    [],
    () => rt.linspace(0, 1, 5, f64),
    () => vector(0, 0.25, 0.5, 0.75, 1),
    off,
  ),
  op(
    'eye',
    [],
    () => rt.eye(2, f64),
    () => nd([2, 2], ([i, j]) => Number(i === j)),
    off,
  ),
  op(
    'eye m',
    [],
    () => rt.eye(2, 3, f64),
    () => nd([2, 3], ([i, j]) => Number(i === j)),
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
    'full_like',
    [a],
    (x) => x.fullLike(3),
    () => nd([2, 3], () => 3),
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
    'zeros_like',
    [a],
    (x) => x.zerosLike(),
    () => nd([2, 3], () => 0),
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
  op(
    'empty_like',
    [real([0])],
    (x) => x.emptyLike(),
    () => ({ shape: [0], data: [] }),
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
    const uniform = twice(() => rt.rand([4000], { generator: g }))
    assert.ok(uniform.every((v) => v >= 0 && v < 1) && Math.abs(mean(uniform) - 0.5) < 0.02)
    const normal = twice(() => rt.randn([4000], { generator: g }))
    assert.ok(Math.abs(mean(normal)) < 0.05 && Math.abs(spread(normal) - 1) < 0.05)
    const dice = twice(() => rt.randint(1, 7, [600], { generator: g }))
    assert.deepEqual([...new Set(dice)].sort(), [1, 2, 3, 4, 5, 6])
    const order = rt.randperm(50, { generator: g }).numbers()
    assert.deepEqual(
      order.toSorted((x, y) => x - y),
      Array.from({ length: 50 }, (_, i) => i),
    )
    const inPlace = twice(() => rt.empty([4000]).normal_({ mean: 3, std: 2, generator: g }))
    assert.ok(Math.abs(mean(inPlace) - 3) < 0.1 && Math.abs(spread(inPlace) - 2) < 0.1)
    const flat = twice(() => rt.empty([4000]).uniform_({ from: -1, to: 1, generator: g }))
    assert.ok(flat.every((v) => v >= -1 && v < 1) && Math.abs(mean(flat)) < 0.05)
    const drawn = twice(() => rt.tensor([0.1, 0, 0.9]).multinomial(2000, { replacement: true, generator: g }))
    assert.ok(!drawn.includes(1) && Math.abs(mean(drawn) - 1.8) < 0.05)
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
