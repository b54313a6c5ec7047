// Which process works on which record, and how its results reach the others. A single process works on all records.
import { Divergence, type World } from '../distributed/index.ts'
import type { GrpoConfig } from './config.ts'
import { decodedTokens, type Group, newGroup, type Scored } from './group.ts'
import { Stopped } from './stopped.ts'
import type { Item, Json, Task } from './task.ts'

export type StoredCosts = Record<'known' | 'fresh', [string, number][]>

/** Records that are remembered, the newest ones. */
const maxRecords = 20_000

/** Tokens that were decoded for records before: what they cost. Every process sees the groups of all, so costs are the same everywhere. */
export class RecordCosts {
  #known = new Map<string, number>()
  /** Measured since `settle`: a generation batch is dealt in one way as long as it is used. */
  #fresh = new Map<string, number>()

  of(record: string): number | undefined {
    return this.#known.get(record)
  }

  measure(groups: readonly Pick<Group, 'item' | 'samples'>[]): void {
    for (const { item } of groups) this.#fresh.set(item.id, 0)
    for (const group of groups) this.#fresh.set(group.item.id, this.#fresh.get(group.item.id)! + decodedTokens(group))
  }

  /** From now on what was measured decides. */
  settle(): void {
    this.#known = new Map([...this.#known, ...this.#fresh].slice(-maxRecords))
    this.#fresh.clear()
  }

  state(): StoredCosts {
    return { known: [...this.#known], fresh: [...this.#fresh] }
  }

  restore({ known, fresh }: StoredCosts): void {
    this.#known = new Map(known)
    this.#fresh = new Map(fresh)
  }
}

/** The same pieces with the records of this process alone; all samples of a record are with one process. */
export function ownPieces<I extends Item>(
  { world, costs }: { world: Pick<World, 'rank' | 'size'>; costs: RecordCosts },
  pieces: readonly (readonly I[])[],
): I[][] {
  if (world.size === 1) return pieces.map((items) => [...items])
  const owners = dealRecords(pieces, world.size, costs)
  return pieces.map((items, p) => items.filter((_, i) => owners[p]![i] === world.rank))
}

/**
 * The process of every record: expensive ones first, each to the process with least to do, records of equal cost in turn. One that was not
 * measured counts as the mean of the others. No process has more records of a piece in memory than its share. Pure.
 */
export function dealRecords(pieces: readonly (readonly Item[])[], size: number, costs: RecordCosts): number[][] {
  const measured = pieces.flat().flatMap(({ id }) => costs.of(id) ?? [])
  const mean = measured.reduce((a, b) => a + b, 0) / measured.length || 1
  const records = pieces.flatMap((items, p) => items.map(({ id }, i) => ({ p, i, cost: costs.of(id) ?? mean })))
  const loads: number[] = new Array(size).fill(0)
  const counts = pieces.map(() => new Array<number>(size).fill(0))
  const owners = pieces.map((items) => new Array<number>(items.length))
  for (const { p, i, cost } of records.sort((a, b) => b.cost - a.cost)) {
    const share = Math.ceil(pieces[p]!.length / size)
    const free = loads.map((load, rank) => (counts[p]![rank]! < share ? load : Number.POSITIVE_INFINITY))
    const rank = free.indexOf(Math.min(...free))
    owners[p]![i] = rank
    loads[rank]! += cost
    counts[p]![rank]!++
  }
  return owners
}

/** A scored group on its way to another process. */
interface SentGroup {
  task: string
  record: string
  samples: Json[]
  scores: readonly Scored[]
}

const keyOf = (task: string, record: string) => `${task}\n${record}`

/**
 * Groups of all processes, task by task in the order of the records, the same on each. Replies stay with the process that sampled them.
 * Advantages are not there yet. Null: this process must stop and dropped its scores; then all processes stop here.
 */
export async function gatherGroups(
  world: World,
  tasks: readonly Task[],
  rl: GrpoConfig,
  items: readonly Item[],
  own: readonly Group[] | null,
): Promise<Group[]> {
  if (world.size === 1 && own) return [...own] // nothing to pack
  const packed = own?.map(({ task, item, samples, scores }): SentGroup => {
    return { task: task.name, record: item.id, samples: samples.map((s) => task.store(s)), scores }
  })
  const all = await world.gather({ records: items.map(({ id }) => id), groups: packed ?? null })
  requireSameRecords(all.map(({ records }) => records))
  const sent = all.map(({ groups }) => groups)
  if (!own || sent.includes(null)) throw new Stopped()
  const byKey = new Map(own.map((group) => [keyOf(group.task.name, group.item.id), group]))
  const byId = new Map(items.map((item) => [item.id, item]))
  for (const group of sent.flatMap((groups) => groups ?? [])) {
    const key = keyOf(group.task, group.record)
    if (!byKey.has(key)) byKey.set(key, received(group, tasks, byId, rl))
  }
  return tasks.flatMap((task) => items.map((item) => byKey.get(keyOf(task.name, item.id))!))
}

/** A file that only some of them can read gives other batches from there on. */
function requireSameRecords(all: readonly (readonly string[])[]): void {
  const [ours] = all as [readonly string[]]
  const other = all.findIndex((ids) => ids.join('\n') !== ours.join('\n'))
  if (other < 0) return
  const at = Array.from(ours.keys()).find((i) => ours[i] !== all[other]![i]) ?? ours.length
  const [first, second] = [ours, all[other]!].map((ids) => (ids[at] === undefined ? 'none' : `record ${ids[at]}`))
  throw new Divergence(
    `ranks read different records: ${first} on rank 0 is ${second} on rank ${other}; all of them must find the same readable files (roundtrip doctor on each host shows records that cannot be used)`,
  )
}

function received(sent: SentGroup, tasks: readonly Task[], items: ReadonlyMap<string, Item>, rl: GrpoConfig): Group {
  const task = tasks.find((t) => t.name === sent.task)!
  const samples = sent.samples.map((s) => task.restore(s))
  return { ...newGroup({ task, item: items.get(sent.record)!, samples }, rl), scores: sent.scores }
}
