import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { isFolder, Mismatch, namesIn, readJson, regularFile } from '../../core/index.ts'
import { DataConfig, type DataOptions } from '../config.ts'
import { toExample } from '../decode.ts'
import type { RecordSource, Source } from '../example.ts'
import { FilePool } from '../files.ts'
import { garFolder, hasArrow, openArrow } from './arrow-folder.ts'
import { cocoFiles, openCoco } from './coco.ts'
import { isComposed, openComposed } from './composed.ts'
import { concatSources } from './concat.ts'
import { isDamSubset, openDamSubset } from './dam.ts'
import { isGenerated, openGenerated } from './generated.ts'
import { hubSnapshot } from './hub-cache.ts'
import { openJsonl } from './jsonl.ts'
import { isMaskFolder, openMaskFolder } from './mask-folder.ts'
import { isModule, openModuleSource } from './module.ts'
import { openParquet, parquetFiles } from './parquet.ts'
import { isPolygonList, openPolygonList } from './polygon-list.ts'
import { recordIds } from './record-ids.ts'
import { isRefCoco, openRefCoco } from './refcoco.ts'
import { openSegZero } from './seg-zero.ts'
import { insideFolder, noneReadable, openEach } from './shards.ts'

/**
 * Opens a dataset and detects its format: an Arrow or Parquet shard, a folder of them, a dataset's root, RefCOCO, COCO, Sa2VA's
 * fine-tuning list, describe-anything, JSONL, images with masks, `scenes:COUNT`, `neighbours:COUNT`, `stamps:COUNT`, `emoji:COUNT`, a module
 * that exports `source`, or the id of a dataset in the Hugging Face cache. Indexes are built once and cached.
 */
export async function openSource(path: string, options: DataOptions = {}): Promise<Source> {
  const records = await openRecords(path, DataConfig.parse(options))
  if (records.length === 0) {
    await records.close?.()
    const left = Object.entries(records.leftOut ?? {}).map(([why, n]) => `${n} left out: ${why}`)
    const hint = left.length > 0 ? left.join('; ') : 'the download may be incomplete'
    throw new Mismatch({ where: path, field: 'records', expected: 'at least one', got: 0, hint })
  }
  return sourceOf(records, options)
}

/** Adds unique ids and decoding to the records of a format. */
export function sourceOf(records: RecordSource, options: DataOptions): Source {
  const { splitBy } = DataConfig.parse(options)
  const { warnings, ...ids } = recordIds(records, { splitBy })
  const region: Source['region'] = async (index, options) => {
    const found = await records.region(index, { usesNoCaption: records.withoutCaptions, ...options })
    return splitBy === 'place' ? found : { ...found, id: ids.id(index) }
  }
  return {
    ...records,
    warnings: [...(records.warnings ?? []), ...warnings],
    leftOut: records.leftOut ?? {},
    broken: records.broken ?? [],
    ...ids,
    region,
    get: async (index, rules) => await toExample(await region(index, rules), undefined, rules),
    close: async () => await records.close?.(),
  }
}

/** The files are opened in one pool, which is closed with the source, or if opening fails. */
async function openRecords(path: string, config: DataConfig): Promise<RecordSource> {
  if (isGenerated(path)) return openGenerated(path)
  if (isComposed(path)) return await openComposed(path, config)
  const pool = new FilePool()
  try {
    const source = await openFiles(path, config, pool)
    const close = async () => {
      await source.close?.()
      await pool.close()
    }
    return { ...source, close }
  } catch (error) {
    await pool.close()
    throw error
  }
}

async function openFiles(path: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  if (config.maskDir !== undefined) return await openSegZero(path, config.maskDir, pool)
  const found = existsSync(path) ? resolve(path) : hubSnapshot(path)
  if (statSync(found).isDirectory()) return await openFolder(found, config, pool)
  regularFile(found)
  return await openFile(found, config, pool)
}

