// Ref-L4: boxes of long expressions. A model of masks enters with the box around its mask. Accuracy counts overlaps above (not
// at) a threshold, compared in float32 as the authors' evaluation does.
import { join } from 'node:path'
import { z } from 'zod'
import { parseWith } from '../config/index.ts'
import { type JsonObject, Mismatch, namesIn, readJson, readJsonLines } from '../core/index.ts'
import { readParquet } from '../data/index.ts'
import { decodeRle, maskBox, type Rle } from '../mask/index.ts'
import type { BenchmarkRecord } from './benchmark.ts'
import { findFolder, findImages } from './folders.ts'
import { rowsOf } from './list.ts'
import { type MeasureOptions, measure, share } from './measure.ts'
import { rowsFormat } from './predictions.ts'
import { emptyTarget } from './target.ts'

/** x, y, width, height. */
export type Box = readonly [number, number, number, number]

const number = z.coerce.number()
const StoredRow = z.object({
  id: z.union([z.string(), z.number()]).transform(String),
  caption: z.string(),
  bbox: z.tuple([number, number, number, number]).readonly(),
  file_name: z.string(),
  height: number.positive(),
  width: number.positive(),
})
type RefL4Row = z.infer<typeof StoredRow> & { split: string }

/** Expressions of the published splits together. */
const published = 45341

const dataFile = /^(?:ref-l4-)?(val|test)(?:-\d+-of-\d+)?\.(parquet|jsonl|json)$/i

interface PlacedRow {
  row: JsonObject
  /** File and row, for messages. */
  where: string
}

function placed(list: unknown, file: string): PlacedRow[] {
  const rows = rowsOf(list, file, 'row', z.record(z.string(), z.unknown()))
  return rows.map((row, i) => ({ row, where: `${file}: row ${i}` }))
}

function jsonRows(file: string): PlacedRow[] {
  if (!/\.jsonl$/i.test(file)) return placed(readJson(file), file)
  return readJsonLines(file).map(({ value, where }) => ({ row: value, where }))
}

async function fileRows(file: string): Promise<PlacedRow[]> {
  return /\.parquet$/i.test(file) ? placed(await readParquet(file), file) : jsonRows(file)
}

function recordOf(row: RefL4Row): BenchmarkRecord {
  return {
    ...{ split: row.split, id: row.id, image: row.file_name, sentences: [row.caption] },
    questions: [`<image>\n Please segment ${row.caption} in this image.`],
    target: async () => emptyTarget(row.height, row.width, false),
  }
}

/** Its rows, and one record a sentence for the answering run. */
export async function openRefL4(data: string, images: string | null) {
  const has = (folder: string) => namesIn(folder).some((name) => dataFile.test(name))
  const expected = 'a folder with ref-l4-val and ref-l4-test (parquet, jsonl or json)'
  const folder = findFolder(data, ['Ref-L4', 'data'], has, expected)
  const rows: RefL4Row[] = []
  const names = namesIn(folder).filter((name) => dataFile.test(name))
  for (const name of names) {
    const split = dataFile.exec(name)![1]!.toLowerCase()
    for (const { row, where } of await fileRows(join(folder, name)))
      rows.push({ ...parseWith(StoredRow, row, where), split })
  }
  return {
    ...{ name: 'ref-l4' as const, source: join(folder, names[0]!), orient: false, rows, records: rows.map(recordOf) },
    images: () => findImages(folder, images, rows[0]?.file_name ?? ''),
  }
}

/** Predicted boxes by id: the authors' list of {id, pred_bbox, format}, or lines of {id, rle}; null: no mask. */
export function readBoxes(file: string): Map<string, Box | null> {
  const rows = jsonRows(file).filter(({ row }) => row['format'] !== rowsFormat)
  return new Map(rows.map(({ row, where }) => [String(row['id']), boxOf(row, where)]))
}

function boxOf({ pred_bbox: box, format, rle }: Record<string, unknown>, where: string): Box | null {
  if (rle !== undefined) {
    const found = rle === null ? null : maskBox(decodeRle(rle as Rle, where))
    return found && found[2] > 0 ? found : null
  }
  const numbers = Array.isArray(box) ? box.map(Number) : []
  if (numbers.length !== 4 || !numbers.every(Number.isFinite) || (format !== 'xywh' && format !== 'xyxy'))
    throw new Mismatch({ where, field: 'pred_bbox', expected: 'four numbers, format xywh or xyxy', got: [box, format] })
  const [x, y, right, bottom] = numbers as [number, number, number, number]
  return format === 'xywh' ? [x, y, right, bottom] : [x, y, right - x, bottom - y]
}

export function boxIou([ax, ay, aw, ah]: Box, [bx, by, bw, bh]: Box): number {
  const wide = Math.max(0, Math.min(ax + aw, bx + bw) - Math.max(ax, bx))
  const high = Math.max(0, Math.min(ay + ah, by + bh) - Math.max(ay, by))
  const union = aw * ah + bw * bh - wide * high
  return union > 0 ? Math.fround((wide * high) / union) : 0
}

const thresholds = Array.from({ length: 10 }, (_, i) => (50 + 5 * i) / 100)
const sizes = ['small', 'medium', 'large'] as const

/** By the side of a square of the same area: below 128, up to 256, larger. */
function sizeOf([, , width, height]: Box): (typeof sizes)[number] {
  const side = Math.sqrt(width * height)
  return side < 128 ? 'small' : side <= 256 ? 'medium' : 'large'
}

export function refL4Warning(rows: readonly RefL4Row[]): string | null {
  if (rows.length === published) return null
  return `ref-l4: ${rows.length} expressions in val and test, the published set has ${published}; metrics are not comparable`
}

/** Split 'all' is val and test together. */
export function scoreRefL4(
  rows: readonly RefL4Row[],
  boxes: ReadonlyMap<string, Box | null>,
  split: string,
  options: MeasureOptions,
) {
  const scored = rows
    .filter((row) => split === 'all' || row.split === split)
    .map((row) => {
      const box = boxes.get(row.id)
      const expected = 'a prediction for every expression'
      if (box === undefined) throw new Mismatch({ where: 'predictions', field: row.id, expected, got: 'none' })
      const iou = box ? boxIou(row.bbox, box) : 0
      return { id: row.id, image: row.file_name, size: sizeOf(row.bbox), box, iou }
    })
  const above = (iou: number, t: number) => (iou > Math.fround(t) ? 1 : 0)
  const mean = (iou: number) => thresholds.reduce((sum, t) => sum + above(iou, t), 0) / thresholds.length
  const measured = scored.map(({ image, iou, size }) => ({
    image,
    values: [
      ...[above(iou, 0.5), above(iou, 0.75), above(iou, 0.9), mean(iou), 1],
      ...sizes.flatMap((s) => (s === size ? [above(iou, 0.5), mean(iou), 1] : [0, 0, 0])),
    ],
  }))
  const metrics = {
    ...{ 'Acc@0.5': share(0, 4), 'Acc@0.75': share(1, 4), 'Acc@0.9': share(2, 4), mAcc: share(3, 4) },
    ...Object.fromEntries(
      sizes.flatMap((size, k) => [
        [`${size} Acc@0.5`, share(5 + 3 * k, 7 + 3 * k)],
        [`${size} mAcc`, share(6 + 3 * k, 7 + 3 * k)],
      ]),
    ),
  }
  return { metrics: measure(measured, metrics, options), rows: scored }
}
