// nvidia/describe-anything-dataset: SUBSET/annotations.json (sample id -> regions) beside SUBSET/images/*.tar.
import { existsSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { readPickle } from '../../checkpoint/index.ts'
import { type JsonObject, namesIn, parseJson, sha256 } from '../../core/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import { BadRecord, type ImageData, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import type { FilePool } from '../files.ts'
import { GroupedRecords } from '../grouped-records.ts'
import { jsonSpans } from '../json-spans.ts'
import { PackedStrings } from '../strings.ts'
import { indexTar, type TarMember } from '../tar.ts'
import { maskOf, nonEmpty, withCategory } from './regions.ts'
import { openEach } from './shards.ts'

interface SampleIndex {
  keys: string[]
  /** Per sample: offset, length, number of regions, in turn. */
  samples: string
}

type Member = TarMember & { tar: string }

/** Members of the subset's archives by name; the first archive that has a name keeps it. */
type Members = Map<string, Member>

/** A region list, one region, or an object that holds the list. */
function regionsOf(value: unknown): JsonObject[] {
  if (Array.isArray(value)) return value as JsonObject[]
  const fields = (value ?? {}) as JsonObject
  for (const name of ['regions', 'items', 'objects', 'annotations', 'list']) {
    if (Array.isArray(fields[name])) return fields[name] as JsonObject[]
  }
  return [fields]
}

const keyOf = (member: string) => basename(member).split('.')[0]!

export function isDamSubset(folder: string): boolean {
  return namesIn(join(folder, 'images'), /\.tar$/).length > 0
}

async function indexTars(folder: string, pool: FilePool, config: DataConfig) {
  const members: Members = new Map()
  const images = join(folder, 'images')
  const tars = namesIn(images, /\.tar$/).map((name) => join(images, name))
  const { good, broken } = await openEach(tars, config, async (tar) => {
    pool.watch(tar)
    return { tar, found: await cachedIndex({ kind: 'tar-1', files: [tar] }, () => indexTar(tar, pool)) }
  })
  for (const { tar, found } of good) {
    for (const member of found) {
      const base = basename(member.name)
      if (!members.has(base)) members.set(base, { ...member, tar })
      members.set(`${basename(tar)}/${base}`, { ...member, tar })
    }
  }
  return { members, broken }
}

async function indexAnnotations(path: string, pool: FilePool): Promise<SampleIndex> {
  const keys: string[] = []
  const samples: number[] = []
  for await (const { key, offset, length } of jsonSpans(path)) {
    const value = parse(await pool.read(path, offset, length), `${path}: ${key}`)
    keys.push(key ?? String(keys.length))
    samples.push(offset, length, regionsOf(value).length)
  }
  return { keys, samples: packNumbers(samples) }
}

const parse = (bytes: Buffer, where: string) => parseJson(bytes.toString('utf8'), where, 'JSON')

/** Samples whose regions are in the archives' pickles, for downloads without annotations.json. */
async function openPickles(folder: string, members: Members, pool: FilePool): Promise<Samples> {
  const pickles = [...members].filter(([name]) => name.endsWith('.pickle') && !name.includes('/')).map(([, m]) => m)
  const load = async (m: Member) =>
    regionsOf(readPickle(await pool.read(m.tar, m.offset, m.size), `${m.tar}: ${m.name}`))
  const counts: number[] = []
  for (const m of pickles) counts.push((await load(m)).length)
  const keys = new PackedStrings(pickles.map((m) => keyOf(m.name)))
  return { keys, counts, read: async (i) => await load(pickles[i]!), file: folder, size: 0 }
}

function findImage(
  members: Members,
  key: string,
  region: JsonObject,
  frame: number,
  video: boolean,
): Member | undefined {
  const tar = typeof region.tar_file === 'string' ? `${basename(region.tar_file)}/` : ''
  const base = typeof region.image === 'string' ? basename(region.image) : ''
  const bare = /^0+([1-9]\d*|0)(\.\w+)$/.exec(base)
  const names = [
    ...(video ? [`${key}.${frame}.jpg`] : [base, ...(bare ? [`${bare[1]}${bare[2]}`] : [])]),
    `${key}.jpg`,
    ...(video ? [] : [`${key}.0.jpg`]),
  ].filter((name) => name !== '')
  return names.map((name) => members.get(tar + name)).find((member) => member !== undefined)
}

interface Samples {
  keys: PackedStrings
  /** Regions of each sample. */
  counts: ArrayLike<number>
  read: (sample: number) => Promise<JsonObject[]>
  /** For messages and the fingerprint. */
  file: string
  size: number
}

async function openSamples(folder: string, members: Members, pool: FilePool): Promise<Samples> {
  const file = join(folder, 'annotations.json')
  if (!existsSync(file)) return await openPickles(folder, members, pool)
  pool.watch(file)
  const stored = await cachedIndex({ kind: 'dam-1', files: [file] }, () => indexAnnotations(file, pool))
  const samples = unpackNumbers(stored.samples)
  const keys = new PackedStrings(stored.keys)
  const read = async (i: number) =>
    regionsOf(parse(await pool.read(file, samples[3 * i]!, samples[3 * i + 1]!), `${file}: ${keys.at(i)}`))
  return { keys, counts: samples.filter((_, i) => i % 3 === 2), read, file, size: statSync(file).size }
}

/** One subset folder: LVIS, SAV, ... */
export async function openDamSubset(folder: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const { members, broken } = await indexTars(folder, pool, config)
  const samples = await openSamples(folder, members, pool)
  const records = new GroupedRecords(samples.counts)
  const { frame } = config
  const name = `dam/${basename(folder)}`
  const id = (index: number) => {
    const [sample, k] = records.find(index)
    return `${name}/${samples.keys.at(sample)}${samples.counts[sample]! > 1 ? `/${k}` : ''}`
  }
  const imageOf = async (key: string, fields: JsonObject, video: boolean, where: string): Promise<ImageData> => {
    const member = findImage(members, key, fields, frame, video)
    if (member) return { bytes: await pool.read(member.tar, member.offset, member.size) }
    const got = `no ${typeof fields.image === 'string' ? basename(fields.image) : `${key}.jpg`} in images/*.tar`
    throw new BadRecord('image-missing', { where, field: 'image', expected: 'a member of an archive', got })
  }
  const region = async (index: number, options?: RegionOptions): Promise<Region> => {
    const [sample, k] = records.find(index)
    const key = samples.keys.at(sample)
    const where = `${samples.file}: ${key}[${k}]`
    const fields = (await samples.read(sample))[k]
    if (typeof fields !== 'object' || fields === null) {
      throw new BadRecord('bad-record', { where, expected: 'a region with its fields', got: fields ?? null })
    }
    const { caption, mask_rle: rle, category, ...meta } = fields
    if (rle === undefined || rle === null) {
      throw new BadRecord('no-mask', { where, field: 'mask_rle', expected: 'an RLE', got: null })
    }
    const video = Array.isArray(rle)
    return {
      id: id(index),
      where,
      image: options?.image === false ? null : await imageOf(key, fields, video, where),
      mask: await maskOf(video ? rle[frame] : rle, where, video ? `mask_rle[${frame}]` : 'mask_rle'),
      caption: nonEmpty(typeof caption === 'string' ? caption : '', where, 'caption'),
      ...withCategory(category),
      meta: { ...meta, source: name },
    }
  }
  return {
    name,
    format: `describe-anything (${samples.size > 0 ? 'annotations.json + tar' : 'tar + pickle'})`,
    length: records.length,
    fingerprint: sha256(JSON.stringify([name, records.length, samples.size, frame])),
    schema: ['annotations: caption, mask_rle, image, tar_file, category?'],
    warnings: broken.map((b) => `skipped: ${b.message}`),
    broken,
    id,
    region,
  }
}
