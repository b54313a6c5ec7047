import assert from 'node:assert/strict'
import { test } from 'node:test'
import { noGrad, untracked } from './autograd.ts'
import { type Product, products } from './products.ts'
import { tidy } from './scope.ts'
import { type Tensor, tensor } from './tensor.ts'

const matrix = (rows: number, columns: number, phase: number) =>
  tensor(
    Float64Array.from({ length: rows * columns }, (_, i) => Math.sin(phase + i)),
    [rows, columns],
  )

function near(got: Tensor, want: Tensor): void {
  assert.deepEqual(got.shape, want.shape)
  const far = got.to('float64').sub(want).abs().max().item()
  assert.ok(far < 1e-6, `differ by ${far}`)
}

test('products of columns, across, into a place, added, with a bias, scaled and of what came before', () => {
  tidy(() => {
    const [x, w, up, bias] = [matrix(4, 6, 1), matrix(5, 6, 2), matrix(3, 2, 3), matrix(1, 5, 4).view([5])]
    const list: Product[] = [
      { a: { of: x }, b: { of: w, transposed: true }, bias },
      {
        a: { of: 0, columns: [3, 2] },
        b: { of: up, transposed: true },
        out: { of: 0, columns: [0, 3] },
        add: true,
      },
      { a: { of: x, columns: [1, 3], transposed: true }, b: { of: x, columns: [4, 2] }, scale: 2.5 },
      { a: { of: x.to('float32'), columns: [2, 2] }, b: { of: up.to('float32'), transposed: true }, wide: true },
    ]
    const made = products(list)
    assert.equal(made.length, 3, 'one had a place')
    const whole = x.matmul(w.t()).add(bias)
    whole.narrow(1, 0, 3).add_(whole.narrow(1, 3, 2).matmul(up.t()))
    near(made[0]!, whole)
    near(
      made[1]!,
      x
        .narrow(1, 1, 3)
        .t()
        .matmul(x.narrow(1, 4, 2))
        .mul(2.5),
    )
    near(made[2]!, x.narrow(1, 2, 2).matmul(up.t()))
    assert.equal(made[2]!.dtype, 'float32')
    const place = matrix(4, 7, 5)
    const before = place.clone()
    products([{ a: { of: x }, b: { of: w, transposed: true }, out: { of: place, columns: [1, 5] } }])
    near(place.narrow(1, 1, 5), x.matmul(w.t()))
    near(place.narrow(1, 0, 1), before.narrow(1, 0, 1))
    near(place.narrow(1, 6, 1), before.narrow(1, 6, 1))
  })
})

test('narrow factors multiply in their dtype, wide results come in float32', () => {
  tidy(() => {
    const [a, b] = [matrix(3, 4, 1).to('bfloat16'), matrix(4, 2, 2).to('bfloat16')]
    const [plain, wide] = products([
      { a: { of: a }, b: { of: b } },
      { a: { of: a }, b: { of: b }, wide: true },
    ])
    assert.deepEqual([plain!.dtype, wide!.dtype], ['bfloat16', 'float32'])
    assert.deepEqual(plain!.numbers(), a.matmul(b).numbers())
  })
})

test('sums over equal parts of the columns add up to the product, in every layout', () => {
  tidy(() => {
    const [a, b, aT, bT] = [matrix(3, 8, 1), matrix(8, 5, 2), matrix(8, 3, 1), matrix(5, 8, 2)]
    const factors = [
      [{ of: a }, { of: b }, a, b],
      [{ of: aT, transposed: true }, { of: bT, transposed: true }, aT.t(), bT.t()],
      [{ of: matrix(3, 11, 3), columns: [2, 8] as const }, { of: b }, matrix(3, 11, 3).narrow(1, 2, 8), b],
    ] as const
    for (const [x, y, left, right] of factors) {
      const [sums] = products([{ a: x, b: y, parts: 4 }]) as [Tensor]
      assert.deepEqual([sums.shape, sums.dtype], [[4, 3, 5], 'float32'])
      for (let i = 0; i < 4; i++) near(sums.select(0, i), left.narrow(1, 2 * i, 2).matmul(right.narrow(0, 2 * i, 2)))
    }
    assert.throws(() => products([{ a: { of: a }, b: { of: b }, parts: 3 }]), /8 columns in 3 parts/)
  })
})

test('sizes that do not fit, matrices that are not contiguous and results that do not exist are errors', () => {
  tidy(() => {
    const [x, y] = [matrix(3, 4, 1), matrix(3, 4, 2)]
    assert.throws(() => products([{ a: { of: x }, b: { of: y } }]), /\[3, 4\] times \[3, 4\]/)
    assert.throws(() => products([{ a: { of: x.t() }, b: { of: y } }]), /contiguous matrix/)
    assert.throws(() => products([{ a: { of: 0 }, b: { of: y } }]), /no result 0/)
    assert.throws(() => products([{ a: { of: x, columns: [3, 2] }, b: { of: y } }]), /columns 3 \+ 2/)
    const out = { of: matrix(3, 4, 0) }
    assert.throws(() => products([{ a: { of: x }, b: { of: y, transposed: true }, out }]), /a place of \[3, 3\]/)
  })
})

test('untracked: no graph and no notes about views, until it ends, also by an error', () => {
  tidy(() => {
    const x = matrix(2, 2, 1).requiresGrad_()
    const inside = untracked(() => untracked(() => x.mul(2)).add(x))
    assert.equal(inside.requiresGrad, false)
    assert.throws(() => untracked(() => x.view([5])))
    assert.equal(x.mul(2).requiresGrad, true)
    assert.equal(noGrad(() => x.mul(2)).requiresGrad, false)
    near(inside, x.detach().mul(3))
  })
})
