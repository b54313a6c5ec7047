// A picture of a file as a data address, so that a page needs nothing beside it.
import { readFileSync } from 'node:fs'
import { messageOf } from '../core/index.ts'

/** Larger files are shown as a smaller JPEG: the page must stay one that can be sent. */
const maxImageBytes = 200_000
const shownSide = 640

const kinds: [string, string][] = [
  ['image/png', '89504e47'],
  ['image/jpeg', 'ffd8ff'],
  ['image/webp', '52494646'],
]

/** The media type of an image by its first bytes; undefined: none that a page shows. */
export const mediaTypeOf = (bytes: Buffer) =>
  kinds.find(([, magic]) => bytes.toString('hex', 0, 4).startsWith(magic))?.[0]

/** The picture of a file; undefined if it cannot be shown, and `problems` gets why. */
export async function tryImage(path: string, name: string, problems: Set<string>): Promise<string | undefined> {
  try {
    return await imageAddress(path)
  } catch (error) {
    problems.add(`the image ${name} could not be shown: ${messageOf(error)}`)
    return undefined
  }
}

async function imageAddress(path: string): Promise<string> {
  const bytes = readFileSync(path)
  const kind = mediaTypeOf(bytes)
  if (!kind) throw new Error('no PNG, JPEG or WebP')
  if (bytes.length <= maxImageBytes) return `data:${kind};base64,${bytes.toString('base64')}`
  const { default: sharp } = await import('sharp')
  const options = { fit: 'inside', withoutEnlargement: true } as const
  const smaller = await sharp(bytes).resize(shownSide, shownSide, options).jpeg({ quality: 85 }).toBuffer()
  return `data:image/jpeg;base64,${smaller.toString('base64')}`
}
