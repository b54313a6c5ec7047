import { setImmediate as eventLoop } from 'node:timers/promises'
import { assert, log, Mismatch } from '../core/index.ts'
import type { Preparation } from '../image/index.ts'
import { DataConfig, type DataOptions } from './config.ts'
import { checkRegion, toExample } from './decode.ts'
import { BadRecord, type Example, type Reason, type RecordRules, type Region, type Source } from './example.ts'
import { curriculumBuckets, epochOrder, splitIndices } from './order.ts'
import { DecodePool } from './pool.ts'

/** Position of a loader: enough to resume at the exact next record. Plain data, stored in checkpoints. */
export interface LoaderState {
  version: 1
  fingerprint: string
  seed: number
  rank: number
  world: number
  epoch: number
  /** Index of the next record in this rank's order of the epoch. */
  position: number
  /** Records read so far, and how many of them could not be used. */
  seen: number
  rejects: Partial<Record<Reason, number>>
}

export interface LoaderRank {
  rank: number
  world: number
}

/** An endless, resumable stream of examples. */
export interface Loader extends AsyncIterable<Example> {
  /** The next usable record; epochs follow each other without end. */
  next(): Promise<Example>
  /** Records of this rank in one epoch, unusable ones included. */
  readonly epochLength: number
  readonly rejects: Readonly<Partial<Record<Reason, number>>>
  /** The last unusable records, with file, record and field. */
  readonly rejected: readonly BadRecord[]
  state(): LoaderState
  restore(state: LoaderState): void
  close(): Promise<void>
  /** The rest of the current epoch, then ends. */
  [Symbol.asyncIterator](): AsyncIterator<Example>
}

interface Slot {
  epoch: number
  position: number
  /** Decoded bytes counted against the budget. */
  bytes: number
  result: Promise<Example | Error>
}

const checkedAfter = 1000 // records before the share of rejects is checked
const maxKept = 100 // rejected records kept for reports
const maxLogged = 20 // rejected records named in the log

/** Examples of the train or eval split, in a reproducible order. */
export function openLoader(
  source: Source,
  options: DataOptions = {},
  rank: LoaderRank = { rank: 0, world: 1 },
  preparation: Preparation | null = null,
  rules: RecordRules = {},
): Loader {
  return new StreamLoader(source, DataConfig.parse(options), rank, preparation, rules)
}

class StreamLoader implements Loader {
  readonly rejected: BadRecord[] = []
  readonly epochLength: number
  readonly #source: Source
  readonly #config: DataConfig
  readonly #rank: LoaderRank
  readonly #part: Uint32Array
  readonly #pool: DecodePool
  readonly #rules: RecordRules
  #buckets: Promise<Uint32Array | null> | null = null
  #order: { epoch: number; indices: Uint32Array } | null = null
  /** Records that are read ahead, in order; the cursor is the next one. */
  #queue: Slot[] = []
  #cursor = { epoch: 0, position: 0 }
  #queuedBytes = 0
  /** Size of the largest prepared image so far, as an estimate for the next one. */
  #preparedBytes = 0
  #filling: Promise<void> | null = null
  /** Ends the wait for the next slot. */
  #arrived = () => {}
  /** Incremented by restore and close, which drop the work started before. */
  #generation = 0
  #turn: Promise<unknown> = Promise.resolve()
  #pending = 0
  #failure: Error | null = null
  #state: LoaderState

