import assert from 'node:assert/strict'
import { test } from 'node:test'
import { roundingBound } from '../../../tests/support/rounding.ts'
import { disposeModel, goldenTensor, relativeError, tinyModel } from '../../../tests/support/sam2.ts'
import { stream, streamId } from '../../core/index.ts'
import { sumOf } from '../../kernels/index.ts'
import { replaceTensor, tensorAt } from '../../nn/index.ts'
import { attention, expectNoLeak, noGrad, tensor, tidy } from '../../tensor/index.ts'
import { attentionByHeads, type BlockShape, HieraBlock } from './hiera.ts'

type Vector = number[]
type Grid = Vector[][] // [row][column][channel]

function values(key: string, n: number): number[] {
  const random = stream(7, streamId.init, key)
  return Array.from({ length: n }, (_, i) => Math.fround(random.normalAt(i)))
}

function makeBlock(shape: BlockShape): { block: HieraBlock; at: (name: string) => number[] } {
  const block = new HieraBlock(shape)
  for (const slot of block.slots()) {
    const { shape: size, numel } = tensorAt(slot)
    const base = /norm.\.weight/.test(slot.name) ? 1 : 0
    const numbers = values(slot.name, numel).map((v) => base + 0.4 * v)
    replaceTensor(slot, tensor(numbers, size))
  }
  const numbers = new Map([...block.parameters()].map(([n, t]) => [n, t.numbers()]))
  return { block, at: (name) => numbers.get(name)! }
}

function linear(x: Vector, w: number[], b: number[]): Vector {
  return b.map((bias, o) => bias + x.reduce((sum, v, i) => sum + v * w[o * x.length + i]!, 0))
}

function norm(x: Vector, w: number[], b: number[]): Vector {
  const mean = x.reduce((a, v) => a + v, 0) / x.length
  const spread = Math.sqrt(x.reduce((a, v) => a + (v - mean) ** 2, 0) / x.length + 1e-6)
  return x.map((v, i) => ((v - mean) / spread) * w[i]! + b[i]!)
}

function dot(a: Vector, b: Vector): number {
  return a.reduce((s, v, i) => s + v * b[i]!, 0)
}

function maxOf(vectors: Vector[]): Vector {
  return vectors[0]!.map((_, i) => Math.max(...vectors.map((v) => v[i]!)))
}

function poolGrid(g: Grid): Grid {
  const half = g.length / 2
  return Array.from({ length: half }, (_, r) =>
    Array.from({ length: half }, (_, c) =>
      maxOf([g[2 * r]![2 * c]!, g[2 * r]![2 * c + 1]!, g[2 * r + 1]![2 * c]!, g[2 * r + 1]![2 * c + 1]!]),
    ),
  )
}

/** Softmax over all keys, one head at a time. */
function attend(query: Vector, keys: Vector[], vals: Vector[], heads: number): Vector {
  const d = query.length / heads
  return Array.from({ length: heads }, (_, h) => {
    const cut = (v: Vector) => v.slice(h * d, (h + 1) * d)
    const scores = keys.map((k) => Math.exp(dot(cut(query), cut(k)) / Math.sqrt(d)))
    const total = scores.reduce((a, b) => a + b, 0)
    return Array.from({ length: d }, (_, i) => scores.reduce((s, e, j) => s + (e / total) * cut(vals[j]!)[i]!, 0))
  }).flat()
}

/** One square window of normed cells, padding included, through qkv, attention and proj. */
function windowOut(cells: Grid, shape: BlockShape, at: (name: string) => number[]): Grid {
  const qkv = cells.map((row) => row.map((x) => linear(x, at('attn.qkv.weight'), at('attn.qkv.bias'))))
  const pick = (i: number) => qkv.map((row) => row.map((v) => v.slice(i * shape.dout, (i + 1) * shape.dout)))
  const queries = shape.pooled ? poolGrid(pick(0)) : pick(0)
  const [keys, vals] = [pick(1).flat(), pick(2).flat()]
  return queries.map((row) =>
    row.map((q) => linear(attend(q, keys, vals, shape.heads), at('attn.proj.weight'), at('attn.proj.bias'))),
  )
}

