// Where the pieces of a benchmark lie: a user names the data root, its ref_seg, or the benchmark's own folder.
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isFolder, Mismatch } from '../core/index.ts'
import { refImageFolders } from '../data/index.ts'

/** The first of `data` itself and the folders below it that `accept`s. */
export function findFolder(
  data: string,
  below: readonly string[],
  accept: (folder: string) => boolean,
  expected: string,
): string {
  const tried = [data, ...below.map((name) => join(data, name))].map((path) => resolve(path))
  const found = tried.find((folder) => isFolder(folder) && accept(folder))
  if (found) return found
  const got = isFolder(data) ? `none in ${tried.join(', ')}` : 'no folder there'
  const hint = 'name the data root, or the folder itself, with --data'
  throw new Mismatch({ where: data, field: 'data', expected, got, hint })
}

/** The folder that has `first`; looked for beside the benchmark's folder and up to two folders above it. */
export function findImages(folder: string, images: string | null, first: string): string {
  const tried = images ? [images] : refImageFolders(folder)
  const found = tried.find((path) => existsSync(join(path, first)))
  if (found) return found
  const hint = 'give --images DIR, the folder of the COCO train2014 images'
  const expected = `a folder with ${first}`
  throw new Mismatch({ where: images ?? folder, field: 'images', expected, got: 'none', hint })
}

/** Before the first answer: an image that is not there would end the run hours later. */
export function checkImages(images: Iterable<string>, folder: string): void {
  const names = [...new Set(images)]
  const missing = names.filter((name) => !existsSync(join(folder, name)))
  if (missing.length === 0) return
  const got = `nothing there, as with ${missing.length} of ${names.length} images`
  const hint = 'complete the folder, or name the one that has them with --images DIR'
  throw new Mismatch({ where: join(folder, missing[0]!), expected: 'an image', got, hint })
}
