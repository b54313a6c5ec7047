// Generated scenes with confusable neighbours as a source: `neighbours:COUNT[:SEED]`. Record i is a function of seed and i.
import { Mismatch, sha256 } from '../../core/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import type { RecordSource } from '../example.ts'

const pattern = /^neighbours:(\d+)(?::(\d+))?$/

export function isNeighbours(path: string): boolean {
  return path.startsWith('neighbours:')
}

export function openNeighbours(path: string): RecordSource {
  const match = pattern.exec(path)
  if (!match) throw new Mismatch({ where: path, expected: 'neighbours:COUNT[:SEED]', got: path })
  const [length, seed] = [Number(match[1]), Number(match[2] ?? 0)]
  const name = `neighbours-${seed}`
  return {
    name,
    format: `generated scenes with confusable neighbours, seed ${seed}`,
    length,
    fingerprint: sha256(`${name} ${length}`),
    schema: ['image, mask, caption'],
    warnings: [],
    leftOut: {},
    broken: [],
    id: (index) => `points-${seed}-${index}`,
    region: async (index) => {
      const { id, image, query, mask } = makePointScene(seed, index).record
      return { id, where: `${name}: scene ${index}`, image: { rgb: image }, mask, caption: query, meta: {} }
    },
    close: async () => undefined,
  }
}
