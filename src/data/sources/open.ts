import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { Mismatch, readJson, regularFile } from '../../core/index.ts'
import { DataConfig, type DataOptions } from '../config.ts'
import { toExample } from '../decode.ts'
import type { RecordSource, Source } from '../example.ts'
import { hasArrow, openArrow } from './arrow-folder.ts'
import { cocoFiles, openCoco } from './coco.ts'
import { isComposed, openComposed } from './composed.ts'
import { concatSources } from './concat.ts'
import { isDamSubset, openDamSubset } from './dam.ts'
import { hubSnapshot } from './hub-cache.ts'
import { openJsonl } from './jsonl.ts'
import { isMaskFolder, openMaskFolder } from './mask-folder.ts'
import { isModule, openModuleSource } from './module.ts'
import { isNeighbours, openNeighbours } from './neighbours.ts'
import { openParquet, parquetFiles } from './parquet.ts'
import { isPolygonList, openPolygonList } from './polygon-list.ts'
import { type RecordIds, recordIds } from './record-ids.ts'
import { isRefCoco, openRefCoco } from './refcoco.ts'
import { isScenes, openScenes } from './scenes.ts'
import { openSegZero } from './seg-zero.ts'
import { insideFolder, noneReadable, openEach } from './shards.ts'

const garFolder = /^(Seed|Relation|Fine-Grained)-Dataset(-Part\d+)?$/

/**
 * Opens whatever lies at a path: an Arrow or Parquet shard, a folder of them, a dataset's root, RefCOCO, COCO, Sa2VA's
 * fine-tuning list, describe-anything, JSONL, images with masks, `scenes:COUNT`, `neighbours:COUNT`, `stamps:COUNT`, `emoji:COUNT`, a module
 * that exports `source`, or the id of a dataset in the Hugging Face cache. Indexes are created once and kept.
 */
export async function openSource(path: string, options: DataOptions = {}): Promise<Source> {
  const records = await openRecords(path, DataConfig.parse(options))
  if (records.length === 0) {
    await records.close()
    const left = Object.entries(records.leftOut).map(([why, n]) => `${n} left out: ${why}`)
    const hint = left.length > 0 ? `${left.join('; ')} (setting data.relation)` : 'the download may be incomplete'
    throw new Mismatch({ where: path, field: 'records', expected: 'at least one', got: 0, hint })
  }
  return sourceOf(records, options)
}

/** Records of a format with ids that are used once, and with decoding. */
export function sourceOf(records: RecordSource, options: DataOptions): Source {
  const config = DataConfig.parse(options)
  return withDecoding(records, recordIds(records, config), config)
}

function withDecoding(
  records: RecordSource,
  { warnings, ...ids }: RecordIds,
  { splitBy }: Pick<DataConfig, 'splitBy'>,
): Source {
  const region: Source['region'] = async (index, options) => {
    const found = await records.region(index, options)
    return splitBy === 'place' ? found : { ...found, id: ids.id(index) }
  }
  return {
    name: records.name,
    format: records.format,
    length: records.length,
    fingerprint: records.fingerprint,
    schema: records.schema,
    warnings: [...records.warnings, ...warnings],
    leftOut: records.leftOut,
    broken: records.broken,
    withoutCaptions: records.withoutCaptions,
    ...ids,
    region,
    get: async (index) => await toExample(await region(index)),
    close: () => records.close(),
  }
}

async function openRecords(path: string, config: DataConfig): Promise<RecordSource> {
  if (isScenes(path)) return openScenes(path)
  if (isNeighbours(path)) return openNeighbours(path)
  if (isComposed(path)) return await openComposed(path, config)
  if (config.maskDir !== undefined) return await openSegZero(path, config.maskDir)
  const found = existsSync(path) ? resolve(path) : hubSnapshot(path)
  if (statSync(found).isDirectory()) return await openFolder(found, config)
  regularFile(found)
  return await openFile(found, config)
}

