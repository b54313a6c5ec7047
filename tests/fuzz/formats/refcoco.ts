import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fixtures } from '../../support/data.ts'
import { damageBytes, damageField } from '../bytes.ts'
import type { Format } from '../format.ts'
import { damageJson } from '../json.ts'
import { readSource, smallPng } from './source.ts'

const instances = {
  images: [{ id: 1, file_name: 'x.png', height: 16, width: 24 }],
  annotations: [1, 2, 3, 4].map((id) => ({
    id,
    image_id: 1,
    category_id: 1,
    segmentation: [[1, 1, 9, 1, 9, 9, 1, 9]],
  })),
  categories: [{ id: 1, name: 'box' }],
}
const sentences = [{ sent_id: 1, raw: 'A box.', sent: 'a box', tokens: ['a', 'box'] }]
const refs = [1, 2, 3].map((id) => ({ ref_id: id, ann_id: id, image_id: 1, split: 'train', sentences }))

/** Opcodes that would call something, in front of the data. */
const payload = () => `cos\nsystem\n(S'touch ${process.env.FUZZ_CANARY}'\ntR.`

export const refcoco: Format = {
  name: 'refcoco',
  async setup() {
    const png = await smallPng()
    const pickles = ['refs-0.p', 'refs-2.p'].map((name) => readFileSync(join(fixtures, name)))
    return (random) => {
      const files: Record<string, string | Uint8Array> = { 'images/x.png': png }
      files['instances.json'] = JSON.stringify(instances)
      const choice = random.below(4)
      if (choice === 0) {
        const { text, note } = damageJson(instances, random)
        return { files: { ...files, 'instances.json': text, 'refs.json': JSON.stringify(refs) }, note }
      }
      if (choice === 1) {
        const { text, note } = damageJson(refs, random)
        return { files: { ...files, 'refs.json': text }, note }
      }
      const bytes = Buffer.from(random.pick(pickles))
      if (random.below(6) === 0) return { files: { ...files, 'refs.p': payload() }, note: 'payload' }
      if (random.below(2) === 0)
        return { files: { ...files, 'refs.p': bytes }, note: damageField(bytes, 0, bytes.length, random) }
      const damaged = damageBytes(bytes, random)
      return { files: { ...files, 'refs.p': damaged.bytes }, note: damaged.note }
    }
  },
  read: (folder) => readSource(folder),
}
