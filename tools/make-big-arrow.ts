// Writes Arrow shards of a given size in the layout of Grasp-Any-Region, for the data bench. 48 JPEG images of about 0.4 MB repeat.
//   node --import tsx tools/make-big-arrow.ts FOLDER [GB BATCHROWS]
import sharp from 'sharp'
import { type GarRow, writeGarArrow } from '../src/data/index.ts'
import { encodeRle, maskFromDense } from '../src/mask/index.ts'

const width = 1280
const height = 960
const kinds = 48

async function picture(kind: number): Promise<Uint8Array> {
  const data = Buffer.alloc(width * height * 3)
  let state = kind + 1
  for (let i = 0; i < data.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    data[i] = ((i / 3) % width) / 8 + (state >>> 27) * 3 + kind
  }
  return await sharp(data, { raw: { width, height, channels: 3 } })
    .jpeg({ quality: 80 })
    .toBuffer()
}

/** An ellipse that moves and grows with the row. */
function ellipse(row: number) {
  const bits = new Uint8Array(width * height)
  const [cx, cy] = [200 + ((row * 37) % 880), 150 + ((row * 53) % 660)]
  const [rx, ry] = [20 + (row % 160), 20 + (row % 110)]
  for (let y = Math.max(0, cy - ry); y < Math.min(height, cy + ry); y++) {
    const half = Math.floor(rx * Math.sqrt(1 - ((y - cy) / ry) ** 2))
    bits.fill(1, y * width + Math.max(0, cx - half), y * width + Math.min(width, cx + half + 1))
  }
  return encodeRle(maskFromDense(bits, height, width))
}

/** Rows until the images have the given size together. */
async function* rows(bytes: number): AsyncGenerator<GarRow> {
  const pictures: Uint8Array[] = []
  for (let kind = 0; kind < kinds; kind++) pictures.push(await picture(kind))
  const masks = Array.from({ length: kinds }, (_, i) => ellipse(i * 11))
  for (let row = 0, written = 0; written < bytes; row++) {
    const image = pictures[row % kinds]!
    written += image.length
    if (row % 500 === 0) process.stderr.write(`${row} rows, ${(written / 1e9).toFixed(2)} GB\n`)
    yield {
      image: { bytes: image, path: null },
      conversations: [
        { from: 'human', value: '<image>\nPlease describe the masked region in detail.' },
        { from: 'gpt', value: `An ellipse of noise, number ${row}, over a grey gradient.` },
      ],
      mask_rle: masks[row % kinds]!,
      catagory: ['ellipse'],
    }
  }
}

/** Returns the number of rows. */
export async function makeBigArrow(folder: string, gigabytes: number, batchRows = 100): Promise<number> {
  return await writeGarArrow(folder, rows(gigabytes * 1e9), { batchRows })
}

if (process.argv[1]?.endsWith('make-big-arrow.ts')) {
  const [out, gigabytes = '2', batchRows = '100'] = process.argv.slice(2)
  if (!out) throw new Error('usage: make-big-arrow FOLDER [GB BATCHROWS]')
  const written = await makeBigArrow(out, Number(gigabytes), Number(batchRows))
  process.stdout.write(`${out}: ${written} rows\n`)
}
