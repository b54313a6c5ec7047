import assert from 'node:assert/strict'
import test from 'node:test'
import { native, op, planOf } from '../engine/index.ts'
import {
  arange,
  aten,
  backward,
  cat,
  Generator,
  gradEnabled,
  memory,
  ones,
  randn,
  type Tensor,
  tensor,
  tidy,
  where,
  zeros,
} from './index.ts'

const codeOf = (code: string) => (error: Error & { code?: string }) => error.code === code

test('an overload that writes into given tensors returns these, a method in place its own', () => {
  tidy(() => {
    const [x, y, sum] = [tensor([3, 1, 2]), tensor([1, 1, 1]), zeros([3])]
    assert.deepEqual(aten('add.out', x, y, { out: sum }).numbers(), [4, 2, 3])
    assert.deepEqual([sum.numbers(), x.numbers()], [[4, 2, 3], [3, 1, 2]]) // biome-ignore format: one line
    const [values, indices] = [zeros([3]), zeros([3], { dtype: 'int64' })]
    const sorted = aten('sort.values', x, { values, indices }) as unknown as { values: Tensor; indices: Tensor }
    assert.deepEqual([sorted.values.numbers(), sorted.indices.numbers(), values.numbers()], [[1, 2, 3], [1, 2, 0], [1, 2, 3]]) // biome-ignore format: one line
    assert.equal(x.add_(y), x)
  })
})

test('overloads are chosen by the arguments, typed and untyped alike', () => {
  tidy(() => {
    const x = tensor([1, 2, 3])
    const i = tensor(BigInt64Array.of(0n, 2n))
    const check = (typed: Tensor, untyped: Tensor, expected: number[]) => {
      assert.deepEqual(typed.numbers(), expected)
      assert.deepEqual(untyped.numbers(), expected)
    }
    check(x.add(x), aten('add', x, x), [2, 4, 6])
    check(x.add(2, { alpha: 3 }), aten('add', x, 2, { alpha: 3 }), [7, 8, 9])
    check(x.mul(2), aten('mul', x, 2), [2, 4, 6])
    check(x.div(2, { roundingMode: 'floor' }), aten('div', x, 2, { rounding_mode: 'floor' }), [0, 1, 1])
    check(x.div(tensor([2, 2, 2]), { roundingMode: 'trunc' }), aten('div', x, 2, { roundingMode: 'trunc' }), [0, 1, 1])
    check(x.pow(2), aten('pow', x, 2), [1, 4, 9])
    check(x.pow(x), aten('pow', x, x), [1, 4, 27])
    check(aten('pow.Scalar', 2, x), aten('pow', 2, x), [2, 4, 8])
    const m = x.gt(1)
    check(where(m, x, x.neg()), aten('where', m, x, x.neg()), [-1, 2, 3])
    check(where(m, x, 0), aten('where', m, x, 0), [0, 2, 3])
    check(where(m, 9, x), aten('where', m, 9, x), [1, 9, 9])
    check(where(m, 1, 0).to('float32'), aten('where', m, 1, 0).to('float32'), [0, 1, 1])
    check(zeros([3]).scatter_(0, i, x), aten('scatter_', zeros([3]), 0, i, x), [1, 0, 2])
    check(zeros([3]).scatter_(0, i, 5), aten('scatter_', zeros([3]), 0, i, 5), [5, 0, 5])
    check(ones([3]), aten('scatter_', ones([3]), 0, i, ones([2]), { reduce: 'multiply' }), [1, 1, 1])
    check(x.to('int64'), aten('to', x, 'int64'), [1, 2, 3])
    check(x.to('cpu'), aten('to.device', x, 'cpu', 'float64'), [1, 2, 3])
    check(x.to('float64'), aten('to.other', x, zeros([1], { dtype: 'float64' })), [1, 2, 3])
    check(x.sort({ descending: true }).values, x.sort({ stable: true, descending: true }).values, [3, 2, 1])
    check(x.split(2)[1]!, x.split([2, 1])[1]!, [3])
    check(x.std(0, { correction: 1 }), aten('std.correction', x, [0], { correction: 1 }), [1])
    check(x.clamp({ min: 2 }), aten('clamp', x, tensor([2]), null), [2, 2, 3])
    check(aten('full', [2], 7), arange(7, 21, { step: 7 }).fill_(7), [7, 7])
    check(arange(3), aten('arange', 3), [0, 1, 2])
    check(x.sum(), aten('sum', x), [6])
    check(x.sum(0), aten('sum', x, [0]), [6])
    assert.deepEqual([...x.sum(null, { keepdim: true }).shape], [1])
  })
})

