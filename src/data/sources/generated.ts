// Generated scenes as sources: `scenes:COUNT[:SEED[:SIZE]]` and, with confusable neighbours, `neighbours:COUNT[:SEED]`. Nothing is stored:
// record i depends on the seed and i only.
import { Mismatch, sha256 } from '../../core/index.ts'
import { makePointScene, makeScene, sceneExample } from '../../scenes/index.ts'
import type { RecordSource } from '../example.ts'

const scenesPattern = /^scenes:(\d+)(?::(\d+))?(?::(\d+))?$/
const neighboursPattern = /^neighbours:(\d+)(?::(\d+))?$/

export function isGenerated(path: string): boolean {
  return /^(scenes|neighbours):/.test(path)
}

export function openGenerated(path: string): RecordSource {
  const isScenes = path.startsWith('scenes:')
  const [, count, seed = 0, size = 112] = (isScenes ? scenesPattern : neighboursPattern).exec(path) ?? []
  const expected = isScenes ? 'scenes:COUNT[:SEED[:SIZE]]' : 'neighbours:COUNT[:SEED]'
  if (count === undefined) throw new Mismatch({ where: path, expected, got: path })
  const source = isScenes ? scenes(Number(seed), Number(size)) : neighbours(Number(seed))
  return { ...source, length: Number(count), fingerprint: sha256(`${source.name} ${count}`) }
}

type Scenes = Omit<RecordSource, 'length' | 'fingerprint'>

function scenes(seed: number, size: number): Scenes {
  const name = `scenes-${seed}-${size}`
  return {
    name,
    format: `generated scenes, ${size} x ${size}, seed ${seed}`,
    schema: ['image, mask, caption, meta.objects'],
    id: (index) => `scene-${seed}-${index}`,
    region: async (index) => {
      const { image, ...rest } = sceneExample(makeScene(seed, index, { size }))
      return { ...rest, where: `${name}: scene ${index}`, image: { rgb: image } }
    },
  }
}

function neighbours(seed: number): Scenes {
  const name = `neighbours-${seed}`
  return {
    name,
    format: `generated scenes with confusable neighbours, seed ${seed}`,
    schema: ['image, mask, caption'],
    id: (index) => `points-${seed}-${index}`,
    region: async (index) => {
      const { id, image, query, mask } = makePointScene(seed, index).record
      return { id, where: `${name}: scene ${index}`, image: { rgb: image }, mask, caption: query, meta: {} }
    },
  }
}