async function openFile(path: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  if (path.endsWith('.arrow')) return await openArrow(path, config, pool)
  if (path.endsWith('.parquet')) return await openParquet(path, config, pool)
  if (path.endsWith('.jsonl')) return await openJsonl(path, pool)
  if (isModule(path)) return await openModuleSource(path)
  const expected = 'a file ending in .arrow, .parquet or .jsonl, or a module that exports `source`'
  const hint = 'name a folder for formats of several files'
  throw new Mismatch({ where: path, expected, got: basename(path), hint })
}

async function openFolder(folder: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  if (existsSync(join(folder, 'dataset_dict.json'))) return await openDatasetDict(folder, config, pool)
  if (hasArrow(folder) || existsSync(join(folder, 'state.json'))) return await openArrow(folder, config, pool)
  if (isRefCoco(folder)) return await openRefCoco(folder, config, pool)
  if (isDamSubset(folder)) return await openDamSubset(folder, config, pool)
  if (isPolygonList(folder)) return await openPolygonList(folder, config, pool)
  const coco = cocoFiles(folder, config.refSplit)
  if (coco) return await openCoco(folder, coco, config, pool)
  const jsonl = namesIn(folder, /\.jsonl$/)
  if (jsonl.length > 0) return await openAll(folder, jsonl, config, (path) => openJsonl(path, pool))
  if (parquetFiles(folder, config).length > 0) return await openParquet(folder, config, pool)
  return isMaskFolder(folder) ? await openMaskFolder(folder) : await openRoot(folder, config, pool)
}

/** A root whose children are the parts: Grasp-Any-Region, describe-anything, or the latter nested once more. */
async function openRoot(folder: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const children = readdirSync(folder).filter((name) => !name.startsWith('.') && isFolder(join(folder, name)))
  const gar = children.filter((name) => garFolder.test(name))
  gar.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })) // Part10 after Part9
  if (gar.length > 0) return await openAll(folder, gar, config, (path) => openArrow(path, config, pool))
  const dam = children.filter((name) => isDamSubset(join(folder, name))).sort()
  if (dam.length > 0) return await openAll(folder, dam, config, (path) => openDamSubset(path, config, pool))
  const nested = ['data', basename(folder)].find((name) => children.includes(name))
  if (nested !== undefined) return await openFolder(join(folder, nested), config, pool)
  const got = readdirSync(folder).slice(0, 8).join(', ') || 'an empty folder'
  const expected =
    'Arrow or Parquet shards, JSONL, RefCOCO (instances.json + refs), COCO, annotations.json + images, images + masks, describe-anything or Grasp-Any-Region'
  throw new Mismatch({ where: folder, expected, got })
}

async function openAll(
  folder: string,
  names: readonly string[],
  config: DataConfig,
  open: (path: string) => Promise<RecordSource>,
): Promise<RecordSource> {
  const paths = names.map((name) => join(folder, name))
  const { good, broken } = await openEach(paths, config, open)
  if (good.length === 0) throw noneReadable(folder, 'part', broken)
  return good.length === 1 && broken.length === 0 ? good[0]! : concatSources(basename(folder), good, broken)
}

/** The split of a DatasetDict that the settings name, or its only one. */
async function openDatasetDict(folder: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const file = join(folder, 'dataset_dict.json')
  const { splits } = (readJson(file) ?? {}) as { splits?: unknown }
  if (!Array.isArray(splits))
    throw new Mismatch({ where: file, field: 'splits', expected: 'a list of names', got: splits })
  const name = splits.includes(config.refSplit) ? config.refSplit : splits.length === 1 ? String(splits[0]) : null
  const expected = `one of ${splits.join(', ')}`
  if (name === null) throw new Mismatch({ where: file, field: 'refSplit', expected, got: config.refSplit })
  const split = join(folder, insideFolder(name, file, 'splits'))
  if (isFolder(split)) return await openArrow(split, config, pool)
  const hint = 'the download may be incomplete'
  throw new Mismatch({ where: file, field: 'splits', expected: `a folder ${name} next to it`, got: 'none', hint })
}
