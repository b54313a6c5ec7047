// A custom data source: `npx roundtrip-rl data inspect ./my-data.ts`, `npx roundtrip-rl train --data ./my-data.ts`.
// `region(i)` gives one record: an image (a path, encoded bytes, or pixels), a mask of the image's size, a caption.
// Here the records are drawn: a disc on a grey ground.
import { type Mask, maskFromDense, type RgbImage, type SourceModule } from 'roundtrip-rl/data'

const size = 96
const colours = { red: [220, 40, 40], green: [40, 180, 70], blue: [50, 80, 220], yellow: [230, 210, 50] } as const
const names = Object.keys(colours) as (keyof typeof colours)[]

/** The disc of record i: its colour, centre and radius in pixels. */
function discOf(i: number) {
  return { colour: names[i % names.length]!, x: 24 + ((i * 17) % 48), y: 24 + ((i * 29) % 48), radius: 10 + (i % 9) }
}

function draw(i: number): { image: RgbImage; mask: Mask } {
  const { colour, x, y, radius } = discOf(i)
  const image = { width: size, height: size, data: new Uint8Array(size * size * 3).fill(128) }
  const inside = new Uint8Array(size * size)
  for (let at = 0; at < size * size; at++) {
    if (Math.hypot((at % size) - x, Math.floor(at / size) - y) > radius) continue
    inside[at] = 1
    image.data.set(colours[colour], 3 * at)
  }
  return { image, mask: maskFromDense(inside, size, size) }
}

export const source = {
  name: 'discs',
  length: 48,
  id: (i) => `disc-${i}`,
  region: async (i) => {
    const { image, mask } = draw(i)
    const caption = `the ${discOf(i).colour} disc`
    return { id: `disc-${i}`, where: `discs: record ${i}`, image: { rgb: image }, mask, caption, meta: {} }
  },
} satisfies SourceModule
