// nvidia/describe-anything-dataset: SUBSET/annotations.json (sample id -> regions) beside SUBSET/images/*.tar.
import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { readPickle } from '../../checkpoint/index.ts'
import { log, Mismatch, sha256 } from '../../core/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import { BadRecord, type ImageData, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import { FilePool } from '../files.ts'
import { jsonSpans } from '../json-spans.ts'
import { PackedStrings } from '../strings.ts'
import { indexTar, type TarMember } from '../tar.ts'
import { categoryOf, maskOf, nonEmpty } from './regions.ts'
import { lastAtMost } from './row-source.ts'

type Fields = Record<string, unknown>

interface SampleIndex {
  keys: string[]
  /** Per sample: offset, length, number of regions, in turn. */
  samples: string
}

/** Members of the subset's archives by name; the first archive that has a name keeps it. */
type Members = Map<string, TarMember & { tar: string }>

/** A region list, one region, or an object that holds the list. */
export function regionsOf(value: unknown): Fields[] {
  if (Array.isArray(value)) return value as Fields[]
  const fields = (value ?? {}) as Fields
  for (const name of ['regions', 'items', 'objects', 'annotations', 'list']) {
    if (Array.isArray(fields[name])) return fields[name] as Fields[]
  }
  return [fields]
}

function keyOf(member: string): string {
  const base = member.slice(member.lastIndexOf('/') + 1)
  return base.split('.')[0]!
}

export function isDamSubset(folder: string): boolean {
  const images = join(folder, 'images')
  if (!existsSync(images) || !statSync(images).isDirectory()) return false
  return readdirSync(images).some((name) => name.endsWith('.tar'))
}

async function indexTars(folder: string, pool: FilePool, config: DataConfig, broken: BadRecord[]): Promise<Members> {
  const members: Members = new Map()
  const names = readdirSync(join(folder, 'images'))
    .filter((name) => name.endsWith('.tar'))
    .sort()
  for (const name of names) {
    const tar = join(folder, 'images', name)
    try {
      pool.watch(tar)
      const found = await cachedIndex({ kind: 'tar-1', files: [tar] }, () => indexTar(tar, pool))
      for (const member of found) {
        const base = basename(member.name)
        if (!members.has(base)) members.set(base, { ...member, tar })
        members.set(`${name}/${base}`, { ...member, tar })
      }
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error
      const bad = new BadRecord('broken-shard', error.info, { cause: error })
      if (!config.skipBrokenShards) throw bad
      log.warn(`skipped: ${bad.message}`)
      broken.push(bad)
    }
  }
  return members
}

async function indexAnnotations(path: string, pool: FilePool): Promise<SampleIndex> {
  const keys: string[] = []
  const samples: number[] = []
  for await (const { key, offset, length } of jsonSpans(path)) {
    const value = parse(await pool.read(path, offset, length), `${path}: ${key}`)
    keys.push(key ?? String(keys.length))
    samples.push(offset, length, regionsOf(value).length)
  }
  return { keys, samples: packNumbers(Float64Array.from(samples)) }
}

function parse(bytes: Buffer, where: string): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw new Mismatch({ where, expected: 'JSON', got: error }, { cause: error })
  }
}

/** Samples whose regions are in the archives' pickles, for downloads without annotations.json. */
async function indexPickles(
  members: Members,
  pool: FilePool,
): Promise<{ keys: string[]; counts: number[]; read: Reader }> {
  const pickles = [...members].filter(([name]) => name.endsWith('.pickle') && !name.includes('/')).map(([, m]) => m)
  const load = async (m: TarMember & { tar: string }) =>
    regionsOf(readPickle(await pool.read(m.tar, m.offset, m.size), `${m.tar}: ${m.name}`))
  const counts: number[] = []
  for (const m of pickles) counts.push((await load(m)).length)
  return { keys: pickles.map((m) => keyOf(m.name)), counts, read: async (i) => await load(pickles[i]!) }
}

type Reader = (sample: number) => Promise<Fields[]>

function findImage(
  members: Members,
  key: string,
  region: Fields,
  frame: number,
  video: boolean,
): (TarMember & { tar: string }) | undefined {
  const tar = typeof region.tar_file === 'string' ? `${basename(region.tar_file)}/` : ''
  const base = typeof region.image === 'string' ? basename(region.image) : ''
  const bare = /^0+(\d+)(\.\w+)$/.exec(base)
  const names = [
    ...(video ? [`${key}.${frame}.jpg`] : [base, ...(bare ? [`${bare[1]}${bare[2]}`] : [])]),
    `${key}.jpg`,
    ...(video ? [] : [`${key}.0.jpg`]),
  ].filter((name) => name !== '')
  for (const name of names) {
    const found = members.get(tar + name)
    if (found) return found
  }
  return undefined
}

interface Samples {
  keys: PackedStrings
  /** Regions of each sample. */
  counts: ArrayLike<number>
  read: Reader
  /** For messages and the fingerprint. */
  file: string
  size: number
}

