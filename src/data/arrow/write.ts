// Arrow shards in the layout of Grasp-Any-Region, as `save_to_disk` writes them: IPC stream, at most 100 rows a batch,
// no compression, state.json and dataset_info.json beside them.
import { randomBytes } from 'node:crypto'
import { createWriteStream, readdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import {
  Binary,
  Field,
  Int64,
  List,
  type RecordBatch,
  RecordBatchStreamWriter,
  Schema,
  Struct,
  Table,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import { atomicWriteJson, Mismatch, makeFolder } from '../../core/index.ts'

export interface GarRow {
  /** Encoded bytes, or a path relative to the folder. */
  image: { bytes: Uint8Array | null; path: string | null }
  conversations: { from: string; value: string }[]
  mask_rle: { counts: string; size: [number, number] }
  catagory: string[]
}

const text = (name: string) => new Field(name, new Utf8(), true)
const turns = new Struct([text('from'), text('value')])
const types = {
  image: new Struct([new Field('bytes', new Binary(), true), text('path')]),
  conversations: new List(new Field('item', turns, true)),
  mask_rle: new Struct([text('counts'), new Field('size', new List(new Field('item', new Int64(), true)), true)]),
  catagory: new List(text('item')),
}

const value = (dtype: string) => ({ dtype, _type: 'Value' })
const features = {
  image: { _type: 'Image' },
  conversations: [{ from: value('string'), value: value('string') }],
  mask_rle: { counts: value('string'), size: { feature: value('int64'), _type: 'List' } },
  catagory: { feature: value('string'), _type: 'List' },
}

export const garSchema = new Schema(
  Object.entries(types).map(([name, type]) => new Field(name, type, true)),
  new Map([['huggingface', JSON.stringify({ info: { features } })]]),
)

function toBatch(rows: readonly GarRow[]): RecordBatch {
  const stored = rows.map((row) => ({ ...row, mask_rle: { ...row.mask_rle, size: row.mask_rle.size.map(BigInt) } }))
  const columnOf = (name: keyof GarRow) => {
    const values: unknown[] = stored.map((row) => row[name])
    return [name, vectorFromArray(values as never[], types[name] as never)]
  }
  const columns = Object.fromEntries((Object.keys(types) as (keyof GarRow)[]).map(columnOf))
  return new Table(garSchema, columns as never).batches[0]! as RecordBatch
}

/** Writes rows into one shard, batch by batch; one batch is in memory at a time. */
async function writeShard(path: string, rows: AsyncIterable<GarRow>, batchRows: number): Promise<number> {
  let written = 0
  async function* batches(): AsyncGenerator<RecordBatch> {
    let pending: GarRow[] = []
    for await (const row of rows) {
      written++
      if (pending.push(row) < batchRows) continue
      yield toBatch(pending)
      pending = []
    }
    if (pending.length > 0) yield toBatch(pending)
  }
  const encoder = RecordBatchStreamWriter.throughNode({ autoDestroy: false })
  await pipeline(batches, encoder, createWriteStream(path))
  return written
}

export interface GarWriteOptions {
  /** A new shard begins when the images of one exceed this many bytes. */
  shardBytes?: number
  /** Rows of a record batch; Hugging Face datasets uses 100 for images. */
  batchRows?: number
}

/** A folder that `load_from_disk` and our own reader open. Refuses a folder that already holds shards. */
export async function writeGarArrow(
  folder: string,
  rows: AsyncIterable<GarRow>,
  options: GarWriteOptions = {},
): Promise<number> {
  const { shardBytes = 500_000_000, batchRows = 100 } = options
  makeFolder(folder)
  if (readdirSync(folder).some((name) => name.endsWith('.arrow'))) {
    const [expected, got] = ['a folder without Arrow shards', 'one that has some']
    throw new Mismatch({ where: folder, expected, got, hint: 'choose another --out' })
  }
  const source = rows[Symbol.asyncIterator]()
  let pending = await source.next()
  if (pending.done) throw new Mismatch({ where: folder, field: 'rows', expected: 'at least one', got: 0 })
  let total = 0
  let shards = 0
  async function* nextShard(): AsyncGenerator<GarRow> {
    for (let bytes = 0; !pending.done && bytes < shardBytes; pending = await source.next()) {
      bytes += pending.value.image.bytes?.length ?? 0
      yield pending.value
    }
  }
  while (!pending.done) total += await writeShard(join(folder, `part-${shards++}.tmp`), nextShard(), batchRows)
  const names = Array.from({ length: shards }, (_, i) => `data-${pad(i)}-of-${pad(shards)}.arrow`)
  names.forEach((name, i) => void renameSync(join(folder, `part-${i}.tmp`), join(folder, name)))
  writeSidecars(folder, names, total)
  return total
}

function pad(n: number): string {
  return String(n).padStart(5, '0')
}

function writeSidecars(folder: string, names: readonly string[], total: number): void {
  atomicWriteJson(join(folder, 'state.json'), {
    _data_files: names.map((filename) => ({ filename })),
    _fingerprint: randomBytes(8).toString('hex'),
    _format_columns: null,
    _format_kwargs: {},
    _format_type: null,
    _output_all_columns: false,
    _split: 'train',
  })
  atomicWriteJson(join(folder, 'dataset_info.json'), {
    citation: '',
    description: '',
    features,
    homepage: '',
    license: '',
    splits: { train: { name: 'train', num_bytes: 0, num_examples: total, dataset_name: 'roundtrip' } },
  })
}
