// Each kernel alone against its reference in ATen: equal within bfloat16's rounding, and the same bits on repetition.
import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import {
  coversColumns,
  DecodeKernels,
  type DecodeShape,
  FeedForwardTiles,
  kernelTarget,
  type LowRank,
  noKernels,
  ownProducts,
  type QuantizedMatrix,
  quantizedProduct,
  quantizedProductOn,
  useKernels,
  widen,
  widenOn,
} from '../../src/kernels/index.ts'
import { PackedCache } from '../../src/llm/generate/fused/packed-cache.ts'
import { dequantize } from '../../src/nn/index.ts'
import {
  aten,
  cat,
  type DType,
  empty,
  memory,
  noGrad,
  randn,
  type Tensor,
  tensor,
  tidy,
  where,
  zeros,
} from '../../src/tensor/index.ts'
import * as reference from '../support/kernel-reference.ts'

const device = 'cuda:0'
const eps = 1e-6
const shapes: Record<string, DecodeShape> = {
  '3B, 8 queries a key': { hidden: 2048, inner: 11008, heads: 16, groups: 2, dim: 128 },
  '0.5B, 7 queries a key, heads of 64': { hidden: 896, inner: 4864, heads: 14, groups: 2, dim: 64 },
  '1.5B, 6 queries a key': { hidden: 1536, inner: 8960, heads: 12, groups: 2, dim: 128 },
  '4B, 4 queries a key': { hidden: 2560, inner: 9728, heads: 32, groups: 8, dim: 128 },
}
const big = shapes['3B, 8 queries a key']!
const missing = noKernels(device)
// the values of NF4 are shared by all matrices and stay
if (!missing)
  for (const dtype of ['float32', 'bfloat16'] as const)
    tidy(() => {
      const bytes = zeros([1, 32], { device, dtype: 'uint8' })
      useKernels('off')
      dequantize({ numbers: bytes, scale: zeros([1, 1], { device, dtype }) }, 64)
      useKernels('auto')
    })
const live: number[] = []
beforeEach(() => void live.push(memory().tensors))
afterEach(() => assert.equal(memory().tensors, live.pop(), 'no tensor is left'))

const random = (shape: number[], size = 1) => tidy(() => randn(shape, { device }).mul(size).to('bfloat16'))
const weight = (...shape: number[]) => random(shape, 0.02)
const scale = (n: number) => tidy(() => randn([n], { device }).mul(0.1).add(1).to('bfloat16'))
const room = (shape: number[], dtype: DType = 'bfloat16') => empty(shape, { device, dtype }).fill_(Number.NaN)
const ints = (values: readonly number[]) => tensor(Int32Array.from(values), { device })

/** ||a - b|| / ||b|| */
function apart(a: Tensor, b: Tensor): number {
  return tidy(() => {
    const [x, y] = [a.to('float32'), b.to('float32')]
    return x.sub(y).norm().div(y.norm()).item()
  })
}
function near(name: string, a: Tensor, b: Tensor, limit = 6e-3): void {
  const error = apart(a, b)
  console.log(`${name}: ${error.toExponential(1)}`)
  assert.ok(error < limit, `${name} is ${error} from its reference`)
}
/** Runs `launch` from the same start three times: the same bits in `out`. */
function sameBits(name: string, out: Tensor, restore: () => void, launch: () => void): void {
  const bits = () => {
    restore()
    launch()
    return out.to('float32').numbers()
  }
  const first = bits()
  for (let i = 0; i < 2; i++) assert.deepEqual(bits(), first, `${name}: repetition ${i} differs`)
}
const check = (name: string, fn: () => void) =>
  test(name, () => {
    assert.equal(missing, null, 'kernels run here')
    noGrad(() => tidy(fn))
  })

