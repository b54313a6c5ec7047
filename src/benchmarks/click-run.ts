// Clicks on the masks of any dataset that the data readers open.
import { Mismatch, readJsonLines } from '../core/index.ts'
import { type Example, openSource, type Source } from '../data/index.ts'
import { maskArea } from '../mask/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import { tidyNoGrad } from '../tensor/index.ts'
import { encodeOnce } from './answer.ts'
import { clicksOn } from './click-model.ts'
import { type ClickedRecord, maxClicks, scoreClicks, simulateClicks } from './clicks.ts'
import { rowsFormat } from './predictions.ts'
import type { AnswerSettings, RegionBenchmark } from './region-benchmarks.ts'
import { answerInBatches } from './rows.ts'

export async function openClicks(data: string): Promise<RegionBenchmark> {
  const source = await openSource(data)
  const { length } = source
  await source.close()
  return {
    ...{ name: 'clicks', source: data, warning: null },
    answer: (family, settings) => answerClicks(data, family, settings),
    score: async (file, { seed }) => {
      const rows = readClicks(file)
      if (rows.length !== length)
        throw new Mismatch({ where: file, field: 'records', expected: `${length} records`, got: rows.length })
      const metrics = scoreClicks(rows, { seed })
      return [{ split: 'all', items: rows.length, metrics, rows: rows.map((r) => ({ ...r })) }]
    },
  }
}

function readClicks(file: string): ClickedRecord[] {
  return readJsonLines(file)
    .filter(({ value }) => value['format'] !== rowsFormat)
    .map(({ value: { id, image, overlaps }, where }) => {
      const numbers = Array.isArray(overlaps) && overlaps.length >= 5 && overlaps.every((v) => typeof v === 'number')
      if (numbers) return { id: String(id), image: String(image ?? id), overlaps: overlaps as number[] }
      throw new Mismatch({ where, field: 'overlaps', expected: 'at least 5 numbers', got: overlaps })
    })
}

async function answerClicks(data: string, family: GroundedFamily, settings: AnswerSettings): Promise<boolean> {
  const source = await openSource(data)
  try {
    // rows come in the order of the records
    return await answerInBatches<number, Example>(settings, ({ length: start }) => ({
      total: source.length - start,
      batches: Array.from({ length: source.length - start }, (_, i) => start + i),
      load: (index) => exampleAt(source, index),
      answer: (example) => [clickRow(family, example, settings)],
    }))
  } finally {
    await source.close()
  }
}

async function exampleAt(source: Source, index: number): Promise<Example> {
  const example = await source.get(index)
  if (maskArea(example.mask) > 0) return example
  const where = `${source.name}: ${example.id}`
  throw new Mismatch({ where, field: 'mask', expected: 'a pixel to click on', got: 'none' })
}

function clickRow(family: GroundedFamily, example: Example, { maxTiles }: AnswerSettings): Record<string, unknown> {
  return tidyNoGrad(() => {
    const features = encodeOnce(family, example.image, maxTiles)
    const { draw, release } = clicksOn(family, features, example.image)
    try {
      const overlaps = simulateClicks(example.mask, draw, maxClicks)
      const image = String((example.meta as Record<string, unknown> | undefined)?.['image'] ?? example.id)
      return { benchmark: 'clicks', id: example.id, image, overlaps }
    } finally {
      release()
    }
  })
}
