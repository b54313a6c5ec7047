// Runs where the engine sees a CUDA device; the runner reports these files as skipped elsewhere.
import assert from 'node:assert/strict'
import test from 'node:test'
import {
  aten,
  attention,
  backward,
  CudaGraph,
  cat,
  checkpoint,
  cuda,
  type DType,
  emptyCache,
  Generator,
  keep,
  manualSeed,
  memory,
  noGrad,
  ones,
  products,
  randn,
  rmsNorm,
  type Tensor,
  tensor,
  tidy,
  zeros,
} from '../../src/tensor/index.ts'

const device = 'cuda:0'

type Op = (x: Tensor, y: Tensor) => Tensor
const square = [16, 32]
const rows: [string, Op][] = [
  ['add', (x, y) => x.add(y, { alpha: 0.5 })],
  ['mul', (x, y) => x.mul(y)],
  ['div', (x, y) => x.div(y.abs().add(1))],
  ['matmul', (x, y) => x.matmul(y.t())],
  ['linear', (x, y) => x.linear(y)],
  ['softmax', (x) => x.softmax(-1)],
  ['logSoftmax', (x) => x.logSoftmax(-1)],
  ['layerNorm', (x, y) => x.layerNorm([32], { weight: y.select(0, 0), bias: y.select(0, 1) })],
  ['rmsNorm', (x, y) => rmsNorm(x, y.select(0, 0), 1e-6)],
  ['gelu', (x) => x.gelu()],
  ['silu', (x) => x.silu()],
  ['exp', (x) => x.exp()],
  ['rsqrt', (x) => x.abs().add(1).rsqrt()],
  ['sum', (x) => x.sum(0)],
  ['mean', (x) => x.mean(1, { keepdim: true })],
  ['amax', (x) => x.amax({ dim: 1 })],
  ['cumsum', (x) => x.cumsum(1)],
  ['cat', (x, y) => cat([x, y], { dim: 1 })],
  ['gather', (x) => x.gather(1, x.detach().sort({ dim: 1 }).indices)],
  ['tril', (x) => x.tril()],
  ['embedding', (x) => aten('embedding', x, x.detach().select(1, 0).gt(0).to('int64'))],
  [
    'conv2d',
    (x, y) => x.view([1, 2, 16, 16]).conv2d(y.reshape([-1]).slice({ end: 36 }).view([2, 2, 3, 3]), { padding: 1 }),
  ],
  ['bilinear', (x) => x.view([1, 2, 16, 16]).upsampleBilinear2d([24, 8], false)],
  [
    'attention',
    (x, y) => attention(x.view([1, 2, 16, 16]), y.view([1, 2, 16, 16]), x.view([1, 2, 16, 16]), { causal: true }),
  ],
]

/** Result and gradients of both inputs. */
function outcome(run: Op, x: Tensor, y: Tensor, dtype: DType, where: string): number[][] {
  const inputs = [x, y].map((t) => t.to(dtype).to(where).detach().requiresGrad_()) as [Tensor, Tensor]
  const out = run(...inputs)
  backward(out.to('float32').mul(2).sum())
  return [out, ...inputs.map((t) => t.grad())].map((t) => t?.numbers() ?? [])
}

for (const dtype of ['float32', 'bfloat16'] as const)
  test(`${rows.length} ops in ${dtype} agree with the CPU in float32, forward and backward`, () => {
    const limit = dtype === 'float32' ? 2e-4 : 6e-2
    tidy(() => {
      const x = randn(square).to('bfloat16').to('float32') // values both dtypes hold exactly
      const y = randn(square).to('bfloat16').to('float32')
      for (const [name, run] of rows) {
        const expected = tidy(() => outcome(run, x, y, 'float32', 'cpu'))
        const got = tidy(() => outcome(run, x, y, dtype, device))
        for (const [part, want] of expected.entries()) {
          const scale = Math.max(1, ...want.map(Math.abs))
          const worst = Math.max(0, ...want.map((v, i) => Math.abs(v - got[part]![i]!))) / scale
          assert.ok(worst < limit, `${name} part ${part}: off by ${worst}`)
        }
      }
    })
  })

