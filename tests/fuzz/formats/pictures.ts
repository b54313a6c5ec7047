import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { deflateSync } from 'node:zlib'
import sharp from 'sharp'
import { crc32, Mismatch, type RandomStream, sha256 } from '../../../src/core/index.ts'
import { decodeImage, decodeImageFor } from '../../../src/image/index.ts'
import { maskFromDense, maskFromPng, maskToPng } from '../../../src/mask/index.ts'
import { damageBytes, damageField, edgeNumber } from '../bytes.ts'
import type { Case, Format } from '../format.ts'

const size = { width: 40, height: 30 }
const pixels = Uint8Array.from({ length: 40 * 30 * 3 }, (_, i) => (i * 37) % 256)

interface Chunk {
  name: string
  data: Buffer
  sum: number | null
}

function chunksOf(png: Buffer): Chunk[] {
  const chunks: Chunk[] = []
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at)
    chunks.push({
      name: png.toString('latin1', at + 4, at + 8),
      data: png.subarray(at + 8, at + 8 + length),
      sum: null,
    })
    at += 12 + length
  }
  return chunks
}

/** `sum` null: the right one. */
function pngOf(chunks: readonly Chunk[]): Buffer {
  const parts = chunks.map(({ name, data, sum }) => {
    const body = Buffer.concat([Buffer.from(name, 'latin1'), data])
    const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)]
    length.writeUInt32BE(data.length)
    check.writeUInt32BE(sum ?? crc32(body))
    return Buffer.concat([length, body, check])
  })
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), ...parts])
}

function damagePng(seed: Buffer, random: RandomStream): Case {
  const chunks = chunksOf(seed)
  const chunk = random.pick(chunks)
  const before = crc32(Buffer.concat([Buffer.from(chunk.name, 'latin1'), chunk.data]))
  const mended = random.below(2) === 0
  chunk.data = Buffer.from(chunk.data)
  let note = chunk.name
  const choice = random.below(6)
  if (choice === 0) chunks.splice(chunks.indexOf(chunk), 1)
  else if (choice === 1) chunks.push(chunk)
  else if (chunk.name === 'IHDR') {
    if (random.below(2) === 0)
      chunk.data.writeUInt32BE(Math.abs(Math.trunc(edgeNumber(random, 40))) % 2 ** 32, random.below(2) * 4)
    else chunk.data[8 + random.below(5)] = random.pick([0, 1, 2, 3, 4, 6, 7, 8, 16, 32, 255])
    note += ` ${chunk.data.toString('hex')}`
  } else if (chunk.name === 'IDAT' && choice < 4) chunk.data = deflateSync(Buffer.alloc(10 ** random.below(8)))
  else if (chunk.data.length > 0) chunk.data = damageBytes(chunk.data, random).bytes
  if (!mended) chunk.sum = before
  const changed =
    chunk.sum !== null && chunk.sum !== crc32(Buffer.concat([Buffer.from(chunk.name, 'latin1'), chunk.data]))
  return { files: { 'a.png': pngOf(chunks) }, note, expect: changed ? 'nothing' : undefined }
}

async function readPicture(bytes: Buffer): Promise<string> {
  const refusals: Mismatch[] = []
  const attempt = async (read: () => Promise<unknown>) => {
    try {
      await read()
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error
      refusals.push(error)
    }
  }
  await attempt(() => decodeImage(bytes))
  await attempt(() => decodeImageFor(bytes, size))
  if (refusals.length === 2) throw refusals[0]
  return 'pixels'
}

/** As a mask and as a picture; what the mask is, because its chunks carry check sums that are ours to look at. */
export const png: Format = {
  name: 'png',
  async setup() {
    const bits = Uint8Array.from({ length: 1200 }, (_, i) => (i % 7 < 3 ? 1 : 0))
    const raw = { raw: { ...size, channels: 3 as const } }
    const seeds = [
      Buffer.from(await maskToPng(maskFromDense(bits, 30, 40))),
      await sharp(pixels, raw).png().toBuffer(),
      await sharp(pixels, raw).png({ palette: true, colours: 8 }).toBuffer(),
      await sharp(pixels, raw).png({ progressive: true, adaptiveFiltering: true }).toBuffer(),
      await sharp(pixels, raw).toColourspace('rgb16').png().toBuffer(),
    ]
    return (random) => {
      const seed = random.pick(seeds)
      if (random.below(3) > 0) return damagePng(seed, random)
      const { bytes, note } = damageBytes(seed, random)
      return { files: { 'a.png': bytes }, note }
    }
  },
  async read(folder) {
    const bytes = readFileSync(join(folder, 'a.png'))
    await readPicture(bytes).catch((error) => {
      if (!(error instanceof Mismatch)) throw error
    })
    const mask = await maskFromPng(bytes)
    return `mask ${mask.height} x ${mask.width} ${sha256(new Uint8Array(mask.counts.buffer))}`
  },
}

export const jpeg: Format = {
  name: 'jpeg',
  async setup() {
    const picture = () => sharp(pixels, { raw: { ...size, channels: 3 } })
    const seeds = [
      await picture().jpeg().toBuffer(),
      await picture().jpeg({ progressive: true, chromaSubsampling: '4:4:4' }).toBuffer(),
      await picture().withMetadata({ orientation: 6 }).jpeg().toBuffer(),
      await picture().toColourspace('cmyk').jpeg().toBuffer(),
      await picture().webp().toBuffer(),
      await picture().webp({ lossless: true }).toBuffer(),
    ]
    return (random) => {
      const bytes = Buffer.from(random.pick(seeds))
      if (random.below(3) === 0) {
        const damaged = damageBytes(bytes, random)
        return { files: { 'a.jpg': damaged.bytes }, note: damaged.note }
      }
      // lengths and sizes follow the markers
      const markers = [...bytes.keys()].filter((i) => bytes[i] === 0xff && (bytes[i + 1] ?? 0) >= 0xc0)
      const at = markers.length > 0 ? random.pick(markers) : 0
      return { files: { 'a.jpg': bytes }, note: damageField(bytes, at, Math.min(bytes.length, at + 24), random) }
    }
  },
  read: (folder) => readPicture(readFileSync(join(folder, 'a.jpg'))),
}