for (const [name, shape] of Object.entries(shapes)) {
  check(`add_norm and swiglu of ${name}`, () => {
    const rows = 5
    const kernels = new DecodeKernels(shape, { rows, share: 1 }, device)
    const { hidden, inner } = shape
    const [start, y, w] = [random([rows, hidden]), random([rows, hidden]), scale(hidden)]
    const [h, out, states] = [start.clone(), room([rows, hidden]), room([3, rows, hidden])]
    const launch = () => kernels.addNorm(h, y, w, eps, out, { states, raw: false, clock: ints([5]) })
    launch()
    near('sum', h, start.to('float32').add(y.to('float32')))
    near('normed', out, reference.normed(h, w, eps))
    near('kept', states.select(0, 2), out, 1e-9)
    sameBits('add_norm', out, () => void h.copy_(start), launch)
    kernels.addNorm(h, null, w, eps, out, { states, raw: true, clock: ints([0]) })
    near('raw', states.select(0, 0), h, 1e-9)
    const parts = random([3, rows, hidden]).to('float32')
    h.copy_(start)
    kernels.addNorm(h, parts, w, eps, out)
    near('sum of parts', h, start.to('float32').add(parts.sum(0)))
    near('normed sum of parts', out, reference.normed(h, w, eps))
    const both = random([rows, 2 * inner])
    const gated = room([rows, inner])
    kernels.swiglu(both, gated)
    near('swiglu', gated, reference.swiglu(both))
  })
}

check('keys and values of prompts are placed as ops place them', () => {
  const [layers, columns, across] = [3, 19, 24]
  const { groups, dim } = big
  const rows = random([layers, 40, 2 * groups * dim])
  const rowsOf = [columns, 7, 1].map((n, p) => Array.from({ length: n }, (_, i) => (5 * i + 11 * p) % 40))
  const cache = new PackedCache(rows, rowsOf, { keys: groups, dim })
  const [want, got] = [0, 1].map(() => zeros([layers, 2, 3, groups, across, dim], { device, dtype: 'bfloat16' }))
  cache.copyInto(want!)
  cache.copyInto(got!, new DecodeKernels(big, { rows: 4, share: 1 }, device))
  assert.ok(want!.abs().sum().item() > 0)
  assert.deepEqual(got!.numbers(), want!.numbers())
  cache.dispose()
})

for (const [name, shape] of Object.entries(shapes).filter(([, shape]) => ownProducts(shape, 16)))
  for (const rows of [1, 4, 8, 13, 16]) {
    check(`products of ${name}, ${rows} rows`, () => {
      const kernels = new DecodeKernels(shape, { rows, share: 1 }, device)
      const { hidden, inner, heads, groups, dim } = shape
      const width = (heads + 2 * groups) * dim
      const vocabulary = 1003
      const [start, w] = [random([rows, hidden]), scale(hidden)]
      const h = start.clone()
      const normed = reference.normed(start, w, eps).to('bfloat16')
      const [wq, bias, y] = [weight(width, hidden), random([width], 0.1), room([rows, width])]
      kernels.qkv(wq, h, w, eps, bias, y)
      near('qkv', y, reference.linear(normed, wq, bias))
      sameBits(
        'qkv',
        y,
        () => undefined,
        () => kernels.qkv(wq, h, w, eps, bias, y),
      )
      kernels.qkv(wq, h, w, eps, null, y)
      near('qkv without bias', y, reference.linear(normed, wq))
      const [wo, x] = [weight(hidden, heads * dim), random([rows, heads * dim])]
      kernels.attentionOut(wo, x, h)
      near('attention_out', h, start.to('float32').add(reference.linear(x, wo)))
      sameBits(
        'attention_out',
        h,
        () => void h.copy_(start),
        () => kernels.attentionOut(wo, x, h),
      )
      const [wg, act] = [weight(2 * inner, hidden), room([rows, inner])]
      h.copy_(start)
      kernels.gateUp(wg, h, w, eps, act)
      near('gate_up', act, reference.swiglu(reference.linear(normed, wg)), 8e-3)
      sameBits(
        'gate_up',
        act,
        () => undefined,
        () => kernels.gateUp(wg, h, w, eps, act),
      )
      const [wd, inside] = [weight(hidden, inner), random([rows, inner])]
      kernels.down(wd, inside, h)
      near('down', h, start.to('float32').add(reference.linear(inside, wd)))
      sameBits(
        'down',
        h,
        () => void h.copy_(start),
        () => kernels.down(wd, inside, h),
      )
      const [wh, scores] = [weight(vocabulary, hidden), room([rows, 1008])]
      kernels.head(wh, start, scores)
      near('head', scores.slice({ dim: 1, end: vocabulary }), reference.linear(start, wh))
    })
  }