test('products in bfloat16 of every layout agree with float64 of the same numbers', () => {
  const make = (...shape: number[]) => randn(shape, { device }).to('bfloat16')
  const factorsOf = (wide: Tensor): [string, Tensor, Tensor][] => [
    ['both as they lie', make(300, 72), make(72, 88)],
    ['both transposed', make(72, 300).t(), make(88, 72).t()],
    ['columns of a wider matrix', wide.narrow(1, 8, 72), make(72, 16)],
    ['columns from an odd address', wide.narrow(1, 3, 72), make(72, 16)],
    ['rows of a matrix', wide.narrow(0, 7, 9), make(136, 16)],
    ['every other row', wide.slice({ dim: 0, step: 2 }), make(136, 16)],
    ['every other column', wide.slice({ dim: 1, step: 2 }), make(68, 16)],
    ['the same row again and again', make(1, 72).expand([5, 72]), make(72, 16)],
    ['the same number again and again', make(5, 1).expand([5, 72]), make(72, 16)],
    ['one row', make(1, 64), make(64, 24)],
    ['one column', make(24, 64), make(64, 1)],
    ['a product of columns and rows', make(24, 1), make(1, 8)],
    ['odd sizes', make(13, 7), make(7, 5)],
    ['no rows', make(0, 8), make(8, 8)],
    ['nothing to add up', make(3, 0), make(0, 8)],
  ]
  tidy(() => {
    for (const [name, a, b] of factorsOf(make(40, 136))) {
      const [rows, columns] = [a.size(0), b.size(1)]
      const [bias, whole] = [make(columns), make(rows, columns)]
      const wide = (t: Tensor) => t.to('cpu').to('float64')
      const [p, q, r, added] = [a, b, bias, whole].map(wide) as [Tensor, Tensor, Tensor, Tensor]
      const product = p.matmul(q)
      const sums: [string, Tensor, Tensor][] = [
        ['mm', aten('mm', a, b), product],
        ['addmm', aten('addmm', bias, a, b), product.add(r)],
        ['addmm, scaled', aten('addmm', bias, a, b, { beta: 0.5, alpha: 2 }), product.mul(2).add(r.mul(0.5))],
        ['addmm, a matrix', aten('addmm', bias.expand([rows, columns]), a, b), product.add(r)],
        ['addmm, to another', aten('addmm.out', whole, a, b, { alpha: 2, out: make(rows, columns) }), product.mul(2).add(added)], // biome-ignore format: one line
      ]
      // the product and the sum are each rounded to bfloat16 where torch adds a matrix, and summed in float32
      const terms = p.abs().matmul(q.abs()).mul(2).add(r.abs()).add(added.abs())
      const bound = product.abs().mul(2).mul(2 ** -8).add(terms.mul(2 ** -24 * (a.size(1) + 2))).add(1e-30) // biome-ignore format: one line
      for (const [op, got, want] of sums) {
        assert.deepEqual([got.shape, got.dtype], [[rows, columns], 'bfloat16'], `${op}, ${name}`)
        const off = wide(got).sub(want).abs().div(bound.add(want.abs().mul(2 ** -8))) // biome-ignore format: one line
        assert.ok(off.numel === 0 || off.max().item() <= 1, `${op}, ${name}: ${off.numel && off.max().item()}`)
      }
    }
    const [x, w] = [make(5, 2048), make(264, 2048)]
    const [sums] = products([{ a: { of: x }, b: { of: w, transposed: true }, parts: 4 }]) as [Tensor]
    const [left, right] = [x, w].map((t) => t.to('cpu').to('float64')) as [Tensor, Tensor]
    for (let i = 0; i < 4; i++) {
      const [l, r] = [left.narrow(1, 512 * i, 512), right.narrow(1, 512 * i, 512).t()]
      const off = sums.select(0, i).to('cpu').to('float64').sub(l.matmul(r)).abs()
      assert.ok(off.div(l.abs().matmul(r.abs())).max().item() <= 514 * 2 ** -24, `part ${i}`)
    }
    for (let n = 1; n <= 1100; n++) make(n, 8).matmul(make(8, 8)) // more sizes than are kept
  })
})

test('a captured step replayed equals the same steps run eagerly', () => {
  noGrad(() => {
    const w = keep(randn([64, 64], { device }).mul(0.1))
    const start = keep(randn([4, 64], { device }))
    const step = (h: Tensor) => h.matmul(w).tanh().add(h.softmax(-1))
    const eager = tidy(() => {
      let h = start
      for (let i = 0; i < 5; i++) h = step(h)
      return h.numbers()
    })
    const state = keep(start.clone())
    const { graph } = CudaGraph.capture(() => void state.copy_(step(state)))
    state.copy_(start)
    for (let i = 0; i < 5; i++) graph.replay()
    cuda.synchronize()
    assert.deepEqual(state.numbers(), eager)
    graph.dispose()
    for (const t of [w, start, state]) t.dispose()
  })
})

test('numbers reach the device as they were, while it is busy and the host reuses their memory', () => {
  const lengths = [50_000, 500_000] // also through pinned memory
  tidy(() => {
    const busy = randn([8192, 8192], { device })
    for (let i = 0; i < 20; i++) busy.matmul(busy)
    for (const length of lengths) {
      const data = new Float32Array(length)
      const sent = Array.from({ length: 200 }, (_, i) => {
        data.fill(i)
        return tensor(data, { device })
      })
      data.fill(-1)
      tensor(new Float32Array(length).fill(-1)) // where a source lay
      const seen = sent.map((t) => [t.min().item(), t.max().item()])
      assert.deepEqual(
        seen,
        sent.map((_, i) => [i, i]),
      )
    }
    assert.deepEqual(tensor(new Float32Array(0), [0, 3], { device }).shape, [0, 3])
  })
})