  constructor(
    source: Source,
    config: DataConfig,
    rank: LoaderRank,
    preparation: Preparation | null,
    rules: RecordRules,
  ) {
    assert(rank.world >= 1 && rank.rank >= 0 && rank.rank < rank.world, 'rank lies in 0..world-1')
    this.#source = source
    this.#config = config
    this.#rank = rank
    this.#rules = rules
    requireCaptions(source, rules)
    this.#part = rules.only ?? splitIndices(source, config)
    this.epochLength = Math.ceil((this.#part.length - rank.rank) / rank.world)
    if (this.epochLength <= 0) {
      const got = `${this.#part.length} records for ${rank.world} ranks`
      throw new Mismatch({ where: source.name, expected: 'at least one record for every rank', got })
    }
    this.#pool = new DecodePool(config.workers, preparation)
    const rejects = source.broken.length > 0 ? { 'broken-shard': source.broken.length } : {}
    const { fingerprint } = source
    this.#state = { version: 1, fingerprint, seed: config.seed ?? 0, ...rank, epoch: 0, position: 0, seen: 0, rejects }
  }

  get rejects(): Partial<Record<Reason, number>> {
    return this.#state.rejects
  }

  state(): LoaderState {
    return structuredClone(this.#state)
  }

  restore(state: LoaderState): void {
    assert(this.#pending === 0, 'a position is restored while no record is being asked for')
    const here = this.#state
    for (const field of ['version', 'fingerprint', 'seed', 'rank', 'world'] as const) {
      if (state[field] === here[field]) continue
      const hint = field === 'fingerprint' ? 'the data are not those the position was saved for' : undefined
      throw new Mismatch({ where: 'saved data position', field, expected: `${here[field]}`, got: state[field], hint })
    }
    this.#drop()
    this.#state = structuredClone(state)
    this.#cursor = { epoch: state.epoch, position: state.position }
    this.#failure = null
  }

  async next(): Promise<Example> {
    const example = await this.#inTurn(() => this.#take(Number.POSITIVE_INFINITY))
    assert(example, 'an endless stream of epochs gives a record')
    return example
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Example> {
    const { epoch } = this.#state
    for (;;) {
      const example = await this.#inTurn(() => this.#take(epoch))
      if (!example) return
      yield example
    }
  }

  async close(): Promise<void> {
    this.#drop()
    this.#failure ??= new Error('the loader was closed')
    await this.#pool.close()
  }

  #drop(): void {
    this.#generation++
    this.#queue = []
    this.#queuedBytes = 0
    this.#filling = null
  }

  /** Answers calls one after the other, in order. */
  #inTurn<T>(task: () => Promise<T>): Promise<T> {
    this.#pending++
    const mine = this.#turn.then(task).finally(() => this.#pending--)
    this.#turn = mine.catch(() => undefined)
    return mine
  }

  /** The next usable record up to the end of an epoch; null at that end. */
  async #take(lastEpoch: number): Promise<Example | null> {
    let fruitless = 0
    for (;;) {
      if (this.#failure) throw this.#failure
      if (this.#state.epoch > lastEpoch) return null
      const slot = await this.#shift()
      const result = await slot.result
      this.#queuedBytes -= slot.bytes
      this.#fill()
      if (result instanceof Error) this.#reject(result, ++fruitless)
      this.#advance(slot)
      if (!(result instanceof Error)) return result
    }
  }

  async #shift(): Promise<Slot> {
    for (;;) {
      const slot = this.#queue.shift()
      if (slot) return slot
      this.#fill()
      const arrival = new Promise<void>((done) => {
        this.#arrived = done
      })
      if (this.#queue.length === 0) await Promise.race([arrival, this.#filling])
      if (this.#failure) throw this.#failure
    }
  }

  #advance(slot: Slot): void {
    const last = slot.position + 1 === this.epochLength
    this.#state.epoch = slot.epoch + (last ? 1 : 0)
    this.#state.position = last ? 0 : slot.position + 1
    this.#state.seen++
  }

  /** Counts and names an unusable record, or ends the run. */
  #reject(error: Error, fruitless: number): void {
    if (!(error instanceof BadRecord)) throw this.#fail(error)
    const { rejects } = this.#state
    rejects[error.reason] = (rejects[error.reason] ?? 0) + 1
    this.rejected.push(error)
    if (this.rejected.length > maxKept) this.rejected.shift()
    const leftOut = error.reason === 'empty-mask' && this.#rules.usesEmpty !== undefined
    if (this.#config.onBadRecord === 'stop' && !leftOut) throw this.#fail(error)
    const total = this.#damaged()
    if (total <= maxLogged && !leftOut) log.warn(`skipped (${error.reason}): ${error.message}`)
    if (total === maxLogged && !leftOut) log.warn('further unusable records are counted, not named')
    const seen = this.#state.seen + 1
    const checked = seen >= Math.min(checkedAfter, this.epochLength)
    if (checked && total > this.#config.maxRejectFraction * seen) throw this.#fail(this.#tooMany(total, seen))
    if (fruitless >= this.epochLength) throw this.#fail(this.#tooMany(fruitless, seen))
  }

  /** Number of unusable records, without broken shards and records that the task leaves out. */
  #damaged(): number {
    const expected = this.#rules.usesEmpty ? ['broken-shard', 'empty-mask'] : ['broken-shard']
    return Object.entries(this.#state.rejects).reduce((sum, [why, n]) => sum + (expected.includes(why) ? 0 : n), 0)
  }

  #tooMany(total: number, seen: number): Mismatch {
    const counts = Object.entries(this.#state.rejects).map(([reason, n]) => `${reason} ${n}`)
    return new Mismatch({
      where: this.#source.name,
      field: 'unusable records',
      expected: `at most ${this.#config.maxRejectFraction * 100} % (data.maxRejectFraction)`,
      got: `${total} of ${seen}: ${counts.join(', ')}`,
      hint: `the last one: ${this.rejected.at(-1)?.message}`,
    })
  }

  #fail(error: Error): Error {
    this.#failure = error
    return error
  }

  /**
   * Reads ahead until the window or the memory budget is full: one read at a time, decoding in parallel. What nobody waits for is read
   * while the process waits, for other processes or for scores.
   */
  #fill(): void {
    if (this.#filling) return
    const filling = this.#fillWindow(this.#generation).finally(() => {
      if (this.#filling === filling) this.#filling = null
    })
    this.#filling = filling
  }

  async #fillWindow(generation: number): Promise<void> {
    const budget = this.#config.prefetchMiB * 1024 * 1024
    const room = () =>
      this.#queue.length < this.#config.prefetch && (this.#queuedBytes < budget || this.#queue.length === 0)
    try {
      while (!this.#failure && room()) {
        const order = await this.#orderOf(this.#cursor.epoch)
        if (generation !== this.#generation) return
        await this.#readAhead(order, generation)
        if (generation !== this.#generation) return
        await eventLoop()
      }
    } catch (error) {
      if (generation === this.#generation) this.#failure = error as Error
    }
  }

  async #readAhead(order: Uint32Array, generation: number): Promise<void> {
    const { epoch, position } = this.#cursor
    const record = order[position * this.#rank.world + this.#rank.rank]!
    const last = position + 1 === this.epochLength
    this.#cursor = last ? { epoch: epoch + 1, position: 0 } : { epoch, position: position + 1 }
    const region = this.#source.region(record, this.#rules).then((r) => {
      checkRegion(r, this.#rules)
      return r
    })
    const hold = (bytes: number) => this.#hold(slot, bytes, generation)
    const slot: Slot = { epoch, position, bytes: 0, result: this.#decode(region, hold) }
    this.#queue.push(slot)
    this.#arrived()
    await region.catch(() => undefined) // the slot reports it
  }

  /** Decodes in parallel with reading. An error becomes the result of the slot, so that it is reported in order. */
  async #decode(region: Promise<Region>, hold: (bytes: number) => void): Promise<Example | Error> {
    try {
      const read = await region
      const pixels = read.mask.height * read.mask.width * 3 // the mask's size is the image's: known before decoding
      hold(pixels + this.#preparedBytes)
      const example = await toExample(read, (job) => this.#pool.decode(job), this.#rules)
      this.#preparedBytes = Math.max(this.#preparedBytes, bytesIn(example.prepared))
      return example
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error))
    }
  }

  #hold(slot: Slot, bytes: number, generation: number): void {
    if (generation !== this.#generation) return
    slot.bytes = bytes
    this.#queuedBytes += bytes
  }

  async #orderOf(epoch: number): Promise<Uint32Array> {
    this.#buckets ??= curriculumBuckets(this.#source, this.#config)
    const buckets = await this.#buckets
    if (this.#order?.epoch !== epoch) {
      this.#order = { epoch, indices: epochOrder(this.#part, buckets, this.#config, epoch) }
    }
    return this.#order.indices
  }
}

/** Throws if records without captions belong to a task that reads them. */
export function requireCaptions({ name: where, withoutCaptions }: Source, { usesNoCaption }: RecordRules): void {
  if (!withoutCaptions || usesNoCaption) return
  const hint = 'JSONL: add `caption` to each line; images/: write captions.tsv, IMAGE<tab>OBJECT<tab>CAPTION on a line'
  const expected = 'one for each object: this task reads them'
  throw new Mismatch({ where, field: 'captions', expected, got: 'none', hint })
}

/** Bytes of the typed arrays in plain data. */
function bytesIn(value: unknown): number {
  if (ArrayBuffer.isView(value)) return value.byteLength
  if (typeof value !== 'object' || value === null) return 0
  return Object.values(value).reduce((sum: number, part) => sum + bytesIn(part), 0)
}
