// Datasets are read as training reads them: opened, then record after record; unusable ones are counted.
import { sha256 } from '../../../src/core/index.ts'
import { BadRecord, openSource } from '../../../src/data/index.ts'
import { maskArea } from '../../../src/mask/index.ts'
import { grey } from '../../support/data.ts'

const most = 12

/** Places of the records that are read: all of a few, else some from the first to the last. */
function places(length: number): number[] {
  const count = Math.max(0, Math.min(most, length))
  return Array.from({ length: count }, (_, i) => (count === length ? i : Math.round((i * (length - 1)) / (count - 1))))
}

/** `12 records` and a digest of what they say; the number alone when `countOnly`. */
export async function readSource(path: string, countOnly = false): Promise<string> {
  const source = await openSource(path)
  try {
    const seen: string[] = []
    for (const i of places(source.length)) {
      try {
        const { id, caption, mask, image } = await source.get(i)
        seen.push(`${id} ${caption} ${maskArea(mask)} ${image.width}x${image.height}`)
      } catch (error) {
        if (!(error instanceof BadRecord)) throw error
        seen.push(error.reason)
      }
    }
    return countOnly ? `${source.length} records` : `${source.length} records ${sha256(seen.join('\n'))}`
  } finally {
    await source.close()
  }
}

/** A grey PNG of 24 x 16. */
export async function smallPng(): Promise<Buffer> {
  return Buffer.from(await grey(24, 16))
}
