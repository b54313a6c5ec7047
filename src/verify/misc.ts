// Recomputes the images of a golden folder: Pillow's resizes, a decoded JPEG, torch's interpolation.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import { type CheckRow, Mismatch } from '../core/index.ts'
import { decodeImage, type Filter, type RgbImage, resize } from '../image/index.ts'
import { aten, type Tensor, tidy } from '../tensor/index.ts'
import { compareIds, compareTensor, type Limit } from './compare.ts'
import { device } from './device.ts'

const close: Limit = { rel: 1e-5, words: '1e-5 of the largest magnitude' }

/** Rows for every `resize.*`, `jpeg.decoded` and `interp.*` tensor of golden.safetensors; `adamw.*` is the trainer's. */
export async function verifyMisc(dir: string): Promise<CheckRow[]> {
  const want = readTensors(openWeights(join(dir, 'golden.safetensors')), device())
  try {
    const image = await open(dir, 'image.png')
    const rows: CheckRow[] = []
    for (const [name, t] of want) {
      if (name.startsWith('resize.')) rows.push(resizeRow(name, image, t))
      else if (name === 'jpeg.decoded') rows.push(decodedRow(name, await open(dir, 'image.jpg'), t))
      else if (name.startsWith('interp.')) {
        if (name !== 'interp.x') rows.push(interpolateRow(name, want.get('interp.x'), t))
      } else if (!name.startsWith('adamw.')) {
        rows.push({ ...unknown, name })
      }
    }
    return rows
  } finally {
    for (const t of want.values()) t.dispose()
  }
}

const unknown = { abs: Number.NaN, rel: Number.NaN, limit: 'a known quantity', pass: false, detail: 'unknown name' }

async function open(dir: string, file: string): Promise<RgbImage> {
  return decodeImage(readFileSync(join(dir, file)))
}

/** `resize.FILTER.WIDTHxHEIGHT`; a large result is stored as every n-th pixel of every n-th row. */
function resizeRow(name: string, image: RgbImage, want: Tensor): CheckRow {
  const [, filter, size] = name.split('.') as [string, Filter, string]
  const [width, height] = size.split('x').map(Number) as [number, number]
  const { data } = resize(image, width, height, filter)
  const [rows, columns] = want.shape as [number, number]
  const [down, right] = [Math.round(height / rows), Math.round(width / columns)]
  const picked = new Uint8Array(rows * columns * 3)
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++)
      for (let c = 0; c < 3; c++) picked[(y * columns + x) * 3 + c] = data[(y * down * width + x * right) * 3 + c] ?? 0
  return compareIds(name, picked, want.numbers())
}

function decodedRow(name: string, image: RgbImage, want: Tensor): CheckRow {
  return compareIds(name, image.data, want.numbers())
}

/** `interp.MODE_HEIGHTxWIDTH` of interp.x, align_corners false. */
function interpolateRow(name: string, x: Tensor | undefined, want: Tensor): CheckRow {
  const parts = /^interp\.(bicubic|bilinear|nearest)_(\d+)x(\d+)$/.exec(name)
  if (!x || !parts)
    throw new Mismatch({
      where: 'golden.safetensors',
      field: name,
      expected: 'interp.MODE_HxW and interp.x',
      got: name,
    })
  const size = [Number(parts[2]), Number(parts[3])]
  return tidy(() => {
    const y =
      parts[1] === 'bicubic'
        ? x.upsampleBicubic2d(size, false)
        : parts[1] === 'bilinear'
          ? x.upsampleBilinear2d(size, false)
          : (aten('upsample_nearest2d', x, size) as Tensor)
    return compareTensor(name, y, want, close)
  })
}