const uneven: DecodeShape = { hidden: 456, inner: 1000, heads: 7, groups: 1, dim: 64 } // no multiples of a tile
for (const [name, shape] of Object.entries({ ...shapes, 'widths that fill no tile': uneven }))
  check(`feed-forward in tiles of ${name}, 17 to 64 rows`, () => {
    const { hidden, inner } = shape
    for (const rows of [16, 65]) assert.equal(FeedForwardTiles.of(shape, rows, device), null, `${rows} rows`)
    const [wg, wd] = [weight(2 * inner, hidden), weight(hidden, inner)]
    for (const rows of [17, 33, 48, 61, 64]) {
      const tiles = FeedForwardTiles.of(shape, rows, device)
      assert.equal(tiles !== null, kernelTarget().tiles)
      if (!tiles) return
      tidy(() => {
        const [x, wide, sums] = [random([rows, hidden]), room([rows + 1, inner]), tiles.sums(device).fill_(Number.NaN)]
        const y = wide.narrow(0, 0, rows)
        const nothing = () => undefined
        const gateUp = () => tiles.gateUp(wg, x, y)
        gateUp()
        near(`gate and up, ${rows} rows`, y, reference.swiglu(reference.linear(x, wg).to('bfloat16')), 8e-3)
        assert.equal(
          tidy(() => wide.select(0, rows).isnan().to('float32').sum().item()),
          inner,
          'the next row is unchanged',
        )
        sameBits('gate and up', y, nothing, gateUp)
        const down = () => tiles.down(wd, y, sums)
        down()
        near(`down, ${rows} rows`, sums.sum(0), reference.linear(y, wd), 1e-4)
        sameBits('down', sums, nothing, down)
      })
    }
  })

check('products of a narrow feed-forward and a small vocabulary read nothing after their weights', () => {
  const shape = { hidden: 512, inner: 512, heads: 4, groups: 2, dim: 128 } // fewer tiles of features than a GPU has blocks
  const [rows, vocabulary, segment] = [4, 1024, 2 ** 26]
  if (!ownProducts(shape, rows)) return assert.ok(!kernelTarget().clusters)
  const kernels = new DecodeKernels(shape, { rows, share: 1 }, device)
  const { hidden, inner } = shape
  const [h, w] = [random([rows, hidden]), scale(hidden)]
  for (let i = 0; i < 4; i++) {
    const memory = random([segment], 0.02) // separate memory: nothing follows its end
    const last = (features: number) =>
      memory.narrow(0, segment - features * hidden, features * hidden).view([features, hidden])
    const [act, scores] = [room([rows, inner]), room([rows, vocabulary])]
    kernels.gateUp(last(2 * inner), h, w, eps, act)
    near(
      'gate_up',
      act,
      reference.swiglu(reference.linear(reference.normed(h, w, eps).to('bfloat16'), last(2 * inner))),
      8e-3,
    )
    kernels.head(last(vocabulary), h, scores)
    near('head', scores, reference.linear(h, last(vocabulary)))
  }
})

