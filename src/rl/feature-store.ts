import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readTensors, tensorSource, writeSafetensors } from '../checkpoint/index.ts'
import { log, messageOf, sha256 } from '../core/index.ts'
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
    const entries = Object.entries({ vision: features.vision, level0, level1, level2 })
    writeSafetensors(
      path,
      entries.map(([name, t]) => tensorSource(name, t)),
    )
    return features
  }

  #read(path: string, image: RgbImage): Features | null {
    if (!existsSync(path)) return null
    try {
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
