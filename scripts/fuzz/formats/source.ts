// Datasets are read as training reads them: opened, then record after record; unusable ones are counted.
import { sha256 } from '../../../src/core/index.ts'
import { BadRecord, openSource } from '../../../src/data/index.ts'
import { maskArea } from '../../../src/mask/index.ts'
import { grey } from '../../../tests/support/data.ts'

const most = 40

/** `12 records` and a digest of what they say; the number alone when `countOnly`. */
export async function readSource(path: string, countOnly = false): Promise<string> {
  const source = await openSource(path)
  try {
    const seen: string[] = []
    for (let i = 0; i < Math.min(most, source.length); i++) {
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
