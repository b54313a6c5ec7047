// Which records an optimizer step learns from. A generation batch has `stepsPerGeneration` pieces of `batchSize` records and is passed
// over `numIterations` times; an optimizer step takes `gradientAccumulationSteps` pieces, from one generation batch or several.
import { chunks } from '../core/index.ts'
import type { Example, Loader, Source } from '../data/index.ts'
import {
  allPlainDensities,
  type Batch,
  columnSum,
  type Draw,
  decodedTokens,
  type Group,
  ownPieces,
  type Run,
  type SampledGroups,
  sampleGroups,
  type Task,
  withAdvantages,
} from '../rl/index.ts'
import type { WorkItem } from '../tasks/index.ts'
import type { RunConfig } from './config.ts'
import type { Encoder } from './features.ts'
import { type Retry, withinMemory } from './memory-retry.ts'
import { restoreGroup, type StoredGroup, storeGroup } from './stored-group.ts'

/** A record drawn twice in one step gets fresh samples. */
type CountedDraw = Draw & { again: Map<string, number> }

/** Scored groups of some records, in pieces, and how many pieces were taken so far, over all passes. */
interface Generation {
  pieces: WorkItem[][]
  groups: Group[]
  /** Settles when the groups of a task have their scores. */
  ready(task: Task): Promise<void>
  taken: number
  /** The epoch ended inside it. */
  short: boolean
}

export interface StoredGeneration {
  groups: StoredGroup[]
  pieces: string[][]
  taken: number
  short: boolean
}

/** What a step is given, and the groups that were sampled for it. */
export interface NextBatch {
  batch: Batch & { groups: Group[] }
  fresh: Group[]
  /** Tokens decoded for it, those of filtered groups included. */
  decoded: number
}

export class Batches {
  readonly #run: Run
  readonly #config: RunConfig
  readonly #loader: Loader
  readonly #source: Source
  readonly #encoder: Encoder
  readonly #retry: Retry
  readonly #sizes: { pieces: number; passes: number; accumulated: number }
  #generation: Generation | null = null
  #decoded = 0
  /** Seconds of this process so far, images and scores included: of all its threads, and by the clock without waiting for other processes. */
  readonly sampled = { processor: 0, worked: 0 }

  constructor(
    run: Run,
    config: RunConfig,
    records: { loader: Loader; source: Source },
    encoder: Encoder,
    retry: Retry,
  ) {
    this.#run = run
    this.#config = config
    this.#loader = records.loader
    this.#source = records.source
    this.#encoder = encoder
    this.#retry = retry
    const { numIterations, gradientAccumulationSteps, stepsPerGeneration } = config.rl
    const pieces = stepsPerGeneration ?? gradientAccumulationSteps
    this.#sizes = { pieces, passes: numIterations, accumulated: gradientAccumulationSteps }
  }

