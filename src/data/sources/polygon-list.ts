// The list that Sa2VA's own fine-tuning reads: annotations.json = [{image, mask: [object][polygon][x, y, ...], text: [object]}],
// images beside it in images/.
import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { sha256 } from '../../core/index.ts'
import { imageInfo } from '../../image/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import { readImageFile } from '../decode.ts'
import { asBadRecord, BadRecord, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import { FilePool } from '../files.ts'
import { jsonSpans } from '../json-spans.ts'
import { opensWith } from './coco.ts'
import { type Fields, parseObject, segmentationMask } from './coco-file.ts'
import { nonEmpty } from './regions.ts'
import { lastAtMost } from './row-source.ts'
import { insideFolder } from './shards.ts'

export function isPolygonList(folder: string): boolean {
  const file = join(folder, 'annotations.json')
  const images = join(folder, 'images')
  if (!existsSync(file) || !statSync(file).isFile() || !existsSync(images) || !statSync(images).isDirectory())
    return false
  return opensWith(file, '[') && !readdirSync(images).some((name) => name.endsWith('.tar'))
}

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined ? [] : [value])

/** Records of an entry: one an object when masks and texts pair up, else one that is rejected with its reason. */
function recordsOf({ mask, text }: Fields): number {
  const texts = asList(text).length
  return Array.isArray(mask) && mask.length === texts && texts > 0 ? texts : 1
}

async function buildIndex(file: string, pool: FilePool): Promise<string> {
  const entries: number[] = [] // offset, length and records of each
  for await (const { offset, length } of jsonSpans(file)) {
    const fields = parseObject(await pool.read(file, offset, length), `${file}: entry ${entries.length / 3}`)
    entries.push(offset, length, recordsOf(fields))
  }
  return packNumbers(Float64Array.from(entries))
}

/** One object: its polygons, or runs; a bare polygon counts for a list of one. */
function polygonsOf(value: unknown): unknown {
  return Array.isArray(value) && typeof value[0] === 'number' ? [value] : value
}

class PolygonList implements RecordSource {
  readonly name: string
  readonly format = "Sa2VA's fine-tuning list (annotations.json + images)"
  readonly length: number
  readonly fingerprint: string
  readonly schema = ['image, mask: [object][polygon][x, y, ...], text: [object]']
  readonly warnings: string[] = []
  readonly leftOut = {}
  readonly broken: BadRecord[] = []
  readonly #file: string
  readonly #images: string
  readonly #pool: FilePool
  readonly #entries: Float64Array
  /** First record of each entry, and the end. */
  readonly #starts: Uint32Array

  constructor(folder: string, images: string, entries: Float64Array, pool: FilePool) {
    this.name = basename(folder)
    this.#file = join(folder, 'annotations.json')
    this.#images = images
    this.#pool = pool
    this.#entries = entries
    const n = entries.length / 3
    this.#starts = new Uint32Array(n + 1)
    for (let i = 0; i < n; i++) this.#starts[i + 1] = this.#starts[i]! + entries[3 * i + 2]!
    this.length = this.#starts[n]!
    this.fingerprint = sha256(JSON.stringify([this.name, this.length, statSync(this.#file).size]))
  }

  id(index: number): string {
    const [entry, k] = this.#place(index)
    return `${this.name}/${entry}${this.#entries[3 * entry + 2]! > 1 ? `/${k}` : ''}`
  }

  async region(index: number, options?: RegionOptions): Promise<Region> {
    const [entry, k] = this.#place(index)
    const where = `${this.#file}: entry ${entry}`
    const [offset, length] = [this.#entries[3 * entry]!, this.#entries[3 * entry + 1]!]
    const { image, mask, text, ...meta } = parseObject(await this.#pool.read(this.#file, offset, length), where)
    const texts = asList(text)
    if (!Array.isArray(mask) || mask.length !== texts.length || texts.length === 0) {
      const got = `${Array.isArray(mask) ? mask.length : 'no'} masks and ${texts.length} texts`
      throw new BadRecord('turn-count', { where, field: 'text', expected: 'as many texts as masks', got })
    }
    const bytes = await this.#bytes(image, where)
    const { turnedHeight, turnedWidth } = await imageInfo(bytes, where).catch((error) => {
      throw asBadRecord(error, 'image-unreadable', where, 'image')
    })
    const caption = texts[k]
    return {
      id: this.id(index),
      where,
      image: options?.image === false ? null : { bytes },
      mask: segmentationMask(polygonsOf(mask[k]), turnedHeight, turnedWidth, where),
      caption: nonEmpty(typeof caption === 'string' ? caption : '', where, `text[${k}]`),
      meta: { ...meta, source: this.name, image },
    }
  }

  async close(): Promise<void> {
    await this.#pool.close()
  }

  #place(index: number): [number, number] {
    const entry = lastAtMost(this.#starts, index)
    return [entry, index - this.#starts[entry]!]
  }

  /** Polygons carry no size: it is read from the image's header. */
  async #bytes(image: unknown, where: string): Promise<Uint8Array> {
    try {
      return await readImageFile(join(this.#images, insideFolder(image, where, 'image')), where)
    } catch (error) {
      throw asBadRecord(error, 'image-missing', where, 'image')
    }
  }
}

export async function openPolygonList(folder: string, config: DataConfig): Promise<RecordSource> {
  return await FilePool.opening(async (pool) => {
    const file = join(folder, 'annotations.json')
    pool.watch(file)
    const stored = await cachedIndex({ kind: 'polygon-list-1', files: [file] }, () => buildIndex(file, pool))
    return new PolygonList(folder, config.imageRoot ?? join(folder, 'images'), unpackNumbers(stored), pool)
  })
}
