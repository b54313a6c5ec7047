// From records to image features: prepared as plain data, encoded once, and kept on disk if `featureCache` names a folder.
import { FeatureStore, featureVersion } from '../checkpoint/index.ts'
import { assert } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import type { Preparation } from '../image/index.ts'
import { type Family, weightStates } from '../models/index.ts'
import type { Item } from '../rl/index.ts'
import type { TaskKind, WorkItem } from '../tasks/index.ts'
import { itemBytes, keep } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'
import { deviceOf } from './device.ts'
import { modelFileHashes } from './identity.ts'

/** Everything the stored features depend on: the checkpoint's files (by size and time of change) and the preprocessing. */
export function featureFingerprint(config: RunConfig, { dir, config: raw }: Pick<Family, 'dir' | 'config'>): string {
  const { maxTiles, rounding } = config
  const preprocessor = modelFileHashes(dir, ['preprocessor_config.json'])
  return JSON.stringify({
    dir,
    files: weightStates(dir),
    preprocessor,
    dtype: deviceOf(config).dtype,
    maxTiles,
    rounding,
    raw,
    featureVersion,
  })
}

/** A record whose features are loaded while it is in use. */
class EncodedItem implements WorkItem {
  readonly example: Example
  loaded: object | null = null

  constructor(example: Example) {
    this.example = example
  }

  get id(): string {
    return this.example.id
  }

  get features(): object {
    assert(this.loaded, `record ${this.id} is in work`)
    return this.loaded
  }
}

export interface EncoderOptions {
  /** Features stay until release(), for steps of one piece; false: they are recomputed for each phase, so that memory is one piece's. */
  keeps?: boolean
  /** False where the tasks read images themselves: items have no features. */
  encodes?: boolean
  /** Instead of the one the settings name. */
  store?: FeatureStore | null
  /** False where the encoders learn too: features of an earlier step are not those of now. */
  frozen?: boolean
}

/** Limit of the features kept in memory for held-out records; only on the CPU, where encoding is slow. */
const stayingBytes = 256 * 2 ** 20

function openStore(family: Family, config: RunConfig): FeatureStore | null {
  if (!config.featureCache) return null
  return new FeatureStore(config.featureCache, featureFingerprint(config, family), family.placement.device)
}

/** What decoding threads do for a run's model; nothing where the tasks read images themselves. */
export function preparationOf(
  family: Family,
  { maxTiles }: RunConfig,
  { readsImages }: Pick<TaskKind<never>, 'readsImages'> = {},
): Preparation | null {
  if (readsImages) return null
  return family.preparation?.({ maxTiles: maxTiles ?? undefined }) ?? null
}

/** Turns records into items in work. */
export class Encoder {
  readonly family: Family
  readonly store: FeatureStore | null
  /** Spent on encoding so far. */
  seconds = 0
  readonly #limits: { maxTiles?: number }
  readonly #keeps: boolean
  readonly #encodes: boolean
  readonly #inMemory = new Set<EncodedItem>()
  readonly #staying = new Map<Example, EncodedItem>()
  #room: number

  constructor(family: Family, config: RunConfig, options: EncoderOptions = {}) {
    this.family = family
    this.#limits = { maxTiles: config.maxTiles ?? undefined }
    this.#keeps = options.keeps ?? true
    this.#encodes = options.encodes ?? true
    this.store = options.store === undefined && this.#encodes ? openStore(family, config) : (options.store ?? null)
    const stays = (options.frozen ?? true) && !this.store && family.placement.device === 'cpu'
    this.#room = stays ? stayingBytes : 0
  }

  items(examples: readonly Example[]): WorkItem[] {
    return examples.map((example) => new EncodedItem(example))
  }

  /** Runs `work` with the features of the items in memory. */
  inWork<R>(items: readonly Item[], work: () => R): R {
    this.#load(items as readonly EncodedItem[])
    try {
      return work()
    } finally {
      if (!this.#keeps) this.release(items)
    }
  }

  /** The work on some records, with their features freed at its end. */
  with<R>(examples: readonly Example[], work: (items: readonly WorkItem[]) => R): R {
    const items = this.items(examples)
    try {
      return this.inWork(items, () => work(items))
    } finally {
      this.release(items)
    }
  }

  /** The same for records that come again, such as those held out: while there is room, their features stay. */
  again<R>(examples: readonly Example[], work: (items: readonly WorkItem[]) => R): R {
    const items = examples.map((example) => this.#staying.get(example) ?? new EncodedItem(example))
    try {
      this.#load(items)
      return work(items)
    } finally {
      this.release(items.filter((item) => !this.#stays(item)))
    }
  }

  #stays(item: EncodedItem): boolean {
    if (this.#staying.has(item.example)) return true
    if (!item.loaded) return false
    const bytes = Object.values(this.family.tensorsOf(item.loaded)).reduce(
      (sum, t) => sum + t.numel * itemBytes[t.dtype],
      0,
    )
    if (bytes > this.#room) return false
    this.#room -= bytes
    this.#staying.set(item.example, item)
    return true
  }

  release(items: readonly Item[]): void {
    for (const item of items as readonly EncodedItem[]) {
      if (item.loaded) for (const t of Object.values(this.family.tensorsOf(item.loaded))) t.dispose()
      item.loaded = null
      this.#inMemory.delete(item)
    }
  }

  /** Frees what a step that failed left behind. */
  close(): void {
    this.release([...this.#inMemory])
  }

  #load(items: readonly EncodedItem[]): void {
    if (!this.#encodes) return
    const startedAt = performance.now()
    const missing = items.filter((item) => !item.loaded)
    const made = this.#features(missing.map((item) => item.example))
    missing.forEach((item, i) => {
      item.loaded = made[i]!
      this.#inMemory.add(item)
      for (const t of Object.values(this.family.tensorsOf(item.loaded))) keep(t)
    })
    this.seconds += (performance.now() - startedAt) / 1000
  }

  /** Stored ones are computed one by one, so that what is on disk does not depend on which records came together. */
  #features(examples: readonly Example[]): object[] {
    const { family, store } = this
    const input = ({ image, prepared }: Example) => prepared ?? family.prepare(image, this.#limits)
    if (!store) return family.encode(examples.map(input))
    return examples.map((example) => {
      const make = () => family.tensorsOf(family.encode([input(example)])[0]!)
      return family.featuresOf(store.get(example.id, example.image, make), example.image)
    })
  }
}
