// Generated scenes as a source: `scenes:COUNT[:SEED[:SIZE]]`. Nothing is stored; record i is a function of seed and i.
import { Mismatch, sha256 } from '../../core/index.ts'
import { makeScene, sceneExample } from '../../scenes/index.ts'
import type { RecordSource } from '../example.ts'

const pattern = /^scenes:(\d+)(?::(\d+))?(?::(\d+))?$/

export function isScenes(path: string): boolean {
  return path.startsWith('scenes:')
}

export function openScenes(path: string): RecordSource {
  const match = pattern.exec(path)
  if (!match) throw new Mismatch({ where: path, expected: 'scenes:COUNT[:SEED[:SIZE]]', got: path })
  const [length, seed, size] = [Number(match[1]), Number(match[2] ?? 0), Number(match[3] ?? 112)]
  const name = `scenes-${seed}-${size}`
  return {
    name,
    format: `generated scenes, ${size} x ${size}, seed ${seed}`,
    length,
    fingerprint: sha256(`${name} ${length}`),
    schema: ['image, mask, caption, meta.objects'],
    warnings: [],
    leftOut: {},
    broken: [],
    id: (index) => `scene-${seed}-${index}`,
    region: async (index) => {
      const { image, ...rest } = sceneExample(makeScene(seed, index, { size }))
      return { ...rest, where: `${name}: scene ${index}`, image: { rgb: image } }
    },
    close: async () => undefined,
  }
}
