// Items about regions answered by a model, a row each as soon as it is known; see run.ts for masks.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Mismatch } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { decodeRle, type Mask } from '../mask/index.ts'
import type { DescribeRegions } from './describe.ts'
import { checkImages } from './folders.ts'
import { openRows, type RowsHeader } from './rows.ts'
import type { BenchmarkHost } from './run.ts'
import type { TextBenchmark, TextItem } from './text-benchmark.ts'

export interface TextRun {
  benchmark: TextBenchmark
  rows: string
  header: RowsHeader
  /** Items per batch. */
  batch: number
  describe: DescribeRegions
  host: BenchmarkHost
}

/** Items of one image are adjacent, so that its features are computed once if the batch allows. */
function byImage(items: readonly TextItem[]): TextItem[] {
  const groups = new Map<string, TextItem[]>()
  for (const item of items) groups.set(item.image, [...(groups.get(item.image) ?? []), item])
  return [...groups.values()].flat()
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

/** Answers every open item; returns false when it was stopped before the last. */
export async function answerItems({ benchmark, rows, header, batch, describe, host }: TextRun): Promise<boolean> {
  const { lines, known } = openRows(rows, header)
  try {
    const answered = new Set(known.map((row) => String(row['id'])))
    const open = byImage(benchmark.items.filter((item) => !answered.has(item.id)))
    if (open.length === 0) return true
    const folder = benchmark.images()
    checkImages(
      open.map((item) => item.image),
      folder,
    )
    host.progress(0, open.length, known.length)
    for (let at = 0; at < open.length; at += batch) {
      if (host.stopping()) return false
      const items = open.slice(at, at + batch)
      const images = await imagesOf(folder, items)
      const questions = items.map((item) => ({
        image: images.get(item.image)!,
        regions: regionsOf(item, images.get(item.image)!, `${benchmark.name} ${item.id}`),
        question: item.question,
      }))
      const texts = describe(questions)
      lines.append(...items.map(({ id, image }, i) => ({ benchmark: benchmark.name, id, image, answer: texts[i]! })))
      host.progress(at + items.length, open.length, known.length)
      await host.yieldToLoop()
    }
    return true
  } finally {
    lines.close()
  }
}
