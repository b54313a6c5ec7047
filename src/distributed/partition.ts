// ZeRO stage 1: moments, EMA copy and start values are split over ranks. Every rank has all weights and all summed gradients, updates the
// tensors it owns, and takes the others from their owners. Updates work element by element, so the numbers are the same.
import { keep, type Tensor, zeros } from '../tensor/index.ts'
import type { NamedTensors, World } from './world.ts'

/** Owner of each tensor by name. Largest first to the rank with least, so that loads differ by one tensor at most; pure. */
export function ownersOf(tensors: ReadonlyMap<string, { numel: number }>, ranks: number): Map<string, number> {
  const loads: number[] = new Array(ranks).fill(0)
  const largestFirst = [...tensors].map(([name, { numel }], at) => ({ name, size: numel, at }))
  largestFirst.sort((a, b) => b.size - a.size || a.at - b.at)
  const owners = new Map<string, number>()
  for (const { name, size } of largestFirst) {
    const rank = loads.indexOf(Math.min(...loads))
    owners.set(name, rank)
    loads[rank]! += size
  }
  return owners
}

/** Every rank takes the tensors of each owner, who has changed them. */
export async function shareOwned(
  world: World,
  tensors: NamedTensors,
  owners: ReadonlyMap<string, number>,
): Promise<void> {
  for (let rank = 0; rank < world.size; rank++) {
    const owned = new Map([...tensors].filter(([name]) => owners.get(name) === rank))
    if (owned.size > 0) await world.broadcast(owned, rank)
  }
}

/** Tensors of all ranks; the caller calls release() after use, which frees those of other ranks. */
export interface Gathered {
  tensors: ReadonlyMap<string, Tensor>
  release(): void
}

/** The tensors of all ranks on every rank, in the order of `like`, which gives names and shapes. */
export async function gatherOwned(
  world: World,
  own: NamedTensors,
  like: NamedTensors,
  owners: ReadonlyMap<string, number>,
): Promise<Gathered> {
  const others = [...like].filter(([name]) => !own.has(name))
  const empty = ({ shape, dtype, device }: Tensor) => keep(zeros([...shape], { dtype, device }))
  const borrowed = new Map(others.map(([name, t]) => [name, empty(t)]))
  const tensors = new Map([...like.keys()].map((name) => [name, own.get(name) ?? borrowed.get(name)!]))
  await shareOwned(world, tensors, owners)
  const release = () => {
    for (const t of borrowed.values()) t.dispose()
  }
  return { tensors, release }
}

/** The whole optimizer state on every rank, for the one that writes it. `parameters` give shapes by name. */
export async function wholeState(
  world: World,
  own: NamedTensors,
  parameters: NamedTensors,
  owners: ReadonlyMap<string, number>,
): Promise<Gathered> {
  const names = [...own.keys()].filter((key) => key.endsWith('.step')).map((key) => key.slice(0, -'.step'.length))
  const moments = names.flatMap((name) => ['exp_avg', 'exp_avg_sq'].map((part) => ({ name, key: `${name}.${part}` })))
  const like = new Map(moments.map(({ name, key }) => [key, parameters.get(name)!]))
  const ownerOfMoment = new Map(moments.map(({ name, key }) => [key, owners.get(name)!]))
  const { tensors, release } = await gatherOwned(world, own, like, ownerOfMoment)
  const keys = names.flatMap((name) => ['exp_avg', 'exp_avg_sq', 'step'].map((part) => `${name}.${part}`))
  return { tensors: new Map(keys.map((key) => [key, tensors.get(key) ?? own.get(key)!])), release }
}