const allBits = [8, 4] as const
/** Every number is among them, and no two rows, or blocks of 64 columns, have the same scale. */
function quantizedMatrix(bits: 8 | 4, features: number, columns: number, bias: boolean): QuantizedMatrix {
  const [width, scales, size] = bits === 8 ? [columns, 1, 4e-4] : [columns / 2, columns / 64, 0.05]
  const numbers = tidy(() => {
    const drawn = randn([features, width], { device })
    if (bits === 8) return drawn.mul(50).round().clamp_({ min: -127, max: 127 }).to('int8')
    return aten('remainder', drawn.mul(1e4).round(), 256).to('uint8')
  })
  const scale = tidy(() => randn([features, scales], { device }).mul(0.3).exp().mul(size).to('bfloat16'))
  return { numbers, scale, bias: bias ? random([features], 0.1) : null }
}
function lowRank(rows: number, parts: readonly number[], rank: number): LowRank {
  const features = parts.reduce((a, b) => a + b, 0)
  return { inputs: random([rows, parts.length * rank], 0.5), factors: weight(features, rank), parts }
}

/** Columns, the features of each part, the rank beside them: sizes of 3B to 14B, then what fills no tile, no chunk and no cluster. */
const sizes: readonly (readonly [number, readonly number[], number])[] = [
  [2048, [2048, 256, 256], 128],
  [3584, [18_944, 18_944], 128],
  [5120, [5120, 1024, 1024], 16],
  [11_008, [2048], 64],
  [18_944, [3584], 256],
  [16, [5], 16],
  [80, [16, 32, 7], 48],
  [1104, [1003], 144],
  [6000, [48, 50], 16],
  [64, [5], 16],
  [192, [16, 32, 7], 48],
  [6080, [48, 50], 16],
]
for (const [columns, parts, rank, bits] of sizes.flatMap((size) => allBits.map((n) => [...size, n] as const)))
  check(`a matrix in ${bits} bit, ${columns} columns and ${parts.join(' + ')} features, at 1 to 64 rows`, () => {
    const covered = (kernelTarget().clusters || columns <= 4096) && (bits === 8 || columns % 64 === 0)
    assert.equal(coversColumns(columns, bits), covered, 'covered')
    if (!covered) return
    const features = parts.reduce((a, b) => a + b, 0)
    for (const rows of [1, 4, 8, 13, 16, 17, 32, 33, 47, 64])
      tidy(() => {
        const matrix = quantizedMatrix(bits, features, columns, rows % 2 === 0)
        const [x, y, low] = [random([rows, columns]), room([rows, features]), lowRank(rows, parts, rank)]
        const launch = () => quantizedProduct(x, matrix, y, low)
        launch()
        near(`${rows} rows, rank ${rank}`, y, reference.quantizedProduct(x, matrix, low))
        sameBits('quantizedProduct', y, () => void y.fill_(0), launch)
      })
  })