async function openSamples(folder: string, members: Members, pool: FilePool): Promise<Samples> {
  const file = join(folder, 'annotations.json')
  if (!existsSync(file)) {
    const found = await indexPickles(members, pool)
    return { keys: new PackedStrings(found.keys), counts: found.counts, read: found.read, file: folder, size: 0 }
  }
  pool.watch(file)
  const stored = await cachedIndex({ kind: 'dam-1', files: [file] }, () => indexAnnotations(file, pool))
  const samples = unpackNumbers(stored.samples)
  const keys = new PackedStrings(stored.keys)
  const counts = Uint32Array.from({ length: keys.length }, (_, i) => samples[3 * i + 2]!)
  const read: Reader = async (i) =>
    regionsOf(parse(await pool.read(file, samples[3 * i]!, samples[3 * i + 1]!), `${file}: ${keys.at(i)}`))
  return { keys, counts, read, file, size: statSync(file).size }
}

class DamSubset implements RecordSource {
  readonly name: string
  readonly format: string
  readonly length: number
  readonly fingerprint: string
  readonly schema = ['annotations: caption, mask_rle, image, tar_file, category?']
  readonly warnings: string[]
  readonly leftOut = {}
  readonly broken: BadRecord[]
  readonly #members: Members
  readonly #samples: Samples
  readonly #pool: FilePool
  readonly #frame: number
  /** First record of each sample, and the end. */
  readonly #starts: Uint32Array

  constructor(folder: string, members: Members, samples: Samples, pool: FilePool, broken: BadRecord[], frame: number) {
    this.name = `dam/${basename(folder)}`
    this.format = `describe-anything (${samples.size > 0 ? 'annotations.json + tar' : 'tar + pickle'})`
    this.warnings = broken.map((b) => `skipped: ${b.message}`)
    this.broken = broken
    this.#members = members
    this.#samples = samples
    this.#pool = pool
    this.#frame = frame
    const { keys, counts } = samples
    this.#starts = new Uint32Array(keys.length + 1)
    for (let i = 0; i < keys.length; i++) this.#starts[i + 1] = this.#starts[i]! + counts[i]!
    this.length = this.#starts[keys.length]!
    this.fingerprint = sha256(JSON.stringify([this.name, this.length, samples.size, frame]))
  }

  id(index: number): string {
    const [sample, k] = this.#place(index)
    return `${this.name}/${this.#samples.keys.at(sample)}${this.#samples.counts[sample]! > 1 ? `/${k}` : ''}`
  }

  async region(index: number, options?: RegionOptions): Promise<Region> {
    const [sample, k] = this.#place(index)
    const key = this.#samples.keys.at(sample)
    const where = `${this.#samples.file}: ${key}[${k}]`
    const fields = (await this.#samples.read(sample))[k]
    if (typeof fields !== 'object' || fields === null) {
      throw new BadRecord('bad-record', { where, expected: 'a region with its fields', got: fields ?? null })
    }
    const { caption, mask_rle: rle, category, ...meta } = fields
    if (rle === undefined || rle === null) {
      throw new BadRecord('no-mask', { where, field: 'mask_rle', expected: 'an RLE', got: null })
    }
    const video = Array.isArray(rle)
    const field = video ? `mask_rle[${this.#frame}]` : 'mask_rle'
    const region: Region = {
      id: this.id(index),
      where,
      image: options?.image === false ? null : await this.#image(key, fields, video, where),
      mask: await maskOf(video ? rle[this.#frame] : rle, where, field),
      caption: nonEmpty(typeof caption === 'string' ? caption : '', where, 'caption'),
      meta: { ...meta, source: this.name },
    }
    const categories = categoryOf(category)
    if (categories) region.category = categories
    return region
  }

  async close(): Promise<void> {
    await this.#pool.close()
  }

  #place(index: number): [number, number] {
    const sample = lastAtMost(this.#starts, index)
    return [sample, index - this.#starts[sample]!]
  }

  async #image(key: string, fields: Fields, video: boolean, where: string): Promise<ImageData> {
    const member = findImage(this.#members, key, fields, this.#frame, video)
    if (member) return { bytes: await this.#pool.read(member.tar, member.offset, member.size) }
    const got = `no ${typeof fields.image === 'string' ? basename(fields.image) : `${key}.jpg`} in images/*.tar`
    throw new BadRecord('image-missing', { where, field: 'image', expected: 'a member of an archive', got })
  }
}

/** One subset folder: LVIS, SAV, ... */
export async function openDamSubset(folder: string, config: DataConfig): Promise<RecordSource> {
  return await FilePool.opening(async (pool) => {
    const broken: BadRecord[] = []
    const members = await indexTars(folder, pool, config, broken)
    return new DamSubset(folder, members, await openSamples(folder, members, pool), pool, broken, config.frame)
  })
}