test('conv2d takes its padding as numbers or as a word', () => {
  tidy(() => {
    const x = randn([1, 1, 4, 4])
    const w = randn([1, 1, 3, 3])
    const same = aten('conv2d.padding', x, w, { padding: 'same' })
    assert.deepEqual(same.numbers(), x.conv2d(w, { padding: 1 }).numbers())
    assert.deepEqual(same.numbers(), x.conv2d(w, { padding: [1, 1] }).numbers())
  })
})

/** Kind letter of native/boxed.cc -> a call that uses it. */
const kinds: Record<string, () => unknown> = {
  T: () => ones([2]).neg(),
  I: () => ones([2]).unsqueeze(0),
  F: () => ones([2]).dropout(0, true),
  B: () => ones([1, 2, 2, 2]).upsampleBilinear2d([4, 4], true),
  S: () => ones([2]).add(true),
  R: () => ones([2]).gelu({ approximate: 'tanh' }),
  D: () => aten('to.device', ones([2]), 'cpu', 'float64'),
  L: () => ones([2]).view([2, 1]),
  O: () =>
    aten('native_layer_norm_backward', ones([2, 2]), ones([2, 2]), [2], zeros([2, 1]), ones([2, 1]), null, null, [
      true,
      false,
      false,
    ]),
  X: () => cat([ones([2])]),
  x: () => ones([2, 2]).index([null, zeros([1], { dtype: 'int64' })]),
  t: () => ones([2, 2]).linear(ones([2, 2]), { bias: null }),
  i: () => ones([2]).sum({ dtype: 'float64' }),
  f: () => ones([2]).nanToNum({ nan: 0.5 }),
  b: () => ones([2]).sort({ stable: true }),
  s: () => ones([2]).clamp({ min: 2, max: null }),
  r: () => ones([2]).div(2, { roundingMode: null }),
  d: () => zeros([2], { device: 'cpu' }),
  g: () => zeros([2]).normal_({ generator: new Generator(1) }),
  l: () => ones([2]).mean(null),
  p: () => aten('upsample_nearest2d.vec', ones([1, 1, 2, 2]), null, [2, 2]),
  P: () => aten('_test_optional_floatlist', ones([2]), [1.5, 2.5]),
  Q: () => aten('_foreach_add.ScalarList', [ones([2])], [1.5]),
}

test('every kind of argument reaches libtorch', () => {
  tidy(() => {
    for (const [kind, call] of Object.entries(kinds)) assert.doesNotThrow(call, `kind ${kind}`)
    assert.deepEqual(ones([2]).add(true).numbers(), [2, 2])
    assert.deepEqual(
      (aten('_foreach_add.ScalarList', [ones([1]), ones([1])], [1.5, 3]) as unknown as Tensor[]).map((t) => t.item()),
      [2.5, 4],
    )
    assert.equal(planOf('normal_')!.args.find((a) => a.name === 'generator')!.kind, 'g')
  })
})

test('wrong shape, dtype, index, device: an error with op, schema, arguments; expected and got', () => {
  tidy(() => {
    const a = ones([4])
    assert.throws(
      () => a.add(ones([3])),
      (error: Error & { op?: string; schema?: string; args?: string; code?: string }) => {
        assert.equal(error.code, 'ERR_TORCH')
        assert.equal(error.op, 'aten::add.Tensor')
        assert.match(error.schema!, /^aten::add\.Tensor\(Tensor self, Tensor other, \*, Scalar alpha=1\) -> /)
        assert.equal(error.args, 'self=Float[4], other=Float[3]')
        assert.match(
          error.message,
          /size of tensor a \(4\) must match the size of tensor b \(3\)[\s\S]*\n {2}in aten::add[\s\S]*\n {2}with self=/,
        )
        return true
      },
    )
    assert.throws(() => ones([2, 3]).matmul(ones([2, 3])), /2x3 and 2x3[\s\S]*self=Float\[2, 3\]/)
    assert.throws(() => ones([2, 2]).matmul(ones([2, 2], { dtype: 'float64' })), /same dtype|scalar type[\s\S]*Double/)
    assert.throws(() => a.indexSelect(0, tensor(BigInt64Array.of(9n))), /index out of range/)
    assert.throws(() => a.select(0, 4), /index 4 out of range|out of range/)
    assert.throws(() => a.softmax(2), /Dimension out of range \(expected to be in range of \[-1, 0\], but got 2\)/)
    assert.throws(() => ones([5, 2]).index([tensor(BigInt64Array.of(5n))]), /index 5 is out of bounds/)
    assert.throws(() => a.to('cuda:63'), { code: 'ERR_TORCH' })
    assert.throws(() => zeros([1], { device: 'gpu' }), /expected cpu, cuda or cuda:N, got "gpu"/)
    assert.throws(() => zeros([2], { device: 'meta' }).item(), { code: 'ERR_TORCH' })
  })
})