async function openFile(path: string, config: DataConfig): Promise<RecordSource> {
  if (path.endsWith('.arrow')) return await openArrow(path, config)
  if (path.endsWith('.parquet')) return await openParquet(path, config)
  if (path.endsWith('.jsonl')) return await openJsonl(path)
  if (isModule(path)) return await openModuleSource(path)
  const hint = 'name a folder for formats of several files'
  throw new Mismatch({
    where: path,
    expected: 'a file ending in .arrow, .parquet or .jsonl, or a module that exports `source`',
    got: basename(path),
    hint,
  })
}

async function openFolder(folder: string, config: DataConfig): Promise<RecordSource> {
  if (existsSync(join(folder, 'dataset_dict.json'))) return await openDatasetDict(folder, config)
  if (hasArrow(folder) || existsSync(join(folder, 'state.json'))) return await openArrow(folder, config)
  if (isRefCoco(folder)) return await openRefCoco(folder, config)
  if (isDamSubset(folder)) return await openDamSubset(folder, config)
  if (isPolygonList(folder)) return await openPolygonList(folder, config)
  const coco = cocoFiles(folder, config.refSplit)
  if (coco) return await openCoco(folder, coco, config)
  const jsonl = readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
  if (jsonl.length > 0) return await openAll(folder, jsonl, config, (p) => openJsonl(p))
  if (parquetFiles(folder, config).length > 0) return await openParquet(folder, config)
  return isMaskFolder(folder) ? await openMaskFolder(folder) : await openRoot(folder, config)
}

/** False also for a link that leads nowhere or to itself. */
function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}

/** A root whose children are the parts: Grasp-Any-Region, describe-anything, or the latter nested once more. */
async function openRoot(folder: string, config: DataConfig): Promise<RecordSource> {
  const children = readdirSync(folder).filter((name) => !name.startsWith('.') && isFolder(join(folder, name)))
  const gar = children.filter((name) => garFolder.test(name)).sort(byPart)
  if (gar.length > 0) return await openAll(folder, gar, config, (p) => openArrow(p, config))
  const dam = children.filter((name) => isDamSubset(join(folder, name))).sort()
  if (dam.length > 0) return await openAll(folder, dam, config, (p) => openDamSubset(p, config))
  const nested = ['data', basename(folder)].find((name) => children.includes(name))
  if (nested !== undefined) return await openFolder(join(folder, nested), config)
  const got = readdirSync(folder).slice(0, 8).join(', ') || 'an empty folder'
  const expected =
    'Arrow or Parquet shards, JSONL, RefCOCO (instances.json + refs), COCO, annotations.json + images, images + masks, describe-anything or Grasp-Any-Region'
  throw new Mismatch({ where: folder, expected, got })
}

/** Part10 after Part9. */
function byPart(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true })
}

async function openAll(
  folder: string,
  names: readonly string[],
  config: DataConfig,
  open: (path: string) => Promise<RecordSource>,
): Promise<RecordSource> {
  const paths = names.map((name) => join(folder, name))
  const opened: RecordSource[] = []
  const tracked = async (path: string) => {
    const part = await open(path)
    opened.push(part)
    return part
  }
  const { good, broken } = await openEach(paths, config, tracked).catch(async (error) => {
    for (const part of opened) await part.close()
    throw error
  })
  if (good.length === 0) throw noneReadable(folder, 'part', broken)
  return good.length === 1 && broken.length === 0 ? good[0]! : concatSources(basename(folder), good, broken)
}

/** The split of a DatasetDict that the settings name, or its only one. */
async function openDatasetDict(folder: string, config: DataConfig): Promise<RecordSource> {
  const file = join(folder, 'dataset_dict.json')
  const { splits } = (readJson(file) ?? {}) as { splits?: unknown }
  if (!Array.isArray(splits))
    throw new Mismatch({ where: file, field: 'splits', expected: 'a list of names', got: splits })
  const name = splits.includes(config.refSplit) ? config.refSplit : splits.length === 1 ? String(splits[0]) : null
  if (name === null) {
    throw new Mismatch({
      where: file,
      field: 'refSplit',
      expected: `one of ${splits.join(', ')}`,
      got: config.refSplit,
    })
  }
  const split = join(folder, insideFolder(name, file, 'splits'))
  if (isFolder(split)) return await openArrow(split, config)
  const hint = 'the download may be incomplete'
  throw new Mismatch({ where: file, field: 'splits', expected: `a folder ${name} next to it`, got: 'none', hint })
}