  /** Remembers where the batches are; the result puts them back there: a step that fails was not begun. */
  mark(): () => void {
    const [before, position] = [this.#generation ? { ...this.#generation } : null, this.#loader.state()]
    return () => {
      this.#generation = before
      this.#loader.restore(position)
    }
  }

  /** The groups of optimizer step `step`, sampled when it is their turn. Their scores may still be on their way. */
  async next(step: number, seconds: Record<string, number>): Promise<NextBatch> {
    const draw = { seed: this.#config.seed, step, again: new Map<string, number>() }
    const pieces: WorkItem[][] = []
    const groups: Group[] = []
    const fresh: Group[] = []
    const generationOf = new Map<Group, Generation>()
    const before = this.#decoded
    for (let taken = 0; taken < this.#sizes.accumulated; taken++) {
      if (!this.#generation) {
        this.#generation = await this.#generate(draw, seconds)
        fresh.push(...this.#generation.groups)
      }
      const { items, last, short } = this.#take(this.#generation)
      // passes over a piece inside one step see the same weights: their mean is that of one
      if (!pieces.includes(items)) {
        pieces.push(items)
        const own = this.#generation.groups.filter((g) => items.includes(g.item as WorkItem))
        groups.push(...own)
        for (const g of own) generationOf.set(g, this.#generation)
      }
      if (last) this.#generation = null
      if (short) break // a step does not reach over the end of an epoch
    }
    if (fresh.length > 0) await this.#keepOld()
    const numItems = new Map<Group, number>()
    for (const generation of new Set(generationOf.values())) countItems(generation, pieces.length, numItems)
    const ready = async (task: Task) => {
      for (const generation of new Set(generationOf.values())) await generation.ready(task)
    }
    return {
      batch: {
        draw,
        pieces,
        groups: this.#run.tasks.flatMap((task) => groups.filter((g) => g.task === task)),
        ready,
        numItems,
      },
      fresh,
      decoded: this.#decoded - before,
    }
  }

  #take(generation: Generation): { items: WorkItem[]; last: boolean; short: boolean } {
    const { pieces, short } = generation
    const items = pieces[generation.taken % pieces.length]!
    generation.taken++
    const endOfPass = generation.taken % pieces.length === 0
    return { items, last: generation.taken === pieces.length * this.#sizes.passes, short: short && endOfPass }
  }

  /** Frees what a finished step no longer needs. */
  release(pieces: readonly (readonly WorkItem[])[]): void {
    const waiting = new Set(this.#generation?.pieces.flat())
    for (const items of pieces) this.#encoder.release(items.filter((item) => !waiting.has(item)))
  }

  /** Samples and scores the records of the next generation batch; with groupFilter, groups without spread are replaced. */
  async #generate(draw: CountedDraw, seconds: Record<string, number>): Promise<Generation> {
    this.#run.costs.settle()
    const { batchSize, rl } = this.#config
    const wanted = batchSize * this.#sizes.pieces
    const made: Group[] = []
    const records: WorkItem[] = []
    let ready: SampledGroups['ready'] = async () => undefined
    let short = false
    for (let round = 0; round <= (rl.groupFilter ? rl.maxResampleTimes : 0); round++) {
      const needed = wanted - this.#smallest(made, round)
      if (needed < 1) break
      const examples = await this.#records(needed)
      short ||= round === 0 && examples.length < needed
      const items = this.#encoder.items(examples)
      records.push(...items)
      const sampled = await this.#sample(chunks(items, batchSize), draw, seconds)
      made.push(...sampled.groups)
      if (rl.groupFilter) for (const task of this.#run.tasks) await sampled.ready(task)
      else ready = sampled.ready
      for (const { id } of items) draw.again.set(id, (draw.again.get(id) ?? 0) + 1)
    }
    const groups = rl.groupFilter ? this.#filtered(made, wanted, draw) : made
    const used = new Set(groups.map((g) => g.item))
    this.#encoder.release(records.filter((item) => !used.has(item)))
    const kept = records.filter((item) => used.has(item))
    // tasks may have kept different records: there are more of them then, and as many pieces as ever
    const pieces = chunks(kept, Math.max(batchSize, Math.ceil(kept.length / this.#sizes.pieces)))
    return { pieces, groups, ready, taken: 0, short }
  }

  /** Of a generation batch that outlives the step that sampled it: the weights move before its groups are used again. */
  async #keepOld(): Promise<void> {
    if (!this.#generation) return
    const { pieces, groups } = this.#generation
    await withinMemory(pieces, (some) => this.#keepDensities(some, groups), this.#retry)
  }

  /** Log-densities of the weights that sampled. Each process computes those of its records. */
  async #keepDensities(pieces: readonly (readonly WorkItem[])[], groups: readonly Group[]): Promise<void> {
    const made: { at: number; values: Float32Array }[] = []
    for (const items of ownPieces(this.#run, pieces)) {
      if (items.length === 0) continue
      this.#run.inWork(items, () => {
        for (const task of this.#run.tasks) {
          const own = [...groups.keys()].filter((at) => {
            const g = groups[at]!
            return g.task === task && items.includes(g.item as WorkItem)
          })
          const values = allPlainDensities(own.map((at) => groups[at]!))
          made.push(...own.map((at, i) => ({ at, values: values[i]! })))
        }
      })
    }
    for (const { at, values } of (await this.#run.world.gather(made)).flat()) groups[at]!.old = values
  }

  /** Records that every task can already learn from. */
  #smallest(made: readonly Group[], round: number): number {
    if (round === 0) return 0
    return Math.min(...this.#run.tasks.map((task) => made.filter((g) => g.task === task && g.hasSignal).length))
  }

  async #sample(pieces: WorkItem[][], draw: Draw, seconds: Record<string, number>): Promise<SampledGroups> {
    const { world } = this.#run
    const [startedAt, encodedAt, usedAt] = [performance.now(), this.#encoder.seconds, processorSeconds()]
    const waitedAt = world.waited
    const work = (some: Batch['pieces']) => sampleGroups(this.#run, { pieces: some, draw })
    const sampled = await withinMemory(pieces, work, this.#retry)
    const { groups } = sampled
    this.#decoded += groups.reduce((n, g) => n + decodedTokens(g), 0)
    if (world.size > 1) this.#run.costs.measure(groups)
    const spent = (performance.now() - startedAt) / 1000
    seconds.sample = (seconds.sample ?? 0) + spent - (this.#encoder.seconds - encodedAt)
    this.sampled.worked += spent - (world.waited - waitedAt)
    this.sampled.processor += processorSeconds() - usedAt
    return sampled
  }

  /** For each task its groups with spread, at most as many as wanted, normalised among each other; all flat: the first ones. */
  #filtered(made: readonly Group[], wanted: number, draw: Draw): Group[] {
    return this.#run.tasks.flatMap((task) => {
      const own = made.filter((g) => g.task === task)
      const useful = own.filter((g) => g.hasSignal)
      return withAdvantages(this.#run, (useful.length > 0 ? useful : own).slice(0, wanted), draw)
    })
  }

  /** Different records: the batch ends before the first repeated one, which the end of an epoch or a small set brings. */
  async #records(count: number): Promise<Example[]> {
    const out = new Map<string, Example>()
    while (out.size < count) {
      const before = this.#loader.state()
      const example = await this.#loader.next()
      if (out.has(example.id)) {
        this.#loader.restore(before) // it is the next batch's
        break
      }
      out.set(example.id, example)
    }
    return [...out.values()]
  }

  /** All processes together: densities under the reference are with the process that learned from the group. */
  async state(): Promise<StoredGeneration | null> {
    if (!this.#generation) return null
    const { groups, pieces, taken, short } = this.#generation
    const references = await this.#run.world.gather(groups.map((g) => g.reference))
    groups.forEach((g, at) => {
      g.reference ??= references.find((made) => made[at])?.[at] ?? null
    })
    const items = pieces.flat()
    const stored = groups.map((g) => storeGroup(g, items.indexOf(g.item as WorkItem)))
    return { groups: stored, pieces: pieces.map((some) => some.map((i) => i.id)), taken, short }
  }

  /** Records of a stored generation batch are read again by id; their samples and scores come from the checkpoint. */
  async restore(stored: StoredGeneration): Promise<void> {
    const wanted = new Set(stored.pieces.flat())
    const found = new Map<string, Example>()
    const rules = { usesEmpty: () => true } // those of the task let these records through
    for (let i = 0; i < this.#source.length && found.size < wanted.size; i++) {
      const id = this.#source.id(i)
      if (wanted.has(id) && !found.has(id)) found.set(id, await this.#source.get(i, rules))
    }
    // a record that was drawn twice is two items, as it was before the stop
    const items = this.#encoder.items(stored.pieces.flat().map((id) => found.get(id)!))
    const itemOf = itemFinder(items)
    let next = 0
    this.#generation = {
      groups: stored.groups.map((g) => restoreGroup(g, this.#run.tasks, itemOf(g), this.#config.rl)),
      ready: async () => undefined,
      pieces: stored.pieces.map((ids) => ids.map(() => items[next++]!)),
      taken: stored.taken,
      short: stored.short,
    }
  }

  close(): void {
    if (this.#generation) this.#encoder.release(this.#generation.pieces.flat())
    this.#generation = null
  }
}

/** The item of a stored group. Older checkpoints have no index: the n-th group of a task and record has the n-th item of that record. */
function itemFinder(items: readonly WorkItem[]): (group: StoredGroup) => WorkItem {
  const seen = new Map<string, number>()
  return ({ item, task, record }) => {
    if (item !== undefined) return items[item]!
    const key = `${task}\n${record}`
    const n = seen.get(key) ?? 0
    seen.set(key, n + 1)
    const own = items.filter(({ id }) => id === record)
    return own[Math.min(n, own.length - 1)]!
  }
}

/** Used by all threads of this process. */
function processorSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

/** For each group the tokens of its task in its generation batch, rescaled to a step of `numPieces` pieces. */
function countItems({ groups, pieces }: Generation, numPieces: number, into: Map<Group, number>): void {
  const tokens = new Map<Task, number>()
  for (const { task, columns } of groups) tokens.set(task, (tokens.get(task) ?? 0) + columnSum(columns))
  for (const g of groups) into.set(g, (tokens.get(g.task)! * numPieces) / pieces.length)
}
