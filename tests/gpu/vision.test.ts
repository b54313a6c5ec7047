// The vision towers of Qwen-VL on the device: several images in one pass in bfloat16, with the kernel that rotates and the fused attention,
// against each image alone in float32 on the CPU.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { kernelsOff, noKernels, patchRotator, useKernels } from '../../src/kernels/index.ts'
import { generations, lookAtAll, type PatchedImage, type QwenBase, type VisionTower } from '../../src/models/index.ts'
import { replaceTensor, rotate, tensorAt } from '../../src/nn/index.ts'
import { type DType, noGrad, randn, type Tensor, tensorsIn, tidy } from '../../src/tensor/index.ts'

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
  for (const slot of tower.slots()) {
    const shape = [...tensorAt(slot).shape]
    const value = () => (shape.length === 1 ? randn(shape).mul(0.1).add(1) : randn(shape).mul(0.05))
    replaceTensor(
      slot,
      noGrad(() => tidy(() => value().to('bfloat16').to('float32'))), // the same weights in both
    )
  }
  return tower
}

function move(tower: VisionTower, to: string, dtype: DType): void {
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
