// The vision towers of Qwen-VL on the device: several images in one pass in bfloat16, with the kernel that rotates and the fused attention,
// against each image alone in float32 on the CPU. InternViT and Hiera with the kernel that adds and norms, and that kernel alone.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  fusedNormedSum,
  kernelsOff,
  noKernels,
  normedSum,
  patchRotator,
  sumOf,
  useKernels,
} from '../../src/kernels/index.ts'
import { generations, lookAtAll, type PatchedImage, type QwenBase, type VisionTower } from '../../src/models/index.ts'
import { InternVisionModel, readVisionConfig } from '../../src/models/internvit/model.ts'
import { type Module, replaceTensor, rotate, tensorAt } from '../../src/nn/index.ts'
import { type DType, enableGrad, noGrad, randn, type Tensor, tensorsIn, tidy } from '../../src/tensor/index.ts'
import { disposeModel, goldenTensor, tinyModel } from '../support/sam2.ts'

const device = 'cuda:0'
useKernels('auto')
const skip = noKernels(device) ?? false

/** Heads of 80 and 72, feed-forward rows that do not begin at 16 bytes, windows of 4 x 4 units. */
const sizes: Record<QwenBase, object> = {
  qwen2_5_vl: { hidden_size: 320, num_heads: 4, intermediate_size: 428, fullatt_block_indexes: [1, 3] },
  qwen3_vl: { hidden_size: 288, num_heads: 4, intermediate_size: 432, deepstack_visual_indexes: [1] },
}

function towerOf(base: QwenBase): VisionTower {
  const cfg = generations[base].readVision({ depth: 4, out_hidden_size: 64, ...sizes[base] }, 'test')
  const tower = generations[base].tower(cfg)
  drawWeights(tower)
  return tower
}

function drawWeights(tower: Module): void {
  for (const slot of tower.slots()) {
    const shape = [...tensorAt(slot).shape]
    const value = () => (shape.length === 1 ? randn(shape).mul(0.1).add(1) : randn(shape).mul(0.05))
    replaceTensor(
      slot,
      noGrad(() => tidy(() => value().to('bfloat16').to('float32'))), // the same weights in both
    )
  }
}

function move(tower: Module, to: string, dtype: DType): void {
  for (const slot of tower.slots())
    replaceTensor(
      slot,
      noGrad(() => tidy(() => tensorAt(slot).to(to).to(dtype))),
    )
}

const distance = (a: Tensor, b: Tensor): number => {
  const [x, y] = [a.to('cpu').to('float32'), b.to('cpu').to('float32')]
  return x.sub(y).norm().item() / y.norm().item()
}

for (const base of ['qwen2_5_vl', 'qwen3_vl'] as const)
  test(`${base}: images in one pass on the device are those alone on the CPU, the same bits each time`, {
    skip,
  }, () => {
    const tower = towerOf(base)
    const patch = base === 'qwen3_vl' ? 16 : 14
    const image = (rows: number, columns: number): PatchedImage => {
      const pixels = tidy(() => randn([rows * columns * 3 * 2 * patch * patch]).array() as Float32Array)
      return { rows, columns, pixels, height: rows * patch, width: columns * patch }
    }
    const images = [image(12, 20), image(16, 16), image(12, 20)]
    const look = (placement: { device: string; dtype: DType }) =>
      noGrad(() => lookAtAll(tower, images, placement)).map((seen) => tensorsIn(seen))
    tidy(() => {
      const want = look({ device: 'cpu', dtype: 'float32' })
      const check = (name: string, got: Tensor[][], limit: number) =>
        want.forEach((own, i) => {
          own.forEach((t, k) => {
            const far = distance(got[i]![k]!, t)
            console.log(`${base} ${name}, image ${i}, tensor ${k}: ${far.toExponential(1)}`)
            assert.ok(far < limit, `${name}: image ${i}, tensor ${k}: ${far}`)
          })
        })
      move(tower, device, 'float32')
      check('float32', look({ device, dtype: 'float32' }), 1e-3)
      move(tower, device, 'bfloat16')
      const once = look({ device, dtype: 'bfloat16' })
      check('bfloat16', once, 0.03)
      const numbers = (all: Tensor[][]) => all.map((own) => own.map((t) => t.numbers()))
      assert.deepEqual(numbers(look({ device, dtype: 'bfloat16' })), numbers(once))
      useKernels('off')
      check('bfloat16, kernels off', look({ device, dtype: 'bfloat16' }), 0.03)
      useKernels('auto')
    })
    for (const slot of tower.slots()) tensorAt(slot).dispose()
  })

