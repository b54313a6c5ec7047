// ZeRO stage 1: the optimizer's moments are split over ranks. Every rank has all weights and all summed gradients, updates the
// tensors it owns, and takes the others from their owners. AdamW works element by element, so the numbers are the same.
import { keep, noGrad, type Tensor, tidy, zeros } from '../tensor/index.ts'
import type { NamedTensors, World } from './world.ts'

/** Owner of each tensor by name. Largest first to the rank with least, so that loads differ by one tensor at most; pure. */
export function ownersOf(sizes: ReadonlyMap<string, number>, ranks: number): Map<string, number> {
  const loads: number[] = new Array(ranks).fill(0)
  const largestFirst = [...sizes].map(([name, size], at) => ({ name, size, at }))
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

/**
 * The whole optimizer state on every rank, for the one that writes it: moments of other ranks are taken from them. `parameters` give
 * shapes by name. The caller calls release() after writing.
 */
export async function wholeState(
  world: World,
  own: NamedTensors,
  parameters: NamedTensors,
  owners: ReadonlyMap<string, number>,
): Promise<{ state: Map<string, Tensor>; release(): void }> {
  const state = new Map<string, Tensor>()
  const shared = new Map<string, Tensor>()
  const borrowed: Tensor[] = []
  const ownerOfMoment = new Map<string, number>()
  const names = [...own.keys()].filter((key) => key.endsWith('.step')).map((key) => key.slice(0, -'.step'.length))
  for (const name of names) {
    for (const part of ['exp_avg', 'exp_avg_sq'] as const) {
      const key = `${name}.${part}`
      const moment = own.get(key) ?? borrow(parameters.get(name)!, borrowed)
      state.set(key, moment)
      shared.set(key, moment)
      ownerOfMoment.set(key, owners.get(name)!)
    }
    state.set(`${name}.step`, own.get(`${name}.step`)!)
  }
  await shareOwned(world, shared, ownerOfMoment)
  const release = () => {
    for (const t of borrowed) t.dispose()
  }
  return { state, release }
}

function borrow({ shape, dtype, device }: Tensor, borrowed: Tensor[]): Tensor {
  const fresh = noGrad(() => tidy(() => keep(zeros([...shape], { dtype, device }))))
  borrowed.push(fresh)
  return fresh
}
