// A plain folder: images/NAME.jpg and masks/NAME.png, whose palette index or grey level names the object (0: background). A record is an
// object. `captions.tsv`, if there is one, has lines IMAGE, OBJECT, CAPTION; without it the records have no captions.
import { existsSync, statSync } from 'node:fs'
import { basename, join, parse } from 'node:path'
import { isFolder, Mismatch, namesIn, readTextFile, sha256 } from '../../core/index.ts'
import { type Labels, labelsFromPng, maskFromDense } from '../../mask/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import { asBadRecord, type RecordSource, type Region } from '../example.ts'
import { readStored } from '../files.ts'
import { nonEmpty } from './regions.ts'

export function isMaskFolder(folder: string): boolean {
  return isFolder(join(folder, 'images')) && isFolder(join(folder, 'masks'))
}

/** Files by name without ending. */
function filesIn(folder: string, ending: RegExp): Map<string, string> {
  const names = namesIn(folder, ending).filter((name) => !name.startsWith('.'))
  return new Map(names.map((name) => [parse(name).name, join(folder, name)]))
}

interface ObjectIndex {
  /** Number of the mask file and of the object, in turn; object 0: an unreadable mask, which is rejected when it is used. */
  objects: string
  /** Masks without an object. */
  empty: number
  /** Masks with the border of Pascal VOC. */
  bordered: number
}

const vocBorder = 255

async function readLabels(path: string): Promise<Labels> {
  try {
    return await labelsFromPng(await readStored(path), path)
  } catch (error) {
    throw asBadRecord(error, 'mask-unreadable', path, 'mask')
  }
}

async function buildIndex(masks: readonly string[]): Promise<ObjectIndex> {
  const objects: number[] = []
  let [empty, bordered] = [0, 0]
  for (const [i, path] of masks.entries()) {
    const labels = await readLabels(path).catch(() => null)
    const found = labels ? [...new Set(labels.numbers)].filter((n) => n > 0).sort((a, b) => a - b) : [0]
    const border = found.length > 1 && found.includes(vocBorder)
    if (border) bordered++
    if (found.length === 0) empty++
    for (const object of found) if (!border || object !== vocBorder) objects.push(i, object)
  }
  return { objects: packNumbers(objects), empty, bordered }
}

/** Captions by image and object, `image/` alone for an image with one object; null: there is no file. */
function readCaptions(folder: string): Map<string, string> | null {
  const file = join(folder, 'captions.tsv')
  if (!existsSync(file)) return null
  const captions = new Map<string, string>()
  const lines = readTextFile(file).split(/\r?\n/)
  for (const [i, line] of lines.entries()) {
    if (line.trim() === '') continue
    const columns = line.split('\t')
    const [image, object, caption] = columns.length === 2 ? [columns[0], '', columns[1]] : columns
    if (columns.length < 2 || columns.length > 3 || !/^\d*$/.test(object!))
      throw new Mismatch({ where: `${file}: line ${i + 1}`, expected: 'IMAGE<tab>OBJECT<tab>CAPTION', got: line })
    captions.set(`${parse(image!).name}/${object}`, caption!)
  }
  return captions
}

export async function openMaskFolder(folder: string): Promise<RecordSource> {
  const images = filesIn(join(folder, 'images'), /\.(jpe?g|png|webp)$/i)
  const masks = filesIn(join(folder, 'masks'), /\.png$/i)
  const stems = [...masks.keys()].filter((stem) => images.has(stem))
  const files = stems.map((stem) => masks.get(stem)!)
  const stored = await cachedIndex({ kind: 'mask-folder-1', files }, () => buildIndex(files))
  const objects = unpackNumbers(stored.objects)
  const captions = readCaptions(folder)
  const name = basename(folder)
  const length = objects.length / 2
  const place = (index: number) => ({ stem: stems[objects[2 * index]!]!, object: objects[2 * index + 1]! })
  const isOnly = (index: number) => [index - 1, index + 1].every((i) => objects[2 * i] !== objects[2 * index])
  const id = (index: number) => `${name}/${place(index).stem}${isOnly(index) ? '' : `/${place(index).object}`}`
  const region = async (index: number): Promise<Region> => {
    const { stem, object } = place(index)
    const where = masks.get(stem)!
    const { height, width, numbers } = await readLabels(where)
    const pixels = Uint8Array.from(numbers, (n) => (n === object ? 1 : 0))
    const caption = captions?.get(`${stem}/${object}`) ?? (isOnly(index) ? captions?.get(`${stem}/`) : '') ?? ''
    return {
      id: id(index),
      where: `${where}: object ${object}`,
      image: { path: images.get(stem)! },
      mask: maskFromDense(pixels, height, width),
      caption: captions ? nonEmpty(caption, `${folder}/captions.tsv: ${stem}, object ${object}`, 'caption') : '',
      meta: { source: name, image: basename(images.get(stem)!), object },
    }
  }
  return {
    name,
    format: `images and masks, ${captions ? 'captions.tsv' : 'no captions'}`,
    length,
    fingerprint: sha256(JSON.stringify([name, stems, files.map((file) => statSync(file).size), length])),
    schema: [
      'images/NAME, masks/NAME.png (0 background, 1.. objects), captions.tsv (image, object, caption; optional)',
    ],
    leftOut: {
      ...some('images without a mask', images.size - stems.length),
      ...some('masks without an image', masks.size - stems.length),
      ...some('masks without an object', stored.empty),
      ...some('value 255 next to other objects (border of Pascal VOC)', stored.bordered),
    },
    withoutCaptions: captions === null,
    id,
    region,
  }
}

const some = (why: string, count: number) => (count > 0 ? { [why]: count } : {})
