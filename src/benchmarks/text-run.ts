// Items about regions answered by a model, a row each as soon as it is known; see run.ts for masks.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { groupBy, Mismatch } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { decodeRle, type Mask } from '../mask/index.ts'
import type { DescribeRegions, RegionQuestion } from './describe.ts'
import { checkImages } from './folders.ts'
import { answerInBatches, type RowsRun } from './rows.ts'
import type { TextBenchmark, TextItem } from './text-benchmark.ts'

export interface TextRun extends RowsRun {
  benchmark: TextBenchmark
  /** Items per batch. */
  batch: number
  describe: DescribeRegions
}

async function imagesOf(folder: string, items: readonly TextItem[]): Promise<Map<string, RgbImage>> {
  const out = new Map<string, RgbImage>()
  for (const name of new Set(items.map((item) => item.image))) {
    const path = join(folder, name)
    out.set(name, await decodeImage(readFileSync(path), path, { orient: false }))
  }
  return out
}

function regionsOf({ regions }: TextItem, { width, height }: RgbImage, where: string): Mask[] {
  return regions.map((rle, i) => {
    const mask = decodeRle(rle, where)
    if (mask.width === width && mask.height === height) return mask
    const expected = `the image's ${width} x ${height}`
    throw new Mismatch({ where, field: `region ${i + 1}`, expected, got: `${mask.width} x ${mask.height}` })
  })
}

interface LoadedItems {
  items: readonly TextItem[]
  images: ReadonlyMap<string, RgbImage>
}

/** Answers every open item; returns false when it was stopped before the last. */
export async function answerItems({ benchmark, batch, describe, ...run }: TextRun): Promise<boolean> {
  return answerInBatches<TextItem[], LoadedItems>(run, (known) => {
    const answered = new Set(known.map((row) => String(row['id'])))
    const left = benchmark.items.filter((item) => !answered.has(item.id))
    const open = [...groupBy(left, ({ image }) => image).values()].flat() // features of an image are computed once if the batch allows
    const folder = open.length === 0 ? '' : benchmark.images()
    const images = open.map((item) => item.image)
    checkImages(images, folder)
    const starts = Array.from({ length: Math.ceil(open.length / batch) }, (_, i) => i * batch)
    return {
      total: open.length,
      batches: starts.map((at) => open.slice(at, at + batch)),
      load: async (items) => ({ items, images: await imagesOf(folder, items) }),
      answer: ({ items, images }) => {
        const texts = describe(items.map((item) => questionOf(benchmark, item, images.get(item.image)!)))
        return items.map(({ id, image }, i) => ({ benchmark: benchmark.name, id, image, answer: texts[i]! }))
      },
    }
  })
}

function questionOf({ name }: TextBenchmark, item: TextItem, image: RgbImage): RegionQuestion {
  return { image, regions: regionsOf(item, image, `${name} ${item.id}`), question: item.question }
}
