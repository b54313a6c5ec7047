// The list that Sa2VA's own fine-tuning reads: annotations.json = [{image, mask: [object][polygon][x, y, ...], text: [object]}],
// images beside it in images/.
import { existsSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { isFolder, type JsonObject, sha256 } from '../../core/index.ts'
import { imageInfo } from '../../image/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import { readImageFile } from '../decode.ts'
import { asBadRecord, BadRecord, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import type { FilePool } from '../files.ts'
import { GroupedRecords } from '../grouped-records.ts'
import { jsonSpans } from '../json-spans.ts'
import { opensWith } from './coco.ts'
import { parseObject, segmentationMask } from './coco-file.ts'
import { isDamSubset } from './dam.ts'
import { nonEmpty } from './regions.ts'
import { insideFolder } from './shards.ts'

export function isPolygonList(folder: string): boolean {
  const file = join(folder, 'annotations.json')
  if (!existsSync(file) || !statSync(file).isFile() || !isFolder(join(folder, 'images'))) return false
  return opensWith(file, '[') && !isDamSubset(folder)
}

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined ? [] : [value])

/** Records of an entry: one per object if masks and texts pair up, else one, which is rejected with a reason. */
function recordsOf({ mask, text }: JsonObject): number {
  const texts = asList(text).length
  return Array.isArray(mask) && mask.length === texts && texts > 0 ? texts : 1
}

async function buildIndex(file: string, pool: FilePool): Promise<string> {
  const entries: number[] = [] // offset, length and records of each
  for await (const { offset, length } of jsonSpans(file)) {
    const fields = parseObject(await pool.read(file, offset, length), `${file}: entry ${entries.length / 3}`)
    entries.push(offset, length, recordsOf(fields))
  }
  return packNumbers(entries)
}

/** The polygons or runs of one object; a bare polygon is a list of one. */
function polygonsOf(value: unknown): unknown {
  return Array.isArray(value) && typeof value[0] === 'number' ? [value] : value
}

export async function openPolygonList(folder: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const file = join(folder, 'annotations.json')
  const images = config.imageRoot ?? join(folder, 'images')
  pool.watch(file)
  const stored = await cachedIndex({ kind: 'polygon-list-1', files: [file] }, () => buildIndex(file, pool))
  const entries = unpackNumbers(stored)
  const counts = entries.filter((_, i) => i % 3 === 2)
  const records = new GroupedRecords(counts)
  const name = basename(folder)
  const id = (index: number) => {
    const [entry, k] = records.find(index)
    return `${name}/${entry}${counts[entry]! > 1 ? `/${k}` : ''}`
  }
  const region = async (index: number, options?: RegionOptions): Promise<Region> => {
    const [entry, k] = records.find(index)
    const where = `${file}: entry ${entry}`
    const bytesOfEntry = await pool.read(file, entries[3 * entry]!, entries[3 * entry + 1]!)
    const { image, mask, text, ...meta } = parseObject(bytesOfEntry, where)
    const texts = asList(text)
    if (!Array.isArray(mask) || mask.length !== texts.length || texts.length === 0) {
      const got = `${Array.isArray(mask) ? mask.length : 'no'} masks and ${texts.length} texts`
      throw new BadRecord('turn-count', { where, field: 'text', expected: 'as many texts as masks', got })
    }
    const bytes = await imageBytes(images, image, where)
    const { turnedHeight, turnedWidth } = await imageInfo(bytes, where).catch((error) => {
      throw asBadRecord(error, 'image-unreadable', where, 'image')
    })
    const caption = texts[k]
    return {
      id: id(index),
      where,
      image: options?.image === false ? null : { bytes },
      mask: segmentationMask(polygonsOf(mask[k]), turnedHeight, turnedWidth, where),
      caption: nonEmpty(typeof caption === 'string' ? caption : '', where, `text[${k}]`),
      meta: { ...meta, source: name, image },
    }
  }
  return {
    name,
    format: "Sa2VA's fine-tuning list (annotations.json + images)",
    length: records.length,
    fingerprint: sha256(JSON.stringify([name, records.length, statSync(file).size])),
    schema: ['image, mask: [object][polygon][x, y, ...], text: [object]'],
    id,
    region,
  }
}

/** Polygons have no size: it is read from the image's header. */
async function imageBytes(folder: string, image: unknown, where: string): Promise<Uint8Array> {
  try {
    return await readImageFile(join(folder, insideFolder(image, where, 'image')), where)
  } catch (error) {
    throw asBadRecord(error, 'image-missing', where, 'image')
  }
}
