// Recomputes the images of a golden folder: Pillow's resizes, a decoded JPEG, torch's interpolation.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CheckRow, Mismatch } from '../core/index.ts'
import { decodeImage, type Filter, type RgbImage, resize } from '../image/index.ts'
import { aten, type Tensor, tidy } from '../tensor/index.ts'
import { failedRow, type Limit } from './compare.ts'
import { GoldenTensors } from './golden-tensors.ts'

const close: Limit = { rel: 1e-5, words: '1e-5 of the largest magnitude' }

/** Rows for every `resize.*`, `jpeg.decoded` and `interp.*` tensor of golden.safetensors; `adamw.*` is the trainer's. */
export async function verifyMisc(dir: string): Promise<CheckRow[]> {
  const want = new GoldenTensors(join(dir, 'golden.safetensors'))
  try {
    const image = await open(dir, 'image.png')
    const decoded = want.has('jpeg.decoded') ? (await open(dir, 'image.jpg')).data : []
    return want
      .names()
      .filter((name) => name !== 'interp.x' && !name.startsWith('adamw.'))
      .map((name) => {
        if (name.startsWith('resize.')) return resizeRow(name, image, want)
        if (name === 'jpeg.decoded') return want.ids(name, decoded)
        return name.startsWith('interp.')
          ? interpolateRow(name, want)
          : failedRow(name, 'a known quantity', 'unknown name')
      })
  } finally {
    want.dispose()
  }
}

async function open(dir: string, file: string): Promise<RgbImage> {
  return decodeImage(readFileSync(join(dir, file)))
}

/** `resize.FILTER.WIDTHxHEIGHT`; a large result is stored as every n-th pixel of every n-th row. */
function resizeRow(name: string, image: RgbImage, want: GoldenTensors): CheckRow {
  const [, filter, size] = name.split('.') as [string, Filter, string]
  const [width, height] = size.split('x').map(Number) as [number, number]
  const { data } = resize(image, width, height, filter)
  const [rows, columns] = want.get(name).shape as [number, number]
  const [down, right] = [Math.round(height / rows), Math.round(width / columns)]
  const picked = new Uint8Array(rows * columns * 3)
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++)
      for (let c = 0; c < 3; c++) picked[(y * columns + x) * 3 + c] = data[(y * down * width + x * right) * 3 + c] ?? 0
  return want.ids(name, picked)
}

/** `interp.MODE_HEIGHTxWIDTH` of interp.x, align_corners false. */
function interpolateRow(name: string, want: GoldenTensors): CheckRow {
  const parts = /^interp\.(bicubic|bilinear|nearest)_(\d+)x(\d+)$/.exec(name)
  const expected = 'interp.MODE_HxW and interp.x'
  if (!parts || !want.has('interp.x'))
    throw new Mismatch({ where: 'golden.safetensors', field: name, expected, got: name })
  const [x, size] = [want.get('interp.x'), [Number(parts[2]), Number(parts[3])]]
  return tidy(() => {
    if (parts[1] === 'bicubic') return want.tensor(name, x.upsampleBicubic2d(size, false), close)
    if (parts[1] === 'bilinear') return want.tensor(name, x.upsampleBilinear2d(size, false), close)
    return want.tensor(name, aten('upsample_nearest2d', x, size) as Tensor, close)
  })
}
