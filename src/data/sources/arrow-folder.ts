// Hugging Face `save_to_disk` folders, bare shards of one, and single .arrow files.
import { existsSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { Mismatch, namesIn, readJson } from '../../core/index.ts'
import { columnsOf, indexShard, type RecordIndex } from '../arrow/index-shards.ts'
import { RowReader } from '../arrow/rows.ts'
import type { DataConfig } from '../config.ts'
import type { RecordSource } from '../example.ts'
import type { FilePool } from '../files.ts'
import type { Columns } from './regions.ts'
import { oneByOne, type RowShard, rowSource } from './row-source.ts'
import { insideFolder, missingShards, noneReadable, openEach } from './shards.ts'

const ignored = /^(cache-.*\.arrow|indices\.arrow|tmp.*)$/

function arrowNames(folder: string): string[] {
  return namesIn(folder, /\.arrow$/).filter((name) => !ignored.test(name))
}

export function hasArrow(folder: string): boolean {
  return arrowNames(folder).length > 0
}

/** The files of one split. `load_dataset` writes the split into the name: `NAME-train.arrow`, `NAME-train-00000-of-00002.arrow`. */
function ofSplit(folder: string, split: string): string[] {
  const names = arrowNames(folder)
  const splitOf = (name: string) => /-([^-]+?)(?:-\d{5}-of-\d{5})?\.arrow$/.exec(name)?.[1]
  const wanted = names.filter((name) => splitOf(name) === split)
  const splits = [...new Set(names.map(splitOf))]
  const prepared = existsSync(join(folder, 'dataset_info.json')) && splits.every((s) => s !== undefined)
  if (wanted.length > 0 || !prepared || splits.length === 1) return wanted.length > 0 ? wanted : names
  throw new Mismatch({ where: folder, field: 'refSplit', expected: `one of ${splits.join(', ')}`, got: split })
}

/** Shard files in the order `state.json` gives, else by name. */
function shardFiles(folder: string, config: DataConfig): { files: string[]; missing: string[]; stated: boolean } {
  const state = join(folder, 'state.json')
  if (!existsSync(state)) {
    const names = ofSplit(folder, config.refSplit)
    return { files: names.map((name) => join(folder, name)), missing: [], stated: false }
  }
  const listed = (readJson(state) as { _data_files?: { filename?: unknown }[] } | null)?._data_files
  if (!Array.isArray(listed) || listed.some((f) => typeof f?.filename !== 'string')) {
    throw new Mismatch({ where: state, field: '_data_files', expected: 'a list of {filename}', got: listed })
  }
  const names = [...new Set(listed.map((f) => insideFolder(f.filename as string, state, '_data_files')))]
  const missing = names.filter((name) => !existsSync(join(folder, name)))
  const files = names.filter((name) => !missing.includes(name)).map((name) => join(folder, name))
  return { files, missing, stated: true }
}

/** Folders of Grasp-Any-Region. */
export const garFolder = /^(Seed|Relation|Fine-Grained)-Dataset(-Part\d+)?$/

/** `gar-fine-grained-part1` for Grasp-Any-Region, NAME in a `datasets` cache, else the folder's name. */
function sourceName(folder: string): string {
  const gar = garFolder.exec(basename(folder))
  if (gar) return `gar-${gar[1]}${gar[2] ?? ''}`.toLowerCase()
  return /___([^/]+)\/[^/]+\/[^/]+\/[^/]+$/.exec(folder)?.[1] ?? basename(folder)
}

interface Opened {
  path: string
  index: RecordIndex
  columns: Columns
}

/** A shard whose every message was checked and whose columns are those of a dataset. */
async function openShard(path: string, pool: FilePool): Promise<Opened> {
  const index = await indexShard(path, pool)
  const { schema } = await RowReader.open(path, pool, index)
  return { path, index, columns: columnsOf(schema, path) }
}

/** A folder of Arrow shards or one shard file. */
export async function openArrow(path: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const single = statSync(path).isFile()
  const folder = single ? dirname(path) : path
  const { files, missing, stated } = single ? { files: [path], missing: [], stated: false } : shardFiles(path, config)
  const { good, broken } = await openEach(files, config, (file) => openShard(file, pool))
  if (good.length === 0) throw noneReadable(path, 'shard', broken)
  const readers = good.map(({ path: p, index }) => lazily(() => RowReader.open(p, pool, index)))
  const { schema } = await readers[0]!()
  const rowOf = async (i: number, row: number, names: readonly string[]) => await (await readers[i]!()).row(row, names)
  const shards = good.map(
    ({ path: p, index, columns: { image } }, i): RowShard => ({
      path: p,
      label: basename(p).replace(/\.arrow$/, ''),
      size: statSync(p).size,
      rows: index.rows,
      perRow: index.perRow,
      keys: index.keys,
      row: (row, names) => rowOf(i, row, names),
      images: (rows) => oneByOne(rows, async (row) => (await rowOf(i, row, [image]))[image]),
    }),
  )
  const complete = missing.length === 0 && broken.length === 0
  return await rowSource(
    {
      name: single ? basename(path).replace(/\.arrow$/, '') : sourceName(folder),
      format: single ? 'Arrow shard' : stated ? 'Hugging Face folder (save_to_disk)' : 'bare Arrow shards',
      folder,
      columns: good[0]!.columns,
      schema: schema.fields.map((f) => `${f.name}: ${f.type}`),
      warnings: [
        ...(single ? [] : missingShards(folder, files, missing)),
        ...(stated && complete ? rowCountWarning(folder, shards) : []),
        ...broken.map((b) => `skipped: ${b.message}`),
      ],
      broken,
      relation: config.relation,
    },
    shards,
  )
}

/** A stream that ends between two messages looks complete; the row count in dataset_info.json shows the difference. */
function rowCountWarning(folder: string, shards: readonly RowShard[]): string[] {
  const file = join(folder, 'dataset_info.json')
  if (!existsSync(file)) return []
  const { splits } = (readJson(file) ?? {}) as { splits?: Record<string, { num_examples?: unknown }> | null }
  const counts = Object.values(splits ?? {}).map((split) => split?.num_examples)
  const rows = shards.reduce((sum, shard) => sum + shard.rows, 0)
  if (counts.length === 0 || counts.some((n) => n === rows || typeof n !== 'number')) return []
  return [
    `${folder}: ${rows} rows in the shards, ${counts.join(' or ')} in dataset_info.json: selected later, or a shard is cut`,
  ]
}

function lazily<T>(make: () => Promise<T>): () => Promise<T> {
  let value: Promise<T> | undefined
  return () => (value ??= make())
}
