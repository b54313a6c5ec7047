// Frozen features of images on disk.
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { log, Mismatch, makeFolder, messageOf, sha256 } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import { type Tensor, tidy } from '../tensor/index.ts'
import { readTensors, tensorSource } from './load.ts'
import { readAll, readHeader, writeSafetensors } from './safetensors.ts'
import { openWeights } from './weights.ts'

/** Raised when the preprocessing or an encoder changes what it makes of an image: features of other versions are not read. */
export const featureVersion = 1

type Named = Record<string, Tensor>

/** Frozen features on disk, one file per image, under a fingerprint of everything they depend on. */
export class FeatureStore {
  readonly #folder: string
  readonly #device: string
  #full = false
  hits = 0
  misses = 0

  /** `fingerprint`: the frozen weights, their dtype and the preprocessing; another one is another folder. */
  constructor(root: string, fingerprint: string, device: string) {
    this.#folder = join(root, sha256(fingerprint).slice(0, 16))
    this.#device = device
    makeFolder(this.#folder)
  }

  get(id: string, image: RgbImage, make: () => Named): Named {
    const key = sha256(`${id}\n${image.width}x${image.height}\n${sha256(image.data)}`).slice(0, 32)
    const path = join(this.#folder, `${key}.safetensors`)
    const stored = this.#read(path)
    if (stored) {
      this.hits++
      return stored
    }
    this.misses++
    const tensors = make()
    if (!this.#full) this.#write(path, tensors)
    return tensors
  }

  #write(path: string, tensors: Named): void {
    const entries = Object.entries(tensors).map(([name, t]) => {
      const { data, ...rest } = tensorSource(name, t)
      return { ...rest, data: typeof data === 'function' ? data() : data }
    })
    this.#change(() => writeSafetensors(path, entries, { sha256: checksum(entries) }))
  }

  /** A store that cannot be written costs time, never the run. */
  #change(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.#full = true
      log.warn(`features are no longer stored in ${this.#folder}: ${messageOf(error)}`)
    }
  }

  #read(path: string): Named | null {
    if (!existsSync(path)) return null
    try {
      const stored = Array.from(readAll(path), ([name, { data }]) => ({ name, data }))
      const { sha256: expected } = readHeader(path).metadata
      const got = checksum(stored)
      if (got !== expected) throw new Mismatch({ where: path, field: 'sha256', expected: `${expected}`, got })
      return tidy(() => Object.fromEntries(readTensors(openWeights(path), this.#device)))
    } catch (error) {
      log.warn(`${path}: cannot be read (${messageOf(error)}); the image is encoded again`)
      if (!this.#full) this.#change(() => rmSync(path, { force: true }))
      return null
    }
  }
}

/** A file of the right size may still have been damaged; features are read without looking at them. */
function checksum(entries: readonly { name: string; data: Uint8Array }[]): string {
  const sorted = [...entries].sort((a, b) => (a.name < b.name ? -1 : 1))
  return sha256(sorted.map(({ name, data }) => `${name} ${sha256(data)}`).join('\n'))
}
