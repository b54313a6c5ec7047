import { basename } from 'node:path'
import { type DataType, type Field, type Schema, Type } from 'apache-arrow'
import { cachedIndex } from '../cache.ts'
import type { FilePool } from '../files.ts'
import { type Columns, chooseColumns, recordsInRow } from '../sources/regions.ts'
import { keyColumns, rowKey } from '../sources/row-keys.ts'
import { type ShardIndex, scanShard } from './messages.ts'
import { RowReader } from './rows.ts'

export interface RecordIndex extends ShardIndex {
  /** Records per row if rows may have several masks; null if each row is one record. */
  perRow: number[] | null
  /** The key of each row: row-keys.ts. */
  keys: string[]
}

/** The columns of a shard that hold image, mask, text, category and id. */
export function columnsOf(schema: Schema, path: string): Columns {
  const names = schema.fields.map((f) => f.name)
  return chooseColumns(names, schema.metadata.get('huggingface'), path)
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

/** A row that cannot be read gets its position as the key; it is rejected with a reason when it is used. */
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
    const columns = columnsOf(reader.schema, path)
    return { ...index, perRow: await countRecords(reader, columns), keys: await keysOf(reader, columns) }
  })
}
