import { join } from 'node:path'
import { boxRle } from '../../support/data.ts'
import { damageBytes } from '../bytes.ts'
import type { Format } from '../format.ts'
import { damageJson } from '../json.ts'
import { readSource, smallPng } from './source.ts'

const lines = [
  { id: 'a', image: 'x.png', mask: boxRle(24, 16, 1, 1, 5, 5), caption: 'one box' },
  {
    id: 'b',
    image: 'x.png',
    mask: { polygons: [[1, 1, 9, 1, 9, 9, 1, 9]], size: [16, 24] },
    caption: 'two',
    category: ['b'],
  },
  { image: 'x.png', mask: 'x.png', caption: 'three' },
  { image: 'x.png', mask: { size: [16, 24], counts: [10, 20, 354] }, caption: 'four', note: { more: [1] } },
]

export const jsonl: Format = {
  name: 'jsonl',
  async setup() {
    const png = await smallPng()
    return (random) => {
      const at = random.below(lines.length)
      const { text, note } = damageJson(lines[at], random)
      const parts = lines.map((line, i) => (i === at ? Buffer.from(text) : Buffer.from(JSON.stringify(line))))
      let bytes: Buffer = Buffer.concat(parts.flatMap((part) => [part, Buffer.from('\n')]))
      let more = ''
      if (random.below(8) === 0) ({ bytes, note: more } = damageBytes(bytes, random))
      const image = random.below(8) === 0 ? damageBytes(png, random).bytes : png
      const records = bytes
        .toString('latin1')
        .split('\n')
        .filter((line) => line.trim() !== '').length
      const expect = records > 0 ? `${records} records` : undefined
      return { files: { 'd.jsonl': bytes, 'x.png': image }, note: `line ${at}: ${note} ${more}`, expect }
    }
  },
  read: (folder) => readSource(join(folder, 'd.jsonl'), true),
}
