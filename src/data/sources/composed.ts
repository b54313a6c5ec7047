// Pictures composed of cut-out objects: `stamps:COUNT[:SEED[:SIZE]][:photos][:described]` and `emoji:COUNT[:SEED[:SIZE]][:described]`. Record i is a
// function of the package, seed, size and i; composed pictures are kept in the cache folder. The key of a record is the group of its objects.
import { readFileSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { addFolder, atomicWrite, cacheFolder, log, Mismatch, messageOf, sha256 } from '../../core/index.ts'
import { decodeImage, encodePng, type RgbImage } from '../../image/index.ts'
import { decodeRle, encodeRle, type Rle } from '../../mask/index.ts'
import {
  backgroundPhotos,
  type Composer,
  type Cutout,
  type CutoutSet,
  composerVersion,
  emojiFolders,
  looksOf,
  openComposer,
  readEmoji,
  readStamp,
  sayLooks,
  stampFiles,
  stampsRoot,
} from '../../scenes/index.ts'
import { cachedIndex } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import type { RecordSource, Region } from '../example.ts'

const spelling = {
  stamps: 'stamps:COUNT[:SEED[:SIZE]][:photos][:described]',
  emoji: 'emoji:COUNT[:SEED[:SIZE]][:described]',
}
const pattern = /^(stamps|emoji):(\d+)(?::(\d+))?(?::(\d+))?(:photos)?(:described)?$/
const minSize = 64

export function isComposed(path: string): boolean {
  return /^(stamps|emoji):/.test(path)
}

export async function openComposed(path: string, { splitBy }: Pick<DataConfig, 'splitBy'>): Promise<RecordSource> {
  const kind = path.startsWith('stamps') ? 'stamps' : 'emoji'
  const [, , count, seed = 0, size = 512, photos, described] = pattern.exec(path) ?? []
  if (count === undefined || Number(size) < minSize || (kind === 'emoji' && photos))
    throw new Mismatch({ where: path, expected: `${spelling[kind]} with SIZE of at least ${minSize}`, got: path })
  const expected = 'content (the split is by object)'
  if (splitBy === 'place') throw new Mismatch({ where: path, field: 'data.splitBy', expected, got: splitBy })
  const set = kind === 'stamps' ? await openStamps(photos !== undefined) : await openEmoji()
  const records = { length: Number(count), seed: Number(seed), size: Number(size), described: described !== undefined }
  return sourceOf(set, records)
}

/** Names and sizes of files: another version of a package has others. */
function versionOf(root: string, files: readonly string[]): string {
  return sha256(files.map((file) => `${file} ${statSync(join(root, file)).size}`).join('\n')).slice(0, 16)
}

async function openStamps(photosOnly: boolean): Promise<CutoutSet> {
  const root = stampsRoot()
  const files = stampFiles(root)
  const version = versionOf(root, files)
  const cutouts = await cachedIndex({ kind: 'stamps-1', files: [root], settings: version }, async () => {
    log.info(`stamps: reading ${files.length} pictures of ${root} once`)
    const read: Cutout[] = []
    for (const file of withoutCopies(root, files)) read.push(await readStamp(root, file))
    return read
  })
  const chosen = photosOnly ? cutouts.filter(({ photo }) => photo) : cutouts
  return { name: photosOnly ? 'stamps-photos' : 'stamps', root, version, cutouts: chosen }
}

export async function openEmoji(): Promise<CutoutSet> {
  const folders = emojiFolders()
  const cutouts = readEmoji(folders)
  const files = cutouts.map(({ file }) => file)
  const once = new Set(withoutCopies(folders.pictures, files))
  const version = versionOf(folders.pictures, files)
  return { name: 'emoji', root: folders.pictures, version, cutouts: cutouts.filter(({ file }) => once.has(file)) }
}

/** The first of files with the same bytes: a copy would be the same object in another group. */
function withoutCopies(root: string, files: readonly string[]): string[] {
  const seen = new Set<string>()
  return files.filter((file) => {
    const hash = sha256(readFileSync(join(root, file)))
    return !seen.has(hash) && seen.add(hash)
  })
}

interface Records {
  length: number
  seed: number
  size: number
  /** Captions say what pixels and mask show instead of the object's name. */
  described: boolean
}

function sourceOf(set: CutoutSet, { length, seed, size, described }: Records): RecordSource {
  if (set.cutouts.length === 0)
    throw new Mismatch({ where: set.root, field: 'objects', expected: 'at least one', got: 0 })
  const photos = backgroundPhotos()
  const background = photos.map((file) => `${basename(dirname(dirname(file)))} ${statSync(file).size}`)
  const name = `${set.name}-${seed}`
  const fingerprint = sha256([composerVersion, set.version, name, size, ...background].join('\n'))
  const store = new PictureStore(join(cacheFolder(), 'composed', fingerprint.slice(0, 32)))
  const composer = openComposer(set, photos, seed, size)
  const groups = new Set(Array.from({ length }, (_, i) => composer.groupOf(i)))
  return {
    name,
    format: `${set.cutouts.length} objects of ${set.name}, composed ${size} x ${size}, seed ${seed}`,
    length,
    fingerprint: sha256(`${fingerprint} ${length}${described ? ' described' : ''}`),
    schema: [
      'image, mask (the visible part), caption, meta.objects, meta.group',
      `${groups.size} groups of objects; a group is trained on or held out as a whole`,
      `backgrounds: ${photos.length} photographs, generated textures`,
    ],
    id: (index) => `${name}-${index}`,
    part: (index) => `${name}-${index}`,
    key: (index) => composer.groupOf(index),
    region: async (index) => {
      const picture = await store.read(index, composer)
      const caption = described ? await describe(picture) : picture.caption
      return { ...picture, caption, id: `${name}-${index}`, where: `${name}: picture ${index}` }
    },
  }
}

type Picture = Pick<Region, 'mask' | 'caption' | 'meta'> & { image: { path: string } | { rgb: RgbImage } }

/** Main colour, size and place: `the large brown object on the left`. */
async function describe({ image, mask }: Picture): Promise<string> {
  const pixels = 'path' in image ? await decodeImage(readFileSync(image.path), image.path) : image.rgb
  return sayLooks(looksOf(pixels, mask))
}

interface StoredFacts {
  /** Length of the picture's file: a shorter one was not written to its end. */
  bytes: number
  mask: Rle
  caption: string
  meta: Record<string, unknown>
}

/** Composed pictures on disk: N.png and N.json. A store that cannot be read or written costs time, never the run. */
class PictureStore {
  readonly #folder: string
  #warned = false

  constructor(folder: string) {
    this.#folder = folder
  }

  async read(index: number, composer: Composer): Promise<Picture> {
    const [facts, path] = [join(this.#folder, `${index}.json`), join(this.#folder, `${index}.png`)]
    const stored = readFacts(facts, path)
    if (stored)
      return { image: { path }, mask: decodeRle(stored.mask, facts), caption: stored.caption, meta: stored.meta }
    const { image, mask, caption, meta } = await composer.compose(index)
    try {
      const png = await encodePng(image)
      addFolder(this.#folder)
      // not synced: what a crash cuts off is composed again
      atomicWrite(path, png, false)
      const known = { bytes: png.length, mask: encodeRle(mask), caption, meta } satisfies StoredFacts
      atomicWrite(facts, JSON.stringify(known), false)
    } catch (error) {
      if (!this.#warned) log.warn(`composed pictures are not stored in ${this.#folder}: ${messageOf(error)}`)
      this.#warned = true
    }
    return { image: { rgb: image }, mask, caption, meta }
  }
}

function readFacts(facts: string, path: string): StoredFacts | null {
  try {
    const stored = JSON.parse(readFileSync(facts, 'utf8')) as StoredFacts
    return statSync(path).size === stored.bytes ? stored : null
  } catch {
    return null // absent or cut off: composed again
  }
}