/** The block by loops in double precision: windows cut out of a map that continues with zeros. */
function byLoops(x: Grid, shape: BlockShape, at: (name: string) => number[]): Grid {
  const normed = x.map((row) => row.map((v) => norm(v, at('norm1.weight'), at('norm1.bias'))))
  const zero = Array<number>(shape.din).fill(0)
  const projected = () => normed.map((row) => row.map((v) => linear(v, at('proj.weight'), at('proj.bias'))))
  const shortcut = shape.pooled ? poolGrid(projected()) : x
  const w = shape.window
  const step = shape.pooled ? w / 2 : w
  const cache = new Map<string, Grid>()
  const windowAt = (r: number, c: number): Grid => {
    const key = `${r},${c}`
    const cells = () =>
      Array.from({ length: w }, (_, i) => Array.from({ length: w }, (_, j) => normed[r * w + i]?.[c * w + j] ?? zero))
    if (!cache.has(key)) cache.set(key, windowOut(cells(), shape, at))
    return cache.get(key)!
  }
  return shortcut.map((row, r) =>
    row.map((s, c) => {
      const o = windowAt(Math.floor(r / step), Math.floor(c / step))[r % step]![c % step]!
      return feedForward(
        s.map((v, i) => v + o[i]!),
        at,
      )
    }),
  )
}

function feedForward(y: Vector, at: (name: string) => number[]): Vector {
  const hidden = linear(
    norm(y, at('norm2.weight'), at('norm2.bias')),
    at('mlp.layers.0.weight'),
    at('mlp.layers.0.bias'),
  )
  const out = linear(hidden.map(gelu), at('mlp.layers.1.weight'), at('mlp.layers.1.bias'))
  return y.map((v, i) => v + out[i]!)
}

/** x Phi(x); Phi by its power series, exact to double precision for the small arguments here. */
function gelu(x: number): number {
  let term = x
  let sum = x
  for (let n = 1; n < 200; n++) {
    term *= (x * x) / (2 * n + 1)
    sum += term
  }
  return x * (0.5 + (sum * Math.exp(-(x * x) / 2)) / Math.sqrt(2 * Math.PI))
}

for (const pooled of [false, true]) {
  test(`a window of 6 over 8 x 8 cells sees zero-padded cells, ${pooled ? 'queries pooled' : 'plain'}`, () => {
    const window = 6
    const shape: BlockShape = { din: 8, dout: pooled ? 16 : 8, heads: 2, window, pooled }
    const { block, at } = makeBlock(shape)
    const flat = values('cells', 8 * 8 * 8)
    const cell = (r: number, c: number) => flat.slice((r * 8 + c) * 8, (r * 8 + c + 1) * 8)
    const grid: Grid = Array.from({ length: 8 }, (_, r) => Array.from({ length: 8 }, (_, c) => cell(r, c)))
    const want = byLoops(grid, shape, at)
    tidy(() => {
      const got = noGrad(() => sumOf(block.forward({ x: tensor(flat, [1, 8, 8, 8]) })))
      const error = relativeError(got, tensor(want.flat(2), [1, want.length, want.length, shape.dout]))
      assert.ok(error < roundingBound(window * window), `${error}`) // attention sums over the cells of a window
    })
    disposeModel(block)
  })
}

test('the trunk runs with windows that do not divide its maps', () => {
  const model = tinyModel('float32', { window_spec: [8, 4, 6, 2] })
  noGrad(() =>
    tidy(() => {
      const maps = model.image_encoder.trunk.forward(goldenTensor('seg.g_pixel_values'))
      assert.deepEqual(
        maps.map((m) => m.shape),
        [
          [1, 16, 32, 32],
          [1, 32, 16, 16],
          [1, 64, 8, 8],
          [1, 128, 4, 4],
        ],
      )
      assert.ok(relativeError(maps[1]!, goldenTensor('sam.trunk1')) < 1e-5)
      assert.ok(relativeError(maps[3]!, goldenTensor('sam.trunk3')) > 1e-4)
    }),
  )
  disposeModel(model)
})

test('attention in runs of heads equals attention at once', () => {
  tidy(() => {
    const [q, k, v] = ['q', 'k', 'v'].map((n) => tensor(values(n, 2 * 3 * 10 * 4), [2, 3, 10, 4]))
    const whole = attention(q!, k!, v!)
    for (const heads of [1, 2, 4, 5, 6]) {
      const runs = attentionByHeads(q!, k!, v!, heads * 10 * 10 * 4)
      assert.ok(relativeError(runs, whole) < 1e-6, `${heads} heads at a time`)
    }
    assert.ok(relativeError(attentionByHeads(q!, k!, v!, 1), whole) < 1e-6, 'a limit below one head')
  })
})

test('a block leaves nothing behind but its result', () => {
  const { block } = makeBlock({ din: 8, dout: 16, heads: 2, window: 4, pooled: true })
  expectNoLeak(() =>
    tidy(() =>
      sumOf(block.forward({ x: tensor(values('cells', 512), [1, 8, 8, 8]) }))
        .sum()
        .item(),
    ),
  )
  disposeModel(block)
})