test('an argument of the wrong kind is refused before libtorch sees it, by name', () => {
  tidy(() => {
    const a = ones([4])
    const bad = (call: () => unknown, message: RegExp) =>
      assert.throws(call, (e: Error & { code?: string }) => message.test(e.message) && e.code === 'ERR_ARGUMENT')
    bad(() => a.unsqueeze(1.5), /aten::unsqueeze: dim: expected an integer, got 1.5/)
    bad(() => a.unsqueeze(Number.NaN), /dim: expected an integer, got NaN/)
    bad(() => a.sum({ dtype: Number.NaN as never }), /dtype: expected an integer, got NaN/)
    bad(() => a.sum({ dtype: 'float33' as never }), /dtype: expected uint8 \| int8/)
    bad(() => a.view([2, 2.5]), /size: expected an integer, got 2.5/)
    bad(() => a.view('x' as never), /size: expected an array, got "x"/)
    bad(() => a.linear(null as never), /weight: expected a Tensor, got null/)
    bad(() => a.linear({} as never), /weight: expected a Tensor, got object/)
    bad(() => cat([a, 3 as never]), /tensors: expected a Tensor, got 3/)
    bad(() => a.add('2' as never), /other: expected a number, got "2"/)
    bad(() => a.softmax(undefined as never), /dim: expected an integer, got undefined/)
    bad(() => a.cumsum(0, { dtypes: 'float32' } as never), /dtypes: expected one of dtype, got "an unknown option"/)
    bad(() => a.cumsum(0, 1 as never), /options: expected an object with dtype, got 1/)
    bad(() => op('relu')(a, 1), /options: expected no further argument, got 1/)
    bad(() => a.dropout(0.5, 1 as never), /train: expected true or false, got 1/)
    bad(() => a.unsqueeze(2 ** 60), /expected an integer, got 1152921504606847000/)
    bad(() => a.view(new Array(600_000).fill(1)), /at most 500000 elements/)
    bad(
      () =>
        ones([1, 1, 2, 2]).conv2d(
          ones([1, 1, 1, 1]),
          Object.fromEntries(['stride', 'padding', 'dilation'].map((k) => [k, new Array(450_000).fill(1)])),
        ),
      /fit the call buffer/,
    )
    bad(() => zeros([2]).normal_({ generator: 5 as never }), /generator: expected a Generator, got 5/)
  })
})

test('an unknown op, overload or fit of arguments names what there is', () => {
  tidy(() => {
    assert.throws(() => aten('no_such_op', ones([1])), codeOf('ERR_NO_OP'))
    assert.throws(
      () => aten('add.Nothing', ones([1])),
      /add.Nothing: expected an op of this libtorch, got none in .*overloads .*Tensor, /,
    )
    assert.throws(
      () => aten('add', ones([1]), 'x'),
      /expected arguments of one of its overloads, got Tensor, string.*aten::add.Tensor\(/,
    )
    assert.throws(() => op('nope'), codeOf('ERR_NO_OP'))
  })
})

test('a huge allocation is ERR_OOM with the counters, and the engine continues to work', () => {
  tidy(() => {
    const before = memory()
    assert.throws(
      () => zeros([2 ** 45]),
      (e: Error & { code?: string }) =>
        e.code === 'ERR_OOM' && /asked for 140737488355328 bytes, live \d+, peak \d+/.test(e.message),
    )
    assert.throws(() => zeros([2 ** 40, 2 ** 40]), /overflow|too large|invalid|Storage size/i)
    assert.equal(memory().bytes, before.bytes)
    assert.deepEqual(ones([2]).add(1).numbers(), [2, 2])
  })
})

test('after any of these errors ids, grad mode and results are as before', () => {
  tidy(() => {
    const x = ones([3]).requiresGrad_()
    const before = memory()
    for (let i = 0; i < 200; i++) {
      assert.throws(() => x.add(ones([4]).dispose() as never))
      assert.throws(() => x.view([7]))
    }
    assert.equal(memory().tensors, before.tensors)
    assert.equal(gradEnabled(), true)
    backward(x.mul(3).sum())
    assert.deepEqual(x.grad()!.numbers(), [3, 3, 3])
    assert.ok(native().info().version.length > 0)
  })
})
