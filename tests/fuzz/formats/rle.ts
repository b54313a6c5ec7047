import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Mismatch } from '../../../src/core/index.ts'
import { decodeRle, encodeRle, type Rle } from '../../../src/mask/index.ts'
import { boxRle } from '../../support/data.ts'
import type { Format } from '../format.ts'
import { damageJson } from '../json.ts'

const seeds = [
  boxRle(24, 16, 1, 1, 5, 5),
  boxRle(640, 480, 10, 20, 300, 400),
  { size: [16, 24], counts: [10, 20, 354] },
  { size: [5, 7], counts: '632000>' },
]

export const rle: Format = {
  name: 'rle',
  async setup() {
    return (random) => {
      const seed = structuredClone(random.pick(seeds)) as { size: number[]; counts: string | number[] }
      if (typeof seed.counts === 'string' && random.below(2) === 0) {
        const letters = [...seed.counts]
        for (let i = 0; i <= random.below(4); i++)
          letters[random.below(letters.length)] = String.fromCharCode(40 + random.below(80))
        if (random.below(3) === 0) letters.splice(random.below(letters.length), 1 + random.below(3))
        return {
          files: { 'rle.json': JSON.stringify({ ...seed, counts: letters.join('') }) },
          note: 'letters',
          expect: 'whole',
        }
      }
      const { text, note } = damageJson(seed, random)
      return { files: { 'rle.json': text }, note, expect: 'whole' }
    }
  },
  /** Whatever is taken has runs for every pixel, none of them negative, and survives the way back. */
  async read(folder) {
    let value: unknown
    try {
      value = JSON.parse(readFileSync(join(folder, 'rle.json'), 'utf8'))
    } catch (error) {
      throw new Mismatch({ where: 'rle.json', expected: 'JSON', got: error })
    }
    const mask = decodeRle(value as Rle)
    let sum = 0
    for (const run of mask.counts) sum += run
    const again = decodeRle(encodeRle(mask))
    const equal = again.counts.length === mask.counts.length && again.counts.every((run, i) => run === mask.counts[i])
    return sum === mask.height * mask.width && equal ? 'whole' : `${sum} of ${mask.height} x ${mask.width}`
  },
}
