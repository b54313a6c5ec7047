import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readAll, readHeader, readTensors, tensorSource, writeSafetensors } from '../checkpoint/index.ts'
import { log, Mismatch, messageOf, sha256 } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Features } from '../models/index.ts'
import { tidy } from '../tensor/index.ts'

/** Frozen features on disk, one file per image, under a fingerprint of everything they depend on. */
export class FeatureStore {
  readonly #folder: string
  readonly #device: string
  hits = 0
  misses = 0

  /** `fingerprint`: the frozen weights, their dtype and the preprocessing; another one is another folder. */
  constructor(root: string, fingerprint: string, device: string) {
    this.#folder = join(root, sha256(fingerprint).slice(0, 16))
    this.#device = device
    mkdirSync(this.#folder, { recursive: true })
  }

  get(id: string, image: RgbImage, make: () => Features): Features {
    const key = sha256(`${id}\n${image.width}x${image.height}\n${sha256(image.data)}`).slice(0, 32)
    const path = join(this.#folder, `${key}.safetensors`)
    const stored = this.#read(path, image)
    if (stored) {
      this.hits++
      return stored
    }
    this.misses++
    const features = make()
    const { level0, level1, level2 } = features.sam
    const entries = Object.entries({ vision: features.vision, level0, level1, level2 }).map(([name, t]) => {
      const { data, ...rest } = tensorSource(name, t)
      return { ...rest, data: typeof data === 'function' ? data() : data }
    })
    writeSafetensors(path, entries, { sha256: checksum(entries) })
    return features
  }

  #read(path: string, image: RgbImage): Features | null {
    if (!existsSync(path)) return null
    try {
      const stored = Array.from(readAll(path), ([name, { data }]) => ({ name, data }))
      const { sha256: expected } = readHeader(path).metadata
      const got = checksum(stored)
      if (got !== expected) throw new Mismatch({ where: path, field: 'sha256', expected: `${expected}`, got })
      return tidy(() => {
        const all = readTensors(openWeights(path), this.#device)
        const [vision, level0, level1, level2] = ['vision', 'level0', 'level1', 'level2'].map((n) => all.get(n)!)
        return {
          vision: vision!,
          sam: { level0: level0!, level1: level1!, level2: level2! },
          tiles: vision!.size(0),
          height: image.height,
          width: image.width,
        }
      })
    } catch (error) {
      log.warn(`${path}: cannot be read (${messageOf(error)}); the image is encoded again`)
      rmSync(path, { force: true })
      return null
    }
  }
}

/** A file of the right size may still have been damaged; features are read without looking at them. */
function checksum(entries: readonly { name: string; data: Uint8Array }[]): string {
  const sorted = [...entries].sort((a, b) => (a.name < b.name ? -1 : 1))
  return sha256(sorted.map(({ name, data }) => `${name} ${sha256(data)}`).join('\n'))
}