for (const bits of allBits) {
  check(`a product in ${bits} bit reads nothing after its numbers, and writes nothing after its result`, () => {
    const segment = 2 ** 27
    for (const [columns, features] of [
      [3584, 1000],
      [bits === 8 ? 1104 : 1088, 16],
      [18_944, 35],
    ].filter(([columns]) => coversColumns(columns!, bits)) as [number, number][]) {
      const own = quantizedMatrix(bits, features, columns, true)
      const bytes = own.numbers.numel
      const memory = empty([segment], { device, dtype: own.numbers.dtype }).fill_(3) // separate memory: nothing follows its end
      const matrix = { ...own, numbers: memory.narrow(0, segment - bytes, bytes).view([features, -1]) }
      for (const rows of [3, 16, 31, 53]) {
        const [x, wide] = [random([rows, columns]), room([rows + 1, features])]
        quantizedProduct(x, matrix, wide.narrow(0, 0, rows))
        near(`${rows} rows, ${columns} columns`, wide.narrow(0, 0, rows), reference.quantizedProduct(x, matrix))
        const kept = tidy(() => wide.select(0, rows).isnan().to('float32').sum().item())
        assert.equal(kept, features, 'the next row is unchanged')
      }
    }
  })

  check(`a wide matrix has the bits of values times scale, ${bits} bit`, () => {
    for (const [features, columns] of [
      [1, 64],
      [37, 1088],
      [5000, 11_008],
    ] as const)
      tidy(() => {
        const matrix = quantizedMatrix(bits, features, columns, false)
        const wide = widenOn(matrix)!
        useKernels('off')
        assert.equal(widenOn(matrix), null)
        assert.ok(wide.equal(dequantize(matrix, columns)), `${features} x ${columns}`)
        useKernels('auto')
      })
  })

  check(`a wide matrix takes adapters before it is rounded, ${bits} bit`, () => {
    for (const [columns, parts, rank] of sizes.filter(([n]) => n < 6100 && (bits === 8 || n % 64 === 0)))
      tidy(() => {
        const { inputs, ...rest } = lowRank(columns, parts, rank)
        const low = { ...rest, inputs: inputs.t().contiguous() }
        const matrix = quantizedMatrix(bits, low.factors.size(0), columns, false)
        let from = 0
        const deltas = parts.map((n, i) => {
          from += n
          return reference.linear(low.factors.narrow(0, from - n, n), inputs.narrow(1, i * rank, rank))
        })
        const plain = widen(matrix)
        const exact = dequantize({ ...matrix, scale: matrix.scale.to('float32') }, columns)
        const expected = exact.add(cat(deltas).to('float32'))
        assert.ok(apart(plain, expected) > 0.05, 'adapters matter')
        const wide = widen(matrix, low)
        near(`${columns} columns, rank ${rank}`, wide, expected)
        for (let i = 0; i < 2; i++) assert.ok(widen(matrix, low).equal(wide), `repetition ${i} differs`)
        const [features] = wide.shape as [number]
        const room = zeros([features + 1, columns], { device, dtype: 'bfloat16' })
        widen(matrix, low, room.narrow(0, 0, features))
        assert.ok(room.narrow(0, 0, features).equal(wide), 'in a place')
        assert.equal(room.select(0, features).abs().sum().item(), 0, 'the next row is unchanged')
        const one = { factors: low.factors.narrow(1, 0, 8).contiguous(), inputs: low.inputs.narrow(0, 0, 8) }
        assert.equal(widenOn(matrix, one), null, 'a rank of 8')
        assert.equal(widenOn(matrix, null, room.narrow(1, 0, columns - 8)), null, 'a place of other columns')
      })
  })

  check(`few rows of layers in ${bits} bit take the kernel; many rows, float32 and \`kernels: off\` do not`, () => {
    const matrix = quantizedMatrix(bits, 48, 64, true)
    const product = quantizedProductOn(device)!
    const x = random([4, 1, 64])
    const y = product(x, matrix)!
    assert.deepEqual(y.shape, [4, 1, 48])
    near('rows of a batch', y.view([4, 48]), reference.quantizedProduct(x.view([4, 64]), matrix))
    const across = random([64, 8]).t()
    near('an input read across', product(across, matrix)!, reference.quantizedProduct(across, matrix))
    assert.equal(product(random([65, 64]), matrix), null)
    assert.equal(product(x.to('float32'), matrix), null)
    useKernels('off')
    assert.equal(quantizedProductOn(device), null)
    useKernels('auto')
  })
}

/** Caches and positions of rows after prompts of different lengths, `time` own tokens so far. */
function attentionCase(shape: DecodeShape, rows: number, share: number, time: number, normed: boolean) {
  const { heads, groups, dim } = shape
  const units = rows / share
  const prompts = Math.ceil(units / 2)
  const lengths = Array.from({ length: prompts }, (_, p) => 1100 - 11 * p)
  const capacity = 1216
  const angles = randn([capacity, dim / 2], { device })
  const turn = (t: Tensor) => t.to('bfloat16').to('float32').unsqueeze(-1)
  return {
    qkv: random([rows, (heads + 2 * groups) * dim]),
    out: room([rows, heads * dim]),
    promptKeys: random([prompts, groups, 1104, dim]),
    promptValues: random([prompts, groups, 1104, dim]),
    ownKeys: random([rows, groups, 80, dim]),
    ownValues: random([rows, groups, 80, dim]),
    promptOf: ints(Array.from({ length: units }, (_, u) => u >> 1)),
    promptLength: ints(lengths),
    clock: ints([time]),
    position: ints(Array.from({ length: rows }, (_, r) => lengths[(r / share) >> 1]!)),
    turns: turn(angles.cos())
      .mul(tensor([1, 0], { device }))
      .add(turn(angles.sin()).mul(tensor([0, 1], { device }))),
    queryNorm: normed ? scale(dim) : null,
    keyNorm: normed ? scale(dim) : null,
    eps,
  }
}

