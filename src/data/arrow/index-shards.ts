import { basename } from 'node:path'
import { type DataType, type Field, type Schema, Type } from 'apache-arrow'
import { cachedIndex } from '../cache.ts'
import type { FilePool } from '../files.ts'
import { type Columns, chooseColumns, recordsInRow } from '../sources/regions.ts'
import { keyColumns, rowKey } from '../sources/row-keys.ts'
import { type ShardIndex, scanShard } from './messages.ts'
import { RowReader } from './rows.ts'

export interface RecordIndex extends ShardIndex {
  /** Records per row where rows may hold several masks; null when each row is one. */
  perRow: number[] | null
  /** What names each row: row-keys.ts. */
  keys: string[]
}

/** Logical schema that Hugging Face datasets keeps beside the Arrow one. */
export function featuresOf(schema: Schema): unknown {
  const text = schema.metadata.get('huggingface')
  if (!text) return null
  try {
    return (JSON.parse(text) as { info?: { features?: unknown } }).info?.features ?? null
  } catch {
    return null // only a hint: the Arrow schema is the truth
  }
}

/** Path of the list whose length is the number of masks; null when a row has one mask by its type. */
function maskListPath(schema: Schema, mask: string): string[] | null {
  const type = schema.fields.find((f) => f.name === mask)?.type as DataType | undefined
  const isList = (t: DataType | undefined) => t?.typeId === Type.List || t?.typeId === Type.LargeList
  if (isList(type)) return [mask]
  const counts = (type?.children as Field[] | undefined)?.find((c) => c.name === 'counts')
  const item = (counts?.type as DataType | undefined)?.children?.[0]?.type as DataType | undefined
  return counts && isList(counts.type) && item?.typeId !== Type.Int ? [mask, 'counts'] : null
}

async function countRecords(reader: RowReader, columns: Columns): Promise<number[] | null> {
  const list = maskListPath(reader.schema, columns.mask)
  if (!list) return null
  const perRow: number[] = []
  for (let batch = 0; batch < reader.batchCount; batch++) {
    for (const masks of await reader.listLengths(batch, list)) {
      const text = masks > 1 ? (await reader.row(perRow.length, [columns.text]))[columns.text] : null
      perRow.push(recordsInRow(masks, text))
    }
  }
  return perRow
}

async function keysOf(reader: RowReader, columns: Columns): Promise<string[]> {
  const keys: string[] = []
  const names = keyColumns(columns)
  for (let batch = 0; batch < reader.batchCount; batch++) {
    const rows = await reader.rowsOf(batch, names).catch(() => null)
    if (rows) keys.push(...rows.map((row) => rowKey(row, columns)))
    else await oneByOne(reader, columns, batch, keys)
  }
  return keys
}

/** A row that cannot be read is named by its place; it is rejected with the reason when it is asked for. */
async function oneByOne(reader: RowReader, columns: Columns, batch: number, keys: string[]): Promise<void> {
  const end = keys.length + reader.rowsIn(batch)
  while (keys.length < end) {
    const row = await reader.row(keys.length, keyColumns(columns)).catch(() => null)
    keys.push(row ? rowKey(row, columns) : `row ${keys.length} of ${basename(reader.path)}`)
  }
}

/** The index of one shard, from the cache when the shard is unchanged. */
export async function indexShard(path: string, pool: FilePool): Promise<RecordIndex> {
  pool.watch(path)
  return await cachedIndex({ kind: 'arrow-3', files: [path] }, async () => {
    const index = await scanShard(path)
    const reader = await RowReader.open(path, pool, index)
    const names = reader.schema.fields.map((f) => f.name)
    const columns = chooseColumns(names, featuresOf(reader.schema), path)
    return { ...index, perRow: await countRecords(reader, columns), keys: await keysOf(reader, columns) }
  })
}
