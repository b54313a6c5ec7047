import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RgbImage } from '../image/index.ts'
import { type Mask, maskArea, maskFromDense } from '../mask/index.ts'
import { Module } from '../nn/index.ts'
import { tensor } from '../tensor/index.ts'
import { gridOfClicks, proposalRules, proposeMasks, withoutDuplicates } from './propose.ts'
import { type ClickMask, type ClickOptions, type ClickPrompt, Segmenter } from './segmenter.ts'

const image: RgbImage = { width: 200, height: 100, data: new Uint8Array(200 * 100 * 3) }

class NoWeights extends Module {
  readonly config = {}
}

/** Boxes of the picture as objects; a click outside of them finds the whole picture. Logits say how sharp the border is. */
class Boxes extends Segmenter<Record<string, never>> {
  readonly objects: { box: number[]; confidence: number; sharp: boolean }[]
  readonly sizes: string[] = []

  constructor(objects: Boxes['objects']) {
    super(new NoWeights())
    this.objects = objects
  }

  inputSize() {
    return { height: 512, width: 1024 }
  }

  protected encodeImages(images: readonly object[]) {
    return images.map(() => ({}))
  }

  protected drawAlike(_: object, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[] {
    this.sizes.push(`${options.width}x${options.height}`)
    return prompts.map(({ points }) => this.#draw((points[0]![0] * 200) / 1024, (points[0]![1] * 100) / 512, options))
  }

  #draw(x: number, y: number, { width, height, keepLogits }: ClickOptions): ClickMask {
    const inside = ({ box: [x1, y1, x2, y2] }: { box: number[] }) => x >= x1! && x < x2! && y >= y1! && y < y2!
    const { box, confidence, sharp } = this.objects.find(inside) ?? {
      box: [0, 0, 200, 100],
      confidence: 1,
      sharp: true,
    }
    const mask = boxMask(
      box.map((v, i) => v * (i % 2 === 0 ? width / 200 : height / 100)),
      width,
      height,
    )
    const logits = keepLogits ? tensor(new Float32Array([5, 5, sharp ? 5 : 0, -5]), [1, 1, 2, 2]) : null
    return { mask, confidence, token: 1, logits }
  }
}

function boxMask([x1, y1, x2, y2]: number[], width: number, height: number): Mask {
  const bits = new Uint8Array(width * height)
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) bits[y * width + x] = x >= x1! && x < x2! && y >= y1! && y < y2! ? 1 : 0
  return maskFromDense(bits, height, width)
}

test('every object is proposed once, in the size of the picture, the largest first', () => {
  const sam = new Boxes([
    { box: [100, 20, 140, 60], confidence: 0.95, sharp: true },
    { box: [10, 10, 90, 90], confidence: 0.9, sharp: true },
  ])
  const found = proposeMasks(sam, image)
  assert.deepEqual(
    found.map(({ mask, confidence, stability }) => [maskArea(mask), confidence, stability]),
    [
      [6400, 0.9, 1],
      [1600, 0.95, 1],
    ],
  )
  assert.deepEqual([found[0]!.mask.width, found[0]!.mask.height], [200, 100])
})

test('doubtful, blurred, tiny and all-covering masks are left out', () => {
  const sam = new Boxes([
    { box: [0, 0, 60, 100], confidence: 0.5, sharp: true },
    { box: [60, 0, 120, 100], confidence: 0.95, sharp: false },
    { box: [120, 40, 132, 52], confidence: 0.95, sharp: true },
  ])
  assert.deepEqual(proposeMasks(sam, image), [])
})

test('of two masks that overlap too much the more confident one stays', () => {
  const at = (x: number, confidence: number) => ({
    mask: boxMask([x, 0, x + 10, 10], 40, 20),
    confidence,
    stability: 1,
  })
  const found = withoutDuplicates([at(0, 0.9), at(1, 0.95), at(9, 0.91)], proposalRules)
  assert.deepEqual(
    found.map(({ confidence }) => confidence),
    [0.95, 0.91],
  )
})

test('an overlap of exactly the limit is not a duplicate', () => {
  const at = (x: number, confidence: number) => ({ mask: boxMask([x, 0, x + 8, 10], 40, 20), confidence, stability: 1 })
  const found = (x: number) => withoutDuplicates([at(0, 0.9), at(x, 0.95)], { ...proposalRules, maxOverlap: 0.6 })
  assert.deepEqual([found(1).length, found(2).length], [1, 2], '7 of 9, 6 of 10')
})

test('clicks are in the middle of equal cells', () => {
  const clicks = gridOfClicks({ height: 60, width: 120 }, 4)
  const middles = [15, 45].flatMap((y) => [15, 45, 75, 105].map((x) => [x, y]))
  assert.deepEqual(clicks.map(({ points }) => points[0]), middles) // biome-ignore format: one line
  assert.ok(clicks.every(({ labels }) => labels.join() === '1'))
})

test('prompts with and without an earlier mask, or a box, are not decoded together', () => {
  const sam = new Boxes([])
  const [plain, previous] = [{ points: [[1, 1] as const], labels: [1] }, tensor([0], [1, 1, 1, 1])]
  const prompts = [plain, { ...plain, previous }, plain, { ...plain, box: [0, 0, 9, 9] as const }]
  assert.equal(sam.draw({}, prompts, { height: 10, width: 10 }).length, 4)
  assert.deepEqual([sam.decodes, sam.prompts], [3, 4])
  previous.dispose()
})

test('a large picture is searched on small masks', () => {
  const sam = new Boxes([{ box: [10, 10, 90, 90], confidence: 0.9, sharp: true }])
  const large = { width: 2000, height: 1000, data: new Uint8Array(2000 * 1000 * 3) }
  const [found] = proposeMasks(sam, large)
  assert.equal(maskArea(found!.mask), 640_000)
  assert.deepEqual([...new Set(sam.sizes)], ['256x128', '2000x1000'])
})