test('an error of a captured step is the one that is reported, and the next capture works', () => {
  const x = keep(zeros([4], { device }))
  const failing = () => {
    x.add_(1)
    throw new Error('of the step')
  }
  assert.throws(() => CudaGraph.capture(failing, { device }), /of the step/)
  assert.throws(() => CudaGraph.capture(failing, { device, warmups: 0 }), /of the step/)
  const { graph } = CudaGraph.capture(() => void x.mul_(2).add_(1), { device, warmups: 0 })
  x.fill_(1)
  graph.replay()
  assert.deepEqual(x.numbers(), [3, 3, 3, 3])
  graph.dispose()
  x.dispose()
})

test('a scope returns its device memory, and the cache can be emptied', () => {
  tidy(() => void ones([1], { device }))
  const before = cuda.memory()
  const live = memory().tensors
  for (let i = 0; i < 20; i++) tidy(() => void zeros([64 << 20], { device }).add(1))
  assert.equal(cuda.memory().allocated, before.allocated)
  assert.ok(cuda.memory().peak >= before.allocated + 2 * 4 * (64 << 20))
  assert.equal(memory().tensors, live)
  emptyCache()
  assert.ok(cuda.memory().reserved <= before.reserved + (64 << 20))
})

test('a generator of the device repeats its numbers from a stored state', () => {
  tidy(() => {
    const g = new Generator(5, device)
    const draw = () => zeros([64], { device }).normal_({ generator: g }).numbers()
    const state = g.state()
    const first = draw()
    assert.notDeepEqual(draw(), first)
    g.restore(state)
    assert.deepEqual(draw(), first)
    assert.deepEqual(
      zeros([64], { device })
        .normal_({ generator: new Generator(5, device) })
        .numbers(),
      first,
    )
  })
})

test('a checkpoint on the device draws its dropout again: gradients equal plain ones', () => {
  tidy(() => {
    const w = randn([64, 64], { device }).requiresGrad_()
    const block = (h: Tensor) => h.matmul(w).dropout(0.5, true).tanh()
    const grad = (run: (fn: typeof block, h: Tensor) => Tensor) => {
      manualSeed(9)
      backward(run(block, run(block, w.mul(0.1))).sum())
      const g = w.grad()!.numbers()
      w.setGrad(null)
      return g
    }
    const plain = grad((fn, h) => fn(h))
    const taped = grad((fn, h) => checkpoint(fn, h))
    assert.ok(Math.max(...plain.map((v, i) => Math.abs(v - taped[i]!))) < 1e-4)
    assert.deepEqual(
      grad((fn, h) => fn(h)),
      plain,
    )
  })
})

test('gradients of attention are numbers where every score is far below zero', () => {
  for (const dtype of ['bfloat16', 'float16', 'float32'] as const)
    for (const keys of [1, 64, 192, 320])
      tidy(() => {
        const far = (n: number, first: number) =>
          cat([ones([1, 1, n, 1], { device }).mul(first), randn([1, 1, n, 63], { device }).mul(0.1)], { dim: -1 })
        const [q, k] = [far(8, 1), far(keys, -960)].map((t) => keep(t.to(dtype).requiresGrad_())) as [Tensor, Tensor]
        const v = keep(randn([1, 1, keys, 64], { device }).to(dtype).requiresGrad_())
        backward(attention(q, k, v).to('float32').square().sum())
        for (const [name, t] of Object.entries({ q, k, v }))
          assert.ok(t.grad()!.isfinite().all().item(), `${name} of ${keys} keys in ${dtype}`)
        for (const t of [q, k, v]) t.dispose()
      })
})

test('tensors of two devices in one op are an error that names them', () => {
  tidy(() => {
    assert.throws(() => ones([2], { device }).add(ones([2])), /same device[\s\S]*Float\[2\]@cuda:0/)
    assert.throws(() => ones([2], { device: 'cuda:99' }), { code: 'ERR_TORCH' })
  })
})

test('running out of device memory is ERR_OOM, and the engine works afterwards', () => {
  tidy(() => {
    const { total } = cuda.memory()
    assert.throws(() => zeros([2 * total], { device, dtype: 'uint8' }), { code: 'ERR_OOM' })
    const held: Tensor[] = []
    const chunk = Math.floor(total / 8)
    assert.throws(
      () => {
        for (let i = 0; i < 12; i++) held.push(zeros([chunk], { device, dtype: 'uint8' }))
      },
      { code: 'ERR_OOM' },
    )
    for (const t of held) t.dispose()
    assert.deepEqual(tensor([1, 2], { device }).add(1).numbers(), [2, 3])
  })
})
