// Checks the counts and offsets in a Parquet file's footer against each other and against the file, because the decoder trusts them.
import type { ColumnMetaData, FileMetaData, RowGroup, SchemaElement } from 'hyparquet'
import { Mismatch } from '../../core/index.ts'
import { damagedHint } from '../files.ts'

/** One column of one row group: where its pages are and how their levels are packed. */
export interface Chunk {
  path: string
  group: number
  begin: number
  end: number
  codec: string
  type: string
  rows: number
  values: number
  maxRepetition: number
  maxDefinition: number
  /** Place of the list of its pages; length 0 when the file has none. */
  index: { begin: number; length: number }
}

/** Long runs of one value take few bytes, but not less than this many values a byte beyond the first million. */
const valuesPerByte = 1000

/** Throws unless rows, values and offsets agree; returns the chunks sorted by their first byte. */
export function checkMetadata(metadata: FileMetaData, fileSize: number, where: string): Chunk[] {
  const fail = (field: string, expected: string, got: unknown): never => {
    throw new Mismatch({ where, field, expected, got: String(got), hint: damagedHint })
  }
  const levels = levelsOf(metadata.schema, fail)
  let rows = 0
  const chunks: Chunk[] = []
  for (const [i, group] of metadata.row_groups.entries()) {
    const field = `row group ${i}`
    if (!isCount(group.num_rows)) fail(field, 'a number of rows', group.num_rows)
    rows += Number(group.num_rows)
    if (group.columns.length !== levels.size) fail(field, `${levels.size} columns`, group.columns.length)
    for (const column of group.columns) chunks.push(chunkOf(column, group, i, levels, fileSize, fail))
  }
  if (BigInt(rows) !== BigInt(metadata.num_rows))
    fail('num_rows', `the ${rows} rows of its row groups`, metadata.num_rows)
  return chunks.sort((a, b) => a.begin - b.begin)
}

type Fail = (field: string, expected: string, got: unknown) => never

function chunkOf(
  column: RowGroup['columns'][number],
  group: RowGroup,
  number: number,
  levels: ReadonlyMap<string, Levels>,
  fileSize: number,
  fail: Fail,
): Chunk {
  const meta = column.meta_data
  if (!meta) return fail(`row group ${number}`, 'columns with metadata', 'one without')
  const path = meta.path_in_schema.join('.')
  const field = `row group ${number}: ${path}`
  const level = levels.get(path)
  if (!level) return fail(field, 'a column of the schema', 'another')
  const begin = Number(meta.dictionary_page_offset || meta.data_page_offset)
  const end = begin + Number(meta.total_compressed_size)
  if (!(begin >= 4 && Number.isSafeInteger(end) && begin <= end && end <= fileSize))
    fail(field, `pages inside the file of ${fileSize} bytes`, `${meta.total_compressed_size} bytes at ${begin}`)
  checkValues(meta, group, level, field, end - begin, fail)
  const index = { begin: Number(column.offset_index_offset ?? 0), length: Number(column.offset_index_length ?? 0) }
  if (!(index.begin >= 0 && index.length >= 0 && index.begin + index.length <= fileSize))
    fail(field, 'a page index inside the file', `${index.length} bytes at ${index.begin}`)
  const { codec, type } = meta
  const counts = { rows: Number(group.num_rows), values: Number(meta.num_values) }
  return { path, group: number, begin, end, codec, type, ...counts, index, ...level }
}

function checkValues(
  meta: ColumnMetaData,
  group: RowGroup,
  level: Levels,
  field: string,
  bytes: number,
  fail: Fail,
): void {
  const values = meta.num_values
  if (!isCount(values)) fail(field, 'a number of values', values)
  const asRows = level.maxRepetition === 0 ? values === group.num_rows : values >= group.num_rows
  if (!asRows) fail(field, `the values of ${group.num_rows} rows`, values)
  if (Number(values) > Math.max(1_000_000, valuesPerByte * bytes))
    fail(field, `values that ${bytes} bytes can hold`, values)
}

function isCount(value: unknown): boolean {
  return typeof value === 'bigint' && value >= 0n && value <= BigInt(Number.MAX_SAFE_INTEGER)
}

interface Levels {
  maxRepetition: number
  maxDefinition: number
}

const maxDepth = 64

/** Levels of every leaf by its path. Rejects a list of elements that does not form a tree. */
function levelsOf(schema: readonly SchemaElement[], fail: Fail): Map<string, Levels> {
  const leaves = new Map<string, Levels>()
  let next = 0
  const visit = (path: readonly string[], above: Levels, depth: number): void => {
    const element = schema[next++]
    if (!element || depth > maxDepth) fail('schema', `a tree of ${schema.length} elements`, 'another')
    if (depth > 0 && typeof element.name !== 'string') fail('schema', 'elements with names', element.name)
    const here = depth === 0 ? [] : [...path, element.name]
    const levels: Levels = {
      maxRepetition: above.maxRepetition + (depth > 0 && element.repetition_type === 'REPEATED' ? 1 : 0),
      maxDefinition: above.maxDefinition + (depth > 0 && element.repetition_type !== 'REQUIRED' ? 1 : 0),
    }
    const children = element.num_children ?? 0
    if (!(Number.isInteger(children) && children >= 0 && children <= schema.length))
      fail('schema', 'a number of children', children)
    for (let i = 0; i < children; i++) visit(here, levels, depth + 1)
    if (children > 0 || depth === 0) return
    if (leaves.has(here.join('.'))) fail('schema', 'each column once', here.join('.'))
    leaves.set(here.join('.'), levels)
  }
  visit([], { maxRepetition: 0, maxDefinition: 0 }, 0)
  if (next !== schema.length) fail('schema', `a tree of ${schema.length} elements`, `one of ${next}`)
  return leaves
}