/** Rows, and how many of them share a prompt. */
const manyRows = [
  [4, 1],
  [4, 4],
  [6, 2],
  [16, 1],
  [16, 4],
  [64, 1],
  [64, 2],
  [64, 4],
] as const
const fewRows = [
  [6, 2],
  [64, 4],
] as const

/** Units that are closed are left as they are, and the others have the bits they had when all were open, as a launch has just left them. */
function closedUnits(
  label: string,
  inputs: ReturnType<typeof attentionCase>,
  partial: readonly Tensor[],
  launch: () => void,
): void {
  const { out, promptOf } = inputs
  const [T, prompts] = [inputs.clock.item(), promptOf.numbers()]
  const written = [out, inputs.ownKeys.select(2, T), inputs.ownValues.select(2, T)]
  const whole = written.map((t) => t.clone())
  for (const [which, closed] of [
    ['one in three', (u: number) => u % 3 === 1],
    ['all but the last', (u: number) => u < prompts.length - 1],
    ['the first', (u: number) => u === 0],
  ] as const) {
    for (const t of partial) t.fill_(Number.NaN)
    for (const t of written) t.copy_(random([...t.shape]))
    const before = written.map((t) => t.clone())
    promptOf.copy_(ints(prompts.map((prompt, u) => (closed(u) ? -1 : prompt))))
    const { out: expected } = reference.attend(inputs)
    launch()
    near(`${label}, ${which} closed: attention`, out, expected, 8e-3)
    const open = promptOf.ge(0).repeatInterleave(out.size(0) / prompts.length, { dim: 0 })
    const same = written.map((t, i) => where(open.view(i === 0 ? [-1, 1] : [-1, 1, 1]), whole[i]!, before[i]!).equal(t))
    assert.deepEqual(same, [true, true, true], `${label}, ${which} closed: result, key and value as they were`)
  }
  promptOf.copy_(ints(prompts))
}

for (const [name, shape] of Object.entries(shapes))
  for (const [rows, share] of shape === big ? manyRows : fewRows)
    check(`attention of ${name}, ${rows} rows, ${share} a prompt`, () => {
      const kernels = new DecodeKernels(shape, { rows, share }, device)
      const memory = kernels.pieceMemory(device)
      for (const time of [0, 15, 64]) {
        const inputs = attentionCase(shape, rows, share, time, time === 15)
        const { out, key, value } = reference.attend(inputs)
        const launch = () => kernels.attend(inputs, memory)
        launch()
        const label = `time ${time}${kernels.joinsWhole ? ', whole' : ''}`
        near(`${label}: attention`, inputs.out, out, 8e-3)
        near(`${label}: key`, inputs.ownKeys.select(2, time), key, time === 15 ? 6e-3 : 1e-9)
        near(`${label}: value`, inputs.ownValues.select(2, time), value, 1e-9)
        sameBits('attention', inputs.out, () => void inputs.out.fill_(0), launch)
        closedUnits(label, inputs, [memory.values, memory.ml], launch)
        assert.ok(memory.arrived.eq(0).all().item(), 'nobody is waited for')
      }
    })

