// For tests of this room: folders that vanish, a separate cache, and small hand-written records.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import type { GarRow } from '../../src/data/arrow/write.ts'
import { encodePng } from '../../src/image/index.ts'
import { encodeRle, maskFromDense } from '../../src/mask/index.ts'

export const fixtures = join(import.meta.dirname, '../../src/data/fixtures')

/** A folder for the tests of one file; indexes are kept in it too. */
export function testFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-data-'))
  process.env.ROUNDTRIP_CACHE = join(folder, 'cache')
  after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

export async function grey(width: number, height: number, level = 128): Promise<Uint8Array> {
  return await encodePng({ width, height, data: new Uint8Array(width * height * 3).fill(level) })
}

/** Compressed runs of a box. */
export function boxRle(width: number, height: number, x0: number, y0: number, x1: number, y1: number) {
  const bits = new Uint8Array(width * height)
  for (let y = y0; y < y1; y++) bits.fill(1, y * width + x0, y * width + x1)
  return encodeRle(maskFromDense(bits, height, width))
}

export async function garRow(i: number, changes: Partial<GarRow> = {}): Promise<GarRow> {
  return {
    image: { bytes: await grey(24, 16, i % 256), path: null },
    conversations: [
      { from: 'human', value: '<image>\nDescribe.' },
      { from: 'gpt', value: ` caption ${i} ` },
    ],
    mask_rle: boxRle(24, 16, 1, 1, 2 + (i % 20), 6),
    catagory: ['box'],
    ...changes,
  }
}

export async function* rowsOf(rows: readonly GarRow[]): AsyncGenerator<GarRow> {
  yield* rows
}
