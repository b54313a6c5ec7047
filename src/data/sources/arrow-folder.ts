// Hugging Face `save_to_disk` folders, bare shards of one, and single .arrow files.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { log, Mismatch } from '../../core/index.ts'
import { featuresOf, indexShard, type RecordIndex } from '../arrow/index-shards.ts'
import { RowReader } from '../arrow/rows.ts'
import type { DataConfig } from '../config.ts'
import { BadRecord, type RecordSource } from '../example.ts'
import { FilePool } from '../files.ts'
import { chooseColumns } from './regions.ts'
import { type RowShard, rowSource } from './row-source.ts'

const ignored = /^(cache-.*\.arrow|indices\.arrow|tmp.*)$/

export function hasArrow(folder: string): boolean {
  return readdirSync(folder).some((name) => name.endsWith('.arrow') && !ignored.test(name))
}

export function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    throw new Mismatch({ where: path, expected: 'a JSON file', got: error }, { cause: error })
  }
}

/** Shard files in the order `state.json` gives, else by name. */
function shardFiles(folder: string): { files: string[]; missing: string[]; stated: boolean } {
  const state = join(folder, 'state.json')
  if (!existsSync(state)) {
    const names = readdirSync(folder).filter((name) => name.endsWith('.arrow') && !ignored.test(name))
    return { files: names.sort().map((name) => join(folder, name)), missing: [], stated: false }
  }
  const listed = (readJson(state) as { _data_files?: { filename?: unknown }[] })._data_files
  if (!Array.isArray(listed) || listed.some((f) => typeof f?.filename !== 'string')) {
    throw new Mismatch({ where: state, field: '_data_files', expected: 'a list of {filename}', got: listed })
  }
  const names = [...new Set(listed.map((f) => f.filename as string))]
  const [there, missing] = [
    names.filter((n) => existsSync(join(folder, n))),
    names.filter((n) => !existsSync(join(folder, n))),
  ]
  return { files: there.map((name) => join(folder, name)), missing, stated: true }
}

/** `have 3 of 44 shards, missing 3 to 43`, or nothing. */
function missingWarning(folder: string, files: readonly string[], missing: readonly string[]): string[] {
  if (missing.length > 0) {
    const named = missing.slice(0, 5).join(', ') + (missing.length > 5 ? ', ...' : '')
    return [
      `${folder}: have ${files.length} of ${files.length + missing.length} shards that state.json names; missing ${named}`,
    ]
  }
  const numbered = files.map((f) => /-(\d{5})-of-(\d{5})\.\w+$/.exec(f)).filter((m) => m !== null)
  const total = Number(numbered[0]?.[2] ?? 0)
  const have = new Set(numbered.map((m) => Number(m[1])))
  const absent = Array.from({ length: total }, (_, i) => i).filter((i) => !have.has(i))
  return absent.length === 0 ? [] : [`${folder}: have ${have.size} of ${total} shards; missing ${ranges(absent)}`]
}

function ranges(numbers: readonly number[]): string {
  const parts: string[] = []
  for (let i = 0; i < numbers.length; ) {
    let end = i
    while (numbers[end + 1] === numbers[end]! + 1) end++
    parts.push(end === i ? `${numbers[i]}` : `${numbers[i]} to ${numbers[end]}`)
    i = end + 1
  }
  return parts.join(', ')
}

/** `gar-fine-grained-part1` for the known folders, else the folder's own name. */
export function sourceName(folder: string): string {
  const gar = /^(Seed|Relation|Fine-Grained)-Dataset(-Part\d+)?$/.exec(basename(folder))
  return gar ? `gar-${gar[1]}${gar[2] ?? ''}`.toLowerCase() : basename(folder)
}

async function indexed(
  files: readonly string[],
  pool: FilePool,
  config: DataConfig,
): Promise<{ good: { path: string; index: RecordIndex }[]; broken: BadRecord[] }> {
  const good: { path: string; index: RecordIndex }[] = []
  const broken: BadRecord[] = []
  const began = Date.now()
  for (const [i, path] of files.entries()) {
    try {
      good.push({ path, index: await indexShard(path, pool) })
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error
      const bad = new BadRecord('broken-shard', error.info, { cause: error })
      if (!config.skipBrokenShards) throw bad
      log.warn(`skipped: ${bad.message}`)
      broken.push(bad)
    }
    if (Date.now() - began > 2000 && i % 10 === 9) log.info(`indexed ${i + 1} of ${files.length} shards`)
  }
  return { good, broken }
}

/** A folder of Arrow shards or one shard file. */
export async function openArrow(path: string, config: DataConfig): Promise<RecordSource> {
  const single = statSync(path).isFile()
  const folder = single ? dirname(path) : path
  const { files, missing, stated } = single ? { files: [path], missing: [], stated: false } : shardFiles(path)
  const pool = new FilePool()
  const { good, broken } = await indexed(files, pool, config)
  if (good.length === 0) {
    const hint = broken[0]?.message
    throw new Mismatch({ where: path, expected: 'at least one readable shard', got: `${broken.length} broken`, hint })
  }
  const readers = good.map(({ path: p, index }) => lazily(() => RowReader.open(p, pool, index)))
  const { schema } = await readers[0]!()
  const columns = chooseColumns(
    schema.fields.map((f) => f.name),
    featuresOf(schema),
    good[0]!.path,
  )
  const shards = good.map(
    ({ path: p, index }, i): RowShard => ({
      path: p,
      label: basename(p).replace(/\.arrow$/, ''),
      size: statSync(p).size,
      rows: index.rows,
      perRow: index.perRow,
      row: async (row, names) => await (await readers[i]!()).row(row, names),
    }),
  )
  return rowSource(
    {
      name: single ? basename(path).replace(/\.arrow$/, '') : sourceName(folder),
      format: single ? 'Arrow shard' : stated ? 'Hugging Face folder (save_to_disk)' : 'bare Arrow shards',
      folder,
      columns,
      schema: schema.fields.map((f) => `${f.name}: ${f.type}`),
      warnings: [
        ...(single ? [] : missingWarning(folder, files, missing)),
        ...broken.map((b) => `skipped: ${b.message}`),
      ],
      broken,
      relation: config.relation,
      close: () => pool.close(),
    },
    shards,
  )
}

function lazily<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | null = null
  return () => {
    made ??= make()
    return made
  }
}