test('queries and keys of patches are rotated in place, values stay', { skip }, () => {
  assert.equal(kernelsOff(), null)
  for (const dim of [64, 72, 80])
    tidy(() => {
      const [P, H] = [37, 4]
      const qkv = randn([P, 3, H, dim], { device }).to('bfloat16')
      const half = () => randn([P, 1, dim / 2], { device })
      const [c, s] = [half(), half()]
      const table = { cos: both(c), sin: both(s) }
      const want = [0, 1].map((i) => rotate(qkv.select(1, i).to('float32'), table).to('bfloat16'))
      const values = qkv.select(1, 2).clone()
      patchRotator(H, dim, qkv)!(qkv, table)
      want.forEach((t, i) => {
        const far = distance(qkv.select(1, i), t)
        assert.ok(far < 2e-3, `heads of ${dim}, part ${i}: ${far}`)
      })
      assert.deepEqual(qkv.select(1, 2).numbers(), values.numbers())
    })
})

const both = (half: Tensor): Tensor => half.repeat([1, 1, 2]).contiguous()

const random = (shape: number[], size = 1, mean = 0) => randn(shape, { device }).mul(size).add(mean).to('bfloat16')

function normOf(width: number) {
  const [weight, bias, eps] = [random([width], 0.3, 1), random([width], 0.3), 1e-6]
  const forward = (x: Tensor) => x.layerNorm([width], { weight: weight.to(x.dtype), bias: bias.to(x.dtype), eps })
  return { weight, bias, eps, forward }
}

function withoutKernels<R>(fn: () => R): R {
  useKernels('off')
  try {
    return fn()
  } finally {
    useKernels('auto')
  }
}

const assertSame = (name: string, got: Tensor, want: Tensor) => assert.equal(got.sub(want).abs().max().item(), 0, name)

/** Half a unit in the last place of bfloat16; float32 sums of numbers below 64 stay far below the rest. */
function assertRounded(name: string, got: Tensor, want: Tensor): void {
  const over = got
    .to('float64')
    .sub(want)
    .abs()
    .sub(want.abs().mul(2 ** -8))
  assert.ok(over.max().item() < 1e-4, `${name}: ${over.max().item()} more than the rounding`)
}

for (const width of [8, 24, 144, 288, 320, 328, 576, 1024, 1152, 3200, 4096])
  test(`rows of ${width}: the sum has the bits of the ops, its norm is float64's, rounded once`, { skip }, () =>
    tidy(() => {
      const norm = normOf(width)
      for (const rows of [1, 37, 1025]) {
        const [x, y, scale] = [random([rows, width], 1, 3), random([rows, width]), random([width], 0.5)]
        for (const at of [{ x }, { x, y }, { x, y, scale }]) {
          const name = `${rows} rows, ${Object.keys(at)}`
          const { sum, normed } = fusedNormedSum(at, norm, {})!
          assertSame(name, sum, sumOf(at))
          assertRounded(name, normed, norm.forward(sum.to('float64')))
          for (let i = 0; i < 2; i++) assertSame(`${name}, repeated`, fusedNormedSum(at, norm, {})!.normed, normed)
        }
      }
    }),
  )