/** After a draw of all rows: rows of closed units keep what they have, the others draw the same again, and the clock moves. */
function closedDraws(kind: string, kernels: DecodeKernels, state: Parameters<DecodeKernels['draw']>[0]): void {
  const { clock, arrived } = state
  const T = state.ids.size(0)
  const at = clock.item() - 1
  const written = [
    state.ids.select(0, at % T),
    state.logps.select(0, at % T),
    state.drawnLogps.select(0, at % T),
    state.h,
  ]
  const whole = written.map((t) => t.clone())
  for (const t of written) t.fill_(5)
  clock.fill_(at)
  const units = Array.from({ length: kernels.rows / kernels.share }, (_, u) => (u % 4 === 1 ? 0 : -1))
  const promptOf = ints(units)
  kernels.draw({ ...state, promptOf })
  const open = promptOf.ge(0).repeatInterleave(kernels.share, { dim: 0 })
  const same = written.map((t, i) => where(i < 3 ? open : open.unsqueeze(1), whole[i]!, t.clone().fill_(5)).equal(t))
  assert.deepEqual(same, [true, true, true, true], `${kind}, some closed: ids, log-probs and next inputs`)
  assert.deepEqual([clock.item(), arrived.item()], [at + 1, 0])
}

for (const [rows, share, temperature] of [
  [4, 1, 1],
  [64, 4, 0.7],
] as const)
  check(`draws of ${rows} rows at temperature ${temperature}`, () => {
    const [vocabulary, stride, hidden, T] = [151_679, 151_680, big.hidden, 4]
    const kernels = new DecodeKernels(big, { rows, share }, device)
    const promptOf = ints(Array.from({ length: rows / share }, () => 0))
    const scores = random([rows, stride], 3)
    const embedding = random([vocabulary, hidden])
    const numbers = tidy(() => randn([T, rows], { device }).sigmoid().to('float64'))
    const never = ints([3, 77_000, 151_678])
    for (const [kind, given, left] of [
      ['sampled', numbers, null],
      ['greedy', null, null],
      ['some never', numbers, never],
      ['greedy, some never', null, never],
    ] as const) {
      const state = {
        scores,
        vocabulary,
        temperature,
        numbers: given,
        never: left,
        promptOf,
        clock: ints([T + 2]),
        ids: zeros([T, rows], { device, dtype: 'int32' }),
        logps: room([T, rows], 'float32'),
        drawnLogps: room([T, rows], 'float32'),
        embedding,
        h: room([rows, hidden]),
        arrived: ints([0]),
      }
      kernels.draw(state)
      const real = scores.slice({ dim: 1, end: vocabulary })
      const expected = reference.draw(real, temperature, given?.select(0, 2) ?? null, left)
      assert.deepEqual(state.ids.select(0, 2).numbers(), expected.ids.numbers(), kind)
      const worst = (a: Tensor, b: Tensor) => tidy(() => a.to('float64').sub(b).abs().max().item())
      const errors = [
        worst(state.logps.select(0, 2), expected.logps),
        worst(state.drawnLogps.select(0, 2), expected.drawnLogps),
      ]
      console.log(`${kind}: log-probs ${errors.map((e) => e.toExponential(1)).join(' ')}`)
      assert.ok(Math.max(...errors) < 2e-5, `${kind}: log-probs differ by ${errors}`)
      assert.equal(state.clock.item(), T + 3)
      assert.equal(state.arrived.item(), 0)
      near(`${kind}: next input`, state.h, embedding.indexSelect(0, expected.ids), 1e-9)
      closedDraws(kind, kernels, state)
    }
    const broken = scores.clone()
    broken.select(0, 1).slice({ dim: 0, start: 5, end: 6 }).fill_(Number.NaN)
    const ids = zeros([1, rows], { device, dtype: 'int32' })
    const logps = zeros([1, rows], { device })
    const h = zeros([rows, hidden], { device, dtype: 'bfloat16' })
    const rest = { vocabulary, temperature, never: null, promptOf, embedding, h, ids, logps, drawnLogps: logps.clone() }
    kernels.draw({ ...rest, scores: broken, numbers, clock: ints([0]), arrived: ints([0]) })
    assert.deepEqual(
      ids.numbers().map((id) => id < 0),
      Array.from({ length: rows }, (_, r) => r === 1),
      'only the row without a distribution has no id',
    )
  })
