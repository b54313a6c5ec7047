import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { picture } from '../../../tests/support/sa2va.ts'
import { bfloat16, decodeImage, samInput } from '../../image/index.ts'
import { noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { type LoadedSa2VAQwen, openSa2VAQwen, prepareQwenImage } from './index.ts'

const folder = join(import.meta.dirname, '../../../tests/fixtures/golden/sa2va-qwen3vl-tiny')

function withModel(options: Parameters<typeof openSa2VAQwen>[1], run: (loaded: LoadedSa2VAQwen) => void): void {
  const loaded = openSa2VAQwen(folder, options)
  try {
    noGrad(() => tidy(() => run(loaded)))
  } finally {
    for (const t of loaded.model.parameters().values()) t.dispose()
  }
}

test('bf16-ref rounds the position codes of the cells step by step, as a written-out loop does', () => {
  withModel({ dtype: 'bfloat16', rounding: 'bf16-ref' }, ({ model, cfg }) => {
    const codes = model.sam.sam_prompt_encoder.densePositions()
    assert.equal(codes.dtype, 'bfloat16')
    const matrix = model.sam.sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix.numbers() // [2, D/2]
    const [e, half] = [cfg.sam.image_size / 16, cfg.sam.d_model / 2]
    const got = codes.numbers() // [1, D, e, e]
    for (let row = 0; row < e; row++)
      for (let column = 0; column < e; column++)
        for (let k = 0; k < half; k++) {
          const [x, y] = [column, row].map((at) => bfloat16(2 * ((at + 0.5) / e) - 1)) as [number, number]
          const product = bfloat16(x * matrix[k]! + y * matrix[half + k]!)
          const angle = bfloat16(product * Math.fround(2 * Math.PI))
          const [sine, cosine] = [k, half + k].map((c) => got[(c * e + row) * e + column]!)
          const step = 2 ** -8 // of a bfloat16 just below 1
          const off = Math.max(Math.abs(sine! - Math.sin(angle)), Math.abs(cosine! - Math.cos(angle)))
          assert.ok(off <= step, `${off} at angle ${angle}`)
        }
  })
})

test('bf16-ref keeps level 2 in float32 and the finer levels in bfloat16; the usual rounding keeps all in bfloat16', () => {
  for (const [rounding, level2] of [
    ['bf16-ref', 'float32'],
    ['once', 'bfloat16'],
  ] as const) {
    withModel({ dtype: 'bfloat16', rounding }, ({ model, cfg, processor }) => {
      const { sam } = model.encode(prepareQwenImage(picture(90, 70), cfg, processor))
      assert.deepEqual([sam.level0.dtype, sam.level1.dtype, sam.level2.dtype], ['bfloat16', 'bfloat16', level2])
    })
  }
})

test('bf16-ref takes the pixels of SAM2 with constants and steps in bfloat16, the usual rounding in float32', () => {
  const image = picture(50, 40)
  withModel({ dtype: 'bfloat16', rounding: 'bf16-ref' }, ({ cfg, processor }) => {
    const { samPixels } = prepareQwenImage(image, cfg, processor)
    assert.deepEqual(samPixels, samInput(image, cfg.sam.image_size, 'bfloat16'))
    assert.ok(samPixels.every((v) => v === bfloat16(v)))
    // the constants of the specification
    const constants = [0.484375, 0.455078125, 0.40625, 0.228515625, 0.2236328125, 0.224609375]
    assert.deepEqual([0.485, 0.456, 0.406, 0.229, 0.224, 0.225].map(bfloat16), constants)
  })
  withModel({ dtype: 'bfloat16' }, ({ cfg, processor }) => {
    const { samPixels } = prepareQwenImage(image, cfg, processor)
    assert.deepEqual(samPixels, samInput(image, cfg.sam.image_size, 'float32'))
  })
})

test('the usual rounding is the one closer to float32 over several pictures', async () => {
  const golden = await decodeImage(readFileSync(join(folder, 'image.png')))
  const images = [golden, picture(90, 70), picture(50, 40), picture(150, 104), picture(64, 64)]
  const masks: Record<string, number[]> = {}
  for (const [name, options] of Object.entries({
    float32: { dtype: 'float32' },
    once: { dtype: 'bfloat16' },
    reference: { dtype: 'bfloat16', rounding: 'bf16-ref' },
  } as const)) {
    withModel(options, ({ model, cfg, processor }) => {
      const prompts: Tensor = tensor(
        Float32Array.from({ length: 8 * cfg.sam.d_model }, (_, i) => 1.5 * Math.sin(12.9898 * i)),
        [8, cfg.sam.d_model],
      ).to(model.placement.dtype)
      masks[name] = images.flatMap((image) => {
        const features = model.encode(prepareQwenImage(image, cfg, processor))
        return model.drawMasks(features, prompts, Array(8).fill(0)).logits.numbers()
      })
    })
  }
  const error = (name: string) => masks[name]!.reduce((sum, v, i) => sum + (v - masks.float32![i]!) ** 2, 0)
  assert.ok(error('once') < error('reference'), `${error('once')} against ${error('reference')}`)
})

test('bf16-ref without bfloat16 weights is refused: nothing would be rounded', () => {
  assert.throws(() => openSa2VAQwen(folder, { dtype: 'float32', rounding: 'bf16-ref' }), /expected dtype bfloat16/)
})