test('the kernel reads and writes windows as the ops partition and merge maps', { skip }, () =>
  tidy(() => {
    const norm = normOf(144)
    const x = random([2, 12, 24, 144])
    for (const [from, to] of [
      [0, 4],
      [4, 0],
      [2, 12],
      [6, 3],
    ] as const) {
      const y = random(from > 0 ? [x.numel / 144 / from ** 2, from, from, 144] : [...x.shape])
      const got = fusedNormedSum({ x, y }, norm, { from, to })!
      const want = withoutKernels(() => normedSum({ x, y }, norm, { from, to }))
      assert.deepEqual([got.sum.shape, got.normed.shape], [want.sum.shape, want.normed.shape])
      const exact = normedSum({ x: want.sum.to('float64') }, norm, { to })
      assertSame(`windows of ${from}`, got.sum, want.sum)
      assertRounded(`windows of ${to}`, got.normed, exact.normed)
    }
    assert.equal(fusedNormedSum({ x }, norm, { to: 5 }), null, 'windows that do not divide the map')
  }),
)

test('gradients, other dtypes and norms without bias take the ops', { skip }, () =>
  tidy(() => {
    const norm = normOf(16)
    const x = random([4, 16])
    assert.equal(fusedNormedSum({ x: x.to('float32') }, norm, {}), null)
    assert.equal(fusedNormedSum({ x }, { ...norm, bias: undefined }, {}), null)
    assert.equal(
      withoutKernels(() => fusedNormedSum({ x }, norm, {})),
      null,
    )
    norm.weight.requiresGrad_(true)
    assert.equal(
      enableGrad(() => fusedNormedSum({ x }, norm, {})),
      null,
    )
    assert.ok(noGrad(() => fusedNormedSum({ x }, norm, {})))
  }),
)

/** With kernels, without, and in float32 on the CPU; the same bits each time. */
function compareTowers(name: string, tower: Module, pixels: Tensor, look: (pixels: Tensor) => Tensor[]): void {
  noGrad(() =>
    tidy(() => {
      const want = look(pixels)
      move(tower, device, 'bfloat16')
      const input = pixels.to(device).to('bfloat16')
      const once = look(input)
      const plain = withoutKernels(() => look(input))
      for (const [i, t] of once.entries()) {
        const far = [distance(t, plain[i]!), distance(t, want[i]!), distance(plain[i]!, want[i]!)]
        console.log(`${name}, tensor ${i}: ${far.map((d) => d.toExponential(1)).join(', ')}`)
        assert.ok(far[0]! < 0.02 && far[1]! < 0.03 && far[2]! < 0.03, `${name}, tensor ${i}: ${far}`)
      }
      const numbers = (all: Tensor[]) => all.map((t) => t.numbers())
      assert.deepEqual(numbers(look(input)), numbers(once))
    }),
  )
}

test('InternViT with kernels is the one without them', { skip }, () => {
  const sizes = { hidden_size: 128, num_attention_heads: 4, intermediate_size: 256, num_hidden_layers: 4 }
  const more = { image_size: 56, patch_size: 14, norm_type: 'layer_norm', qk_normalization: false, qkv_bias: true }
  const model = new InternVisionModel(
    readVisionConfig({ architectures: ['InternVisionModel'], ...sizes, ...more }, 'test'),
  )
  drawWeights(model)
  const pixels = randn([3, 3, 56, 56])
  compareTowers('InternViT', model, pixels, (x) => [model.forward(x), model.forward(x, -2)])
  disposeModel(model)
  pixels.dispose()
})

test('Hiera with kernels is the one without them', { skip }, () => {
  const model = tinyModel()
  const { trunk } = model.image_encoder
  const pixels = goldenTensor('seg.g_pixel_values')
  compareTowers('Hiera', trunk, pixels, (x) => trunk.forward(x))
  disposeModel(model)
  pixels.dispose()
})
